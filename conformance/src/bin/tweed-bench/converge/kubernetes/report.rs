//! What was measured over a real API server, and its tables.

use std::fmt::Write;

use serde::Serialize;

use crate::converge::report::{Heartbeats, Latency, Start};
use crate::converge::tables::{start_cells, write_heartbeats, write_latencies};
use crate::report::spread;
use crate::stats::Spread;

/// All of it.
#[derive(Debug, Serialize)]
pub struct Kubernetes {
    /// The API server's, as it says itself.
    pub version: String,
    /// Starts of the agents.
    pub starts: Vec<Start>,
    /// The API server's CPU for each of them, in milliseconds.
    pub server_cpu_ms: Vec<Option<Spread>>,
    /// The same list, read and dropped.
    pub lists: Vec<PlainList>,
    /// From a change of one Node to its route.
    pub latencies: Vec<Latency>,
    /// Heartbeats of all Nodes.
    pub heartbeats: Vec<Heartbeats>,
}

/// The list of Nodes, read by a plain client.
#[derive(Debug, Serialize)]
pub struct PlainList {
    /// How it was asked for.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// How long it took, in milliseconds.
    pub ms: Option<Spread>,
    /// tweed's last route divided by that, round by round.
    pub tweed_times: Option<Spread>,
}

impl Kubernetes {
    /// Tables for people.
    pub fn write(&self, out: &mut String) -> std::fmt::Result {
        let version = &self.version;
        writeln!(
            out,
            "### Over kube-apiserver {version}: from start to the last route\n"
        )?;
        writeln!(
            out,
            "| | last route, ms | × tweed | ready, ms | peak memory, MiB | × tweed | CPU, ms | CPU of kube-apiserver, ms |"
        )?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for (start, server) in self.starts.iter().zip(&self.server_cpu_ms) {
            writeln!(out, "| {} | {} |", start_cells(start), spread(*server))?;
        }
        writeln!(
            out,
            "\n| the list, read and dropped | MB | ms | tweed's last route, × |"
        )?;
        writeln!(out, "|---|--:|--:|--:|")?;
        for list in &self.lists {
            writeln!(
                out,
                "| {} | {:.1} | {} | {} |",
                list.name,
                list.bytes as f64 / 1e6,
                spread(list.ms),
                spread(list.tweed_times)
            )?;
        }
        writeln!(out, "\n### Over kube-apiserver {version}: one Node\n")?;
        write_latencies(out, &self.latencies)?;
        writeln!(out, "\n### Over kube-apiserver {version}: heartbeats\n")?;
        write_heartbeats(out, &self.heartbeats)?;
        writeln!(out)
    }
}
