//! `tweed-bench converge`: from what the source of Nodes says to the kernel.
//!
//! ```text
//! fleet     Nodes as large as real ones, in both encodings of the API;
//!           contents: what makes them so large
//! wire      protobuf by hand; tls: the server's key and certificate
//! server    an API server for them
//! stage     a node of its own with the real agent, for each start
//! routes    when each route came, by the kernel's notifications
//! process   memory, CPU and wake-ups, as the kernel counts them
//! floor     the same messages sent by hand
//! report    the results as JSON and Markdown; plot: as SVG
//! ```
//!
//! What always holds: the agent is the real program and is looked at from
//! outside, by the kernel's eyes; the moment of a change is taken before the
//! server sends it.

mod contents;
mod fleet;
mod floor;
mod plot;
mod process;
mod report;
mod routes;
mod server;
mod stage;
mod tls;
mod wire;

use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use tweed_lab::{Lab, Underlay};

use crate::report::{Machine, Results};
use crate::stats::Spread;
use fleet::{Encoded, FleetNode};
use report::{Heartbeats, Idle, Latency, Report, Start, Writes};
use server::Speaks;
use stage::{Source, Stage};
use tls::Identity;

/// How much is measured.
#[derive(Debug, Args)]
pub struct Plan {
    /// Nodes of the cluster, the own one not counted.
    #[arg(long, value_name = "N", default_value_t = Self::default().nodes)]
    nodes: u16,
    /// Starts of the agent over each source.
    #[arg(long, value_name = "N", default_value_t = Self::default().starts)]
    starts: usize,
    /// Nodes that join one by one, in each of two ways.
    #[arg(long, value_name = "N", default_value_t = Self::default().samples)]
    samples: u16,
    /// Heartbeats, all told.
    #[arg(long, value_name = "N", default_value_t = Self::default().heartbeats)]
    heartbeats: usize,
    /// Heartbeats in a second, of all Nodes together.
    #[arg(long, value_name = "N", default_value_t = Self::default().beats_a_second)]
    beats_a_second: u32,
    /// Seconds without any event.
    #[arg(long, value_name = "S", default_value_t = Self::default().idle)]
    idle: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 5000,
            starts: 5,
            samples: 250,
            heartbeats: 5000,
            beats_a_second: 500,
            idle: 30,
        }
    }
}

/// Longer than anything should take.
const STUCK: Duration = Duration::from_secs(60);
/// Messages for each node: a neighbour, an FDB entry, a route.
const MESSAGES: usize = 3;

/// How Nodes join one by one: the pause before each, from and to, in
/// milliseconds.
const WAYS: [(&str, u64, u64); 2] = [("one at a time", 60, 120), ("close together", 5, 20)];

impl Plan {
    /// A few Nodes and a few samples: to see that it works.
    pub fn smoke() -> Self {
        Self {
            nodes: 40,
            starts: 1,
            samples: 3,
            heartbeats: 20,
            beats_a_second: 200,
            idle: 1,
        }
    }

    /// Measures, and tells of it. `say` gets lines on how far it has come; what
    /// is known so far is written to `out` after each part.
    pub fn run(&self, out: &Path, mut say: impl FnMut(&str)) -> anyhow::Result<Results> {
        let lab = Lab::new()?;
        let underlay = Underlay::new(&lab)?;
        let mut bench = Bench {
            plan: self,
            underlay: &underlay,
            identity: Identity::new()?,
            fleet: (1..=self.nodes)
                .map(|number| {
                    let node = FleetNode::numbered(number);
                    let encoded = Arc::new(node.encode());
                    (node, encoded)
                })
                .collect(),
            stages: 0,
            report: Report {
                machine: Machine::look(),
                nodes: usize::from(self.nodes),
                ..Report::default()
            },
        };
        bench.report.set_sizes(&bench.fleet);
        for part in PARTS {
            say(part.what);
            (part.measure)(&mut bench).with_context(|| part.what.to_owned())?;
            bench.report.results()?.write(out)?;
        }
        bench.report.results()
    }
}

struct Bench<'a> {
    plan: &'a Plan,
    underlay: &'a Underlay,
    identity: Identity,
    fleet: Vec<(FleetNode, Arc<Encoded>)>,
    stages: u8,
    report: Report,
}

struct Part {
    what: &'static str,
    measure: fn(&mut Bench<'_>) -> anyhow::Result<()>,
}

const PARTS: [Part; 5] = [
    Part {
        what: "the same messages by hand …",
        measure: |bench| bench.floor(),
    },
    Part {
        what: "starts over an API server that speaks protobuf …",
        measure: |bench| bench.starts(Source::Api(Speaks::Both)),
    },
    Part {
        what: "starts over an API server that speaks JSON only …",
        measure: |bench| bench.starts(Source::Api(Speaks::Json)),
    },
    Part {
        what: "starts over a file …",
        measure: |bench| bench.starts(Source::File),
    },
    Part {
        what: "Nodes that join one by one, heartbeats, and nothing at all …",
        measure: |bench| bench.events(),
    },
];

impl Bench<'_> {
    fn stage(&mut self) -> anyhow::Result<Stage> {
        self.stages = self.stages.wrapping_add(1) % 100;
        Stage::new(self.underlay, self.stages)
    }

