//! The results, and how they are told.

use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;

use super::fleet::{Encoded, FleetNode};
use super::plot;
use crate::report::{Aim, Machine, Results, json, spread, write_aims};
use crate::stats::{Spread, percentile};

/// From start to the last route, in milliseconds.
const AIM_START_MS: f64 = 1000.0;
/// The most memory, in MiB.
const AIM_PEAK_MIB: f64 = 40.0;
/// For one Node's route, in milliseconds: 99 of 100 come sooner.
const AIM_ROUTE_MS: f64 = 5.0;
/// CPU for a heartbeat, in milliseconds.
const AIM_HEARTBEAT_MS: f64 = 0.1;

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
    pub heartbeats: Option<Heartbeats>,
    /// Without any event.
    pub idle: Option<Idle>,
    /// The agent's most memory after all of that.
    pub peak_in_the_end_mib: Option<f64>,
}

/// Starts over one source of Nodes.
#[derive(Debug, Serialize)]
pub struct Start {
    /// The source.
    pub source: &'static str,
    /// Until the last route was made.
    pub to_last_route_ms: Option<Spread>,
    /// Until the agent was ready, as it says itself.
    pub to_ready_ms: Option<Spread>,
    /// The most memory up to then.
    pub peak_mib: Option<Spread>,
    /// Requests to the API server up to then.
    pub requests: u64,
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
    /// CPU of the agent for a Node that joins and leaves again.
    pub cpu_ms_each: f64,
}

impl Latency {
    /// Of these milliseconds; `cpu_ms` is for all of them together.
    pub fn of(way: &'static str, samples: &[f64], cpu_ms: f64) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share| percentile(&sorted, share).unwrap_or_default();
        Self {
            way,
            samples: samples.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            most_ms: at(1.0),
            cpu_ms_each: cpu_ms / samples.len() as f64,
        }
    }
}

/// Heartbeats of all Nodes.
#[derive(Debug, Serialize)]
pub struct Heartbeats {
    /// How many.
    pub count: usize,
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
    /// For how long.
    pub seconds: f64,
    /// How often a thread of it was woken.
    pub wakes_a_second: f64,
    /// Its CPU.
    pub cpu_ms_a_second: f64,
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

    /// Tables for people.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        writeln!(
            out,
            "{}. {} Nodes: {:.0} MB as JSON, {:.0} MB as protobuf. Milliseconds and MiB: median \
             (10th to 90th percentile).\n",
            self.machine,
            self.nodes,
            mb(self.json_bytes),
            mb(self.protobuf_bytes)
        )?;
        writeln!(out, "### From start to the last route\n")?;
        writeln!(
            out,
            "| source | last route, ms | ready, ms | peak memory, MiB | requests |"
        )?;
        writeln!(out, "|---|--:|--:|--:|--:|")?;
        for start in &self.starts {
            writeln!(
                out,
                "| {} | {} | {} | {} | {} |",
                start.source,
                spread(start.to_last_route_ms),
                spread(start.to_ready_ms),
                spread(start.peak_mib),
                start.requests
            )?;
        }
        writeln!(out, "\n### Messages to the kernel\n")?;
        writeln!(out, "| | messages | ms | a second |")?;
        writeln!(out, "|---|--:|--:|--:|")?;
        for writes in &self.writes {
            writeln!(
                out,
                "| {} | {} | {} | {:.0} |",
                writes.who,
                writes.messages,
                spread(writes.ms),
                writes.a_second.unwrap_or_default()
            )?;
        }
        writeln!(out, "\n### One Node that joins, until its route is there\n")?;
        writeln!(
            out,
            "| | samples | p50, ms | p99, ms | longest, ms | CPU to join and leave, ms |"
        )?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|")?;
        for one in &self.latencies {
            writeln!(
                out,
                "| {} | {} | {:.2} | {:.2} | {:.2} | {:.2} |",
                one.way, one.samples, one.p50_ms, one.p99_ms, one.most_ms, one.cpu_ms_each
            )?;
        }
        writeln!(out, "\n### Heartbeats, and nothing at all\n")?;
        writeln!(out, "| | CPU, ms | threads woken |")?;
        writeln!(out, "|---|--:|--:|")?;
        if let Some(beats) = &self.heartbeats {
            writeln!(
                out,
                "| each of {} heartbeats in {:.0} s | {:.3} | {:.2} |",
                beats.count, beats.seconds, beats.cpu_ms_each, beats.wakes_each
            )?;
        }
        if let Some(idle) = &self.idle {
            writeln!(
                out,
                "| each of {:.0} idle seconds | {:.2} | {:.1} |",
                idle.seconds, idle.cpu_ms_a_second, idle.wakes_a_second
            )?;
        }
        if let Some(peak) = self.peak_in_the_end_mib {
            writeln!(out, "\nThe most memory after all of that: {peak:.1} MiB.")?;
        }
        writeln!(out)?;
        let aims: Vec<Aim> = self.goals().into_iter().map(|goal| goal.aim).collect();
        write_aims(out, &aims)
    }

    /// What was aimed at, and what it came to.
    pub fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        let mut aim = |what: String, measured: Option<Spread>, limit: f64| {
            goals.extend(measured.map(|measured| Goal {
                aim: Aim {
                    what: format!("{what}: at most {limit}"),
                    measured,
                    is_met: measured.median <= limit,
                },
                limit,
            }));
        };
        for start in &self.starts {
            let source = start.source;
            let what = format!("{source}: ms from start to the last route");
            aim(what, start.to_last_route_ms, AIM_START_MS);
            let what = format!("{source}: peak memory, MiB");
            aim(what, start.peak_mib, AIM_PEAK_MIB);
        }
        for one in &self.latencies {
            let what = format!("a Node's route, {}: p99, ms", one.way);
            aim(what, Some(Spread::exact(one.p99_ms)), AIM_ROUTE_MS);
        }
        if let Some(beats) = &self.heartbeats {
            let what = "CPU of a heartbeat, ms".to_owned();
            aim(
                what,
                Some(Spread::exact(beats.cpu_ms_each)),
                AIM_HEARTBEAT_MS,
            );
        }
        goals
    }
}

/// An aim that is a limit.
pub struct Goal {
    /// The aim.
    pub aim: Aim,
    /// What it is to stay below.
    pub limit: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aims_are_judged_by_the_median_and_by_the_99th_of_100() {
        let samples: Vec<f64> = (1..=100).map(|ms| f64::from(ms) / 10.0).collect();
        let report = Report {
            starts: vec![Start {
                source: "file",
                to_last_route_ms: Some(Spread::exact(900.0)),
                to_ready_ms: None,
                peak_mib: Some(Spread::exact(41.0)),
                requests: 0,
            }],
            latencies: vec![Latency::of("one at a time", &samples, 200.0)],
            ..Report::default()
        };
        let met: Vec<bool> = report.goals().iter().map(|goal| goal.aim.is_met).collect();
        assert_eq!(met, [true, false, false]);
        let text = report.markdown();
        assert!(
            text.contains("| one at a time | 100 | 5.05 | 9.90 | 10.00 | 2.00 |"),
            "{text}"
        );
        assert_eq!(text.matches("**short**").count(), 2, "{text}");
    }
}
