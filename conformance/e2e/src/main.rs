//! `tweed-e2e`: tweed in a real Kubernetes cluster, from end to end.
//!
//! ```text
//! scenarios     the scenarios, one file each, and their table
//! fixture       what a scenario gets: the cluster and its own namespace
//! run           runs the scenarios in one cluster and reports each
//! results       writes the results to files
//! agents        the pods of tweed's DaemonSet
//! consistency   compares API, runtime, address store and kernel
//! overlay       compares routes, neighbours and FDB entries of all nodes
//! extra_node    a node that exists only during a scenario
//! endpoint      a pod, a node or the host outside, as the end of a path
//! node          a node with its addresses on underlay and overlay
//! netexec       requests to servers, which reply with the client's address
//! plugin        direct calls of the CNI plugin
//! pods          idle pods
//! traffic       pings and TCP connections, of which none may be lost
//! flows         flows through a Service that stay open while its proxy changes
//! load          new connections through a Service, of which none may fail
//! guide         the commands of a guide, run as somebody pastes them
//! service_proxy who serves Services: kube-proxy, tweed, or both
//! at_once       waits that take place at the same time
//! ```
//!
//! At the end the cluster is removed, unless `--keep` is given. After a scenario
//! that fails, the others still run.

mod agents;
mod at_once;
mod consistency;
mod endpoint;
mod extra_node;
mod fixture;
mod flows;
mod guide;
mod load;
mod netexec;
mod node;
mod overlay;
mod plugin;
mod pods;
mod results;
mod run;
mod scenarios;
mod service;
mod service_proxy;
mod stop;
mod tier;
mod traffic;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use scenarios::Scenario;
use tier::Tier;

/// Run the end-to-end tests of tweed in a real Kubernetes cluster on this machine.
/// Needs root, and what `conformance/setup.sh e2e` and `make image` build.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// List the scenarios and run none.
    #[arg(long)]
    list: bool,
    /// Run only this scenario; can be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run at full size: more pods, longer outages, more rounds.
    #[arg(long)]
    full: bool,
    /// Keep the cluster at the end.
    #[arg(long)]
    keep: bool,
    /// Number of nodes beside the control-plane node.
    #[arg(long, default_value_t = 3)]
    workers: u8,
    /// The cluster's name, with which the name of each of its namespaces starts.
    #[arg(long, value_name = "NAME", default_value = "e2e")]
    name: String,
    /// One of the versions in conformance/kubernetes/other-versions, instead of the
    /// usual one.
    #[arg(long, value_name = "VERSION")]
    kubernetes: Option<String>,
    /// Folder of `make release` that tweed's image and manifest come from, instead of this
    /// build's.
    #[arg(long, value_name = "DIR")]
    release: Option<PathBuf>,
    /// Run in the kept cluster of this name, and keep it.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "workers", "keep", "kubernetes", "release"])]
    cluster: Option<String>,
    /// Folder for the results [default: e2e in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // If stderr is closed, there is nowhere to report it.
            let _ = writeln!(std::io::stderr(), "tweed-e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs or lists the chosen scenarios. Returns whether all passed.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let tier = if arguments.full { Tier::Full } else { Tier::Ci };
    let chosen = scenarios::choose(&arguments.only, tier)?;
    if arguments.list {
        return list(&chosen).map(|()| true);
    }
    run::run(arguments, tier, &chosen)
}

fn list(chosen: &[&Scenario]) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    for scenario in chosen {
        let Scenario { name, shows, .. } = scenario;
        writeln!(out, "{name:<12} {shows}")?;
    }
    Ok(())
}
