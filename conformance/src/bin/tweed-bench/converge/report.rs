//! The results, to be written as files.

use std::sync::Arc;

use serde::Serialize;

use super::fleet::{Encoded, FleetNode};
use super::kubernetes::Kubernetes;
use super::plot;
use super::stage::Who;
use crate::report::{Machine, Results, json};
use crate::stats::{Spread, percentile};

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Nodes of the cluster, the own one not counted.
    pub nodes: usize,
    /// Bytes of all Nodes as JSON.
    pub json_bytes: usize,
    /// Bytes of all Nodes as protobuf.
    pub protobuf_bytes: usize,
    /// Starts of the agent.
    pub starts: Vec<Start>,
    /// Messages to the kernel.
    pub writes: Vec<Writes>,
    /// From a change of one Node to its route.
    pub latencies: Vec<Latency>,
    /// Heartbeats of all Nodes.
    pub heartbeats: Vec<Heartbeats>,
    /// Without any event, after all of that.
    pub idle: Vec<Idle>,
    /// The same over a real API server, where there is one.
    pub kubernetes: Option<Kubernetes>,
}

/// What each start over one source came to, in milliseconds and MiB.
#[derive(Debug, Default, Clone)]
pub struct StartSamples {
    /// Until the last route.
    pub route: Vec<f64>,
    /// Until ready; none if that says nothing of the routes.
    pub ready: Vec<f64>,
    /// The most memory.
    pub peak: Vec<f64>,
    /// CPU up to then.
    pub cpu: Vec<f64>,
    /// From the first message to the kernel to the last.
    pub writes: Vec<f64>,
    /// Requests to the API server, of the last start.
    pub requests: u64,
}

/// Starts over one source of Nodes.
#[derive(Debug, Serialize)]
pub struct Start {
    /// Whose agent.
    pub who: Who,
    /// The source.
    pub source: &'static str,
    /// Until the last route was made.
    pub to_last_route_ms: Option<Spread>,
    /// The same, divided by tweed's over the same API server, in protobuf.
    pub route_times_tweed: Option<Spread>,
    /// Until the agent was ready, as it says itself.
    pub to_ready_ms: Option<Spread>,
    /// The most memory up to then.
    pub peak_mib: Option<Spread>,
    /// The same, divided by tweed's.
    pub peak_times_tweed: Option<Spread>,
    /// CPU of the agent up to then.
    pub cpu_ms: Option<Spread>,
    /// Requests to the API server up to then.
    pub requests: u64,
}

impl Start {
    /// Of these samples; ratios are to those of `tweed`, round by round.
    pub fn new(
        who: Who,
        source: &'static str,
        samples: &StartSamples,
        tweed: &StartSamples,
    ) -> Self {
        Self {
            who,
            source,
            to_last_route_ms: Spread::of(&samples.route),
            route_times_tweed: Spread::of_ratios(&samples.route, &tweed.route),
            to_ready_ms: Spread::of(&samples.ready),
            peak_mib: Spread::of(&samples.peak),
            peak_times_tweed: Spread::of_ratios(&samples.peak, &tweed.peak),
            cpu_ms: Spread::of(&samples.cpu),
            requests: samples.requests,
        }
    }
}

/// Messages to the kernel, all in a row.
#[derive(Debug, Serialize)]
pub struct Writes {
    /// Who sent them.
    pub who: &'static str,
    /// How many.
    pub messages: usize,
    /// From the first to the last.
    pub ms: Option<Spread>,
    /// In a second, of the median.
    pub a_second: Option<f64>,
}

impl Writes {
    /// So many messages in that time.
    pub fn new(who: &'static str, messages: usize, ms: Option<Spread>) -> Self {
        Self {
            who,
            messages,
            ms,
            a_second: ms.map(|ms| messages as f64 * 1e3 / ms.median),
        }
    }
}

/// From a change of one Node to its route.
#[derive(Debug, Serialize)]
pub struct Latency {
    /// Whose agent, or none's.
    pub who: &'static str,
    /// How changes followed each other.
    pub way: &'static str,
    /// How many.
    pub samples: usize,
    /// The median, in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 took less.
    pub p99_ms: f64,
    /// The longest.
    pub most_ms: f64,
    /// CPU of the agent for a Node that joins and leaves again, where this is
    /// about both.
    pub cpu_ms_each: Option<f64>,
}

impl Latency {
    /// Of these milliseconds; `cpu_ms` is for all of them together.
    pub fn of(who: &'static str, way: &'static str, samples: &[f64], cpu_ms: Option<f64>) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share| percentile(&sorted, share).unwrap_or_default();
        Self {
            who,
            way,
            samples: samples.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            most_ms: at(1.0),
            cpu_ms_each: cpu_ms.map(|ms| ms / samples.len() as f64),
        }
    }
}

/// Heartbeats of all Nodes.
#[derive(Debug, Serialize)]
pub struct Heartbeats {
    /// Whose agent.
    pub who: Who,
    /// How many.
    pub count: u32,
    /// In how many seconds.
    pub seconds: f64,
    /// CPU of the agent for each.
    pub cpu_ms_each: f64,
    /// How often a thread of the agent was woken for each.
    pub wakes_each: f64,
}

/// The agent without any event.
#[derive(Debug, Serialize)]
pub struct Idle {
    /// Whose agent.
    pub who: Who,
    /// For how long.
    pub seconds: f64,
    /// How often a thread of it was woken.
    pub wakes_a_second: f64,
    /// Its CPU.
    pub cpu_ms_a_second: f64,
    /// The most memory that it ever had.
    pub peak_mib: f64,
}

impl Report {
    /// Counts the bytes of the Nodes.
    pub fn set_sizes(&mut self, fleet: &[(FleetNode, Arc<Encoded>)]) {
        self.json_bytes = fleet.iter().map(|(_, node)| node.json.len()).sum();
        self.protobuf_bytes = fleet.iter().map(|(_, node)| node.protobuf.len()).sum();
    }

    /// As files.
    pub fn results(&self) -> anyhow::Result<Results> {
        Ok(Results {
            name: "converge",
            markdown: self.markdown(),
            json: json(self)?,
            svg: plot::render(self),
        })
    }
}
