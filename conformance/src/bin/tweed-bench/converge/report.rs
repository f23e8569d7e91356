//! The results, and how they are told.

use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;

use super::fleet::{Encoded, FleetNode};
use super::plot;
use super::stage::{Subject, Who};
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
    pub heartbeats: Vec<Heartbeats>,
    /// Without any event, after all of that.
    pub idle: Vec<Idle>,
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
    /// The same, divided by tweed's over an API server that speaks protobuf.
    pub route_times_tweed: Option<Spread>,
    /// Until the agent was ready, as it says itself.
    pub to_ready_ms: Option<Spread>,
    /// The most memory up to then.
    pub peak_mib: Option<Spread>,
    /// The same, divided by tweed's.
    pub peak_times_tweed: Option<Spread>,
    /// Requests to the API server up to then.
    pub requests: u64,
}

impl Start {
    /// Of these samples; ratios are to those of `tweed`, round by round.
    pub fn new(subject: Subject, samples: &StartSamples, tweed: &StartSamples) -> Self {
        Self {
            who: subject.who,
            source: subject.name(),
            to_last_route_ms: Spread::of(&samples.route),
            route_times_tweed: Spread::of_ratios(&samples.route, &tweed.route),
            to_ready_ms: Spread::of(&samples.ready),
            peak_mib: Spread::of(&samples.peak),
            peak_times_tweed: Spread::of_ratios(&samples.peak, &tweed.peak),
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
    /// Whose agent.
    pub who: Who,
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
    pub fn of(who: Who, way: &'static str, samples: &[f64], cpu_ms: f64) -> Self {
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
            cpu_ms_each: cpu_ms / samples.len() as f64,
        }
    }
}

/// Heartbeats of all Nodes.
#[derive(Debug, Serialize)]
pub struct Heartbeats {
    /// Whose agent.
    pub who: Who,
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
            "| source | last route, ms | × tweed | ready, ms | peak memory, MiB | × tweed | requests |"
        )?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|--:|")?;
        for start in &self.starts {
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} |",
                start.source,
                spread(start.to_last_route_ms),
                spread(start.route_times_tweed),
                spread(start.to_ready_ms),
                spread(start.peak_mib),
                spread(start.peak_times_tweed),
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
            "| | samples | p50, ms | × tweed | p99, ms | × tweed | longest, ms | CPU to join and leave, ms | × tweed |"
        )?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|")?;
        for one in &self.latencies {
            let tweed = self.latencies.iter().find(|tweed| tweed.way == one.way);
            let times = |of: fn(&Latency) -> f64| times(of(one), tweed.map(of));
            writeln!(
                out,
                "| {}, {} | {} | {:.2} | {} | {:.2} | {} | {:.2} | {:.2} | {} |",
                one.who.name(),
                one.way,
                one.samples,
                one.p50_ms,
                times(|one| one.p50_ms),
                one.p99_ms,
                times(|one| one.p99_ms),
                one.most_ms,
                one.cpu_ms_each,
                times(|one| one.cpu_ms_each),
            )?;
        }
        writeln!(out, "\n### Heartbeats, and nothing at all\n")?;
        writeln!(out, "| | CPU, ms | × tweed | threads woken |")?;
        writeln!(out, "|---|--:|--:|--:|")?;
        for beats in &self.heartbeats {
            let tweed = self.heartbeats.first().map(|tweed| tweed.cpu_ms_each);
            writeln!(
                out,
                "| {}, each of {} heartbeats in {:.0} s | {:.3} | {} | {:.2} |",
                beats.who.name(),
                beats.count,
                beats.seconds,
                beats.cpu_ms_each,
                times(beats.cpu_ms_each, tweed),
                beats.wakes_each
            )?;
        }
        for idle in &self.idle {
            let tweed = self.idle.first().map(|tweed| tweed.cpu_ms_a_second);
            writeln!(
                out,
                "| {}, each of {:.0} idle seconds | {:.2} | {} | {:.1} |",
                idle.who.name(),
                idle.seconds,
                idle.cpu_ms_a_second,
                times(idle.cpu_ms_a_second, tweed),
                idle.wakes_a_second
            )?;
        }
        for Idle { who, peak_mib, .. } in &self.idle {
            let who = who.name();
            writeln!(
                out,
                "\nThe most memory of {who} after all of that: {peak_mib:.1} MiB."
            )?;
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
        let ours = |who: &Who| *who == Who::Tweed;
        for start in self.starts.iter().filter(|start| ours(&start.who)) {
            let source = start.source;
            let what = format!("{source}: ms from start to the last route");
            aim(what, start.to_last_route_ms, AIM_START_MS);
            let what = format!("{source}: peak memory, MiB");
            aim(what, start.peak_mib, AIM_PEAK_MIB);
        }
        for one in self.latencies.iter().filter(|one| ours(&one.who)) {
            let what = format!("a Node's route, {}: p99, ms", one.way);
            aim(what, Some(Spread::exact(one.p99_ms)), AIM_ROUTE_MS);
        }
        for beats in self.heartbeats.iter().filter(|beats| ours(&beats.who)) {
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

/// How many times tweed's, as a table's cell has it.
fn times(number: f64, tweed: Option<f64>) -> String {
    tweed.map_or_else(|| "–".to_owned(), |tweed| format!("{:.2}", number / tweed))
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
    use super::super::stage::Source;
    use super::*;

    #[test]
    fn aims_are_of_tweed_alone_and_judged_by_the_median_and_the_99th_of_100() {
        let samples: Vec<f64> = (1..=100).map(|ms| f64::from(ms) / 10.0).collect();
        let slower: Vec<f64> = samples.iter().map(|ms| ms * 2.0).collect();
        let tweed = StartSamples {
            route: vec![900.0],
            peak: vec![41.0],
            ..StartSamples::default()
        };
        let start = |who, route, peak| {
            let subject = Subject {
                who,
                source: Source::File,
            };
            let samples = StartSamples {
                route: vec![route],
                peak: vec![peak],
                ..StartSamples::default()
            };
            Start::new(subject, &samples, &tweed)
        };
        let report = Report {
            starts: vec![
                start(Who::Tweed, 900.0, 41.0),
                start(Who::Flanneld, 2700.0, 410.0),
            ],
            latencies: vec![
                Latency::of(Who::Tweed, "one at a time", &samples, 200.0),
                Latency::of(Who::Flanneld, "one at a time", &slower, 600.0),
            ],
            ..Report::default()
        };
        let met: Vec<bool> = report.goals().iter().map(|goal| goal.aim.is_met).collect();
        assert_eq!(met, [true, false, false]);
        let text = report.markdown();
        for row in [
            "| tweed, one at a time | 100 | 5.05 | 1.00 | 9.90 | 1.00 | 10.00 | 2.00 | 1.00 |",
            "| flanneld, one at a time | 100 | 10.10 | 2.00 | 19.80 | 2.00 | 20.00 | 6.00 | 3.00 |",
            "| 2700.00 (2700.00–2700.00) | 3.00 (3.00–3.00) | – |",
        ] {
            assert!(text.contains(row), "no {row} in {text}");
        }
        assert_eq!(text.matches("**short**").count(), 2, "{text}");
    }
}