    fn floor(&mut self) -> anyhow::Result<()> {
        let nodes: Vec<FleetNode> = self.fleet.iter().map(|(node, _)| node.clone()).collect();
        let mut ms = Vec::new();
        for _ in 0..self.plan.starts {
            let stage = self.stage()?;
            ms.push(millis(floor::time(stage.netns(), &nodes)?));
        }
        self.report.writes.push(Writes::new(
            "by hand",
            MESSAGES * nodes.len(),
            Spread::of(&ms),
        ));
        Ok(())
    }

    fn starts(&mut self, source: Source) -> anyhow::Result<()> {
        let (mut route, mut ready, mut peak, mut writes) = (vec![], vec![], vec![], vec![]);
        let mut requests = 0;
        for _ in 0..self.plan.starts {
            let mut stage = self.stage()?;
            stage.serve(source, &self.identity, &self.fleet)?;
            let start = Instant::now();
            stage.start_agent()?;
            let last = stage.routes().wait_for_all(self.fleet.len(), STUCK)?;
            stage.agent()?.wait_ready()?;
            ready.push(millis(start.elapsed()));
            route.push(millis(last - start));
            peak.push(stage.process()?.peak_mib()?);
            writes.extend(stage.routes().span().map(millis));
            requests = stage.requests();
        }
        self.report.starts.push(Start {
            source: source.name(),
            to_last_route_ms: Spread::of(&route),
            to_ready_ms: Spread::of(&ready),
            peak_mib: Spread::of(&peak),
            requests,
        });
        self.report.writes.push(Writes::new(
            source.name(),
            MESSAGES * self.fleet.len(),
            Spread::of(&writes),
        ));
        Ok(())
    }

    /// What happens after the start, over an API server that speaks protobuf.
    fn events(&mut self) -> anyhow::Result<()> {
        let mut stage = self.stage()?;
        stage.serve(Source::Api(Speaks::Both), &self.identity, &self.fleet)?;
        stage.start_agent()?;
        stage.routes().wait_for_all(self.fleet.len(), STUCK)?;
        stage.agent()?.wait_ready()?;
        // The passes that follow a start are none of what is measured next.
        sleep(Duration::from_secs(2).min(Duration::from_secs(self.plan.idle)));
        for way in WAYS {
            let latency = self.joins(&stage, way)?;
            self.report.latencies.push(latency);
        }
        self.report.heartbeats = Some(self.heartbeats(&stage)?);
        self.report.idle = Some(self.idle(&stage)?);
        self.report.peak_in_the_end_mib = Some(stage.process()?.peak_mib()?);
        Ok(())
    }

    /// Nodes join, each after a pause, and leave again.
    fn joins(
        &self,
        stage: &Stage,
        (way, least, most): (&'static str, u64, u64),
    ) -> anyhow::Result<Latency> {
        let server = stage.server()?;
        let before = stage.process()?.cpu()?;
        let mut samples = Vec::new();
        for number in 0..self.plan.samples {
            let node = FleetNode::numbered(self.plan.nodes + 1 + number);
            let destination = node.gateway()?;
            let name = node.name.clone();
            // A sequence that is the same in every run.
            let share = u64::from(number) * 7919 % 1000;
            sleep(Duration::from_micros(least * 1000 + (most - least) * share));
            stage.routes().forget(destination);
            let told = server.put(node);
            let made = stage.routes().wait_for(destination, STUCK)?;
            samples.push(millis(made - told));
            server.remove(&name);
        }
        let cpu = stage.process()?.cpu()? - before;
        Ok(Latency::of(way, &samples, millis(cpu)))
    }

    fn heartbeats(&self, stage: &Stage) -> anyhow::Result<Heartbeats> {
        let server = stage.server()?;
        let nodes = server.nodes();
        let pause = Duration::from_secs(1) / self.plan.beats_a_second;
        let process = stage.process()?;
        let (cpu, wakes, start) = (process.cpu()?, process.wakes()?, Instant::now());
        let beats = nodes.iter().cycle().take(self.plan.heartbeats);
        for (node, number) in beats.zip(1..) {
            let mut node = node.clone();
            node.beat();
            server.put(node);
            let due = start + pause * number;
            sleep(due.saturating_duration_since(Instant::now()));
        }
        sleep(Duration::from_millis(200));
        let cpu = process.cpu()? - cpu;
        let count = self.plan.heartbeats;
        Ok(Heartbeats {
            count,
            seconds: start.elapsed().as_secs_f64(),
            cpu_ms_each: millis(cpu) / count as f64,
            wakes_each: (process.wakes()? - wakes) as f64 / count as f64,
        })
    }

    fn idle(&self, stage: &Stage) -> anyhow::Result<Idle> {
        let process = stage.process()?;
        let (cpu, wakes) = (process.cpu()?, process.wakes()?);
        sleep(Duration::from_secs(self.plan.idle));
        let seconds = self.plan.idle as f64;
        Ok(Idle {
            seconds,
            wakes_a_second: (process.wakes()? - wakes) as f64 / seconds,
            cpu_ms_a_second: millis(process.cpu()? - cpu) / seconds,
        })
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
