//! `tweed-bench converge`: from what the source of Nodes says to the kernel.
//!
//! ```text
//! plan        how much is measured, and over which API server
//! fleet       Nodes as large as real ones, in both encodings of the API;
//!             contents: what makes them so large
//! wire        protobuf by hand; tls: the server's key and certificate
//! server      an API server for them; http: how it speaks
//! stage       a node of its own with a real agent, for each start
//! flanneld    flannel's agent, where it is built
//! kubernetes  the same over kube-apiserver, where it is built
//! routes      when each route came or went, by the kernel's notifications;
//!             awaited: how one thread waits for what another sees
//! process     memory, CPU and wake-ups, as the kernel counts them
//! floor       the same messages sent by hand
//! report      the results, as JSON; tables: as Markdown; plot: as SVG;
//!             aims: what they were to be
//! ```
//!
//! What always holds: the agent is the real program and is looked at from
//! outside, by the kernel's eyes; the moment of a change is taken before the
//! server sends it; tweed and its peer take turns, and come one after the other
//! where it is not time that counts (heartbeats, idle seconds).

mod aims;
mod awaited;
mod contents;
mod flanneld;
mod fleet;
mod floor;
mod http;
mod kubernetes;
mod plan;
mod plot;
mod process;
mod report;
mod routes;
mod server;
mod stage;
mod tables;
mod tls;
mod wire;

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::Context;
use tweed_lab::{Lab, Underlay};

use crate::report::{Machine, Results};
use crate::stats::Spread;
use fleet::{Encoded, FleetNode};
use floor::Floor;
use plan::{ServerKind, WAYS, Way};
use report::{Heartbeats, Idle, Latency, Report, Start, StartSamples, Writes};
use stage::{Stage, Subject, Who};
use tls::Identity;

pub use plan::Plan;

/// Before the first node's number comes again.
const MOST_STAGES: u8 = 99;
/// Longer than anything should take.
const STUCK: Duration = Duration::from_secs(60);
/// Messages for each node: a neighbour, an FDB entry, a route.
const MESSAGES: usize = 3;
/// Nodes that join one by one before it is the other agent's turn.
const TURN: usize = 25;

/// Who sends the messages where no agent does.
const BY_HAND: &str = "by hand";

impl Plan {
    /// The parts that are asked for and can be measured here.
    fn parts(&self, say: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<&'static Part>> {
        let asked = |part: &&Part| self.server.is_none_or(|server| server == part.server);
        let mut parts: Vec<&Part> = PARTS.iter().filter(asked).collect();
        match (kubernetes::check_built(), self.server) {
            (Ok(()), _) | (Err(_), Some(ServerKind::Own)) => {}
            (Err(missing), Some(ServerKind::Kubernetes)) => return Err(missing.into()),
            (Err(missing), None) => {
                say(&format!("kube-apiserver is left out: {missing}"));
                parts.retain(|part| part.server == ServerKind::Own);
            }
        }
        Ok(parts)
    }

    /// Measures, and tells of it. `say` gets lines on how far it has come; what
    /// is known so far is written to `out` after each part.
    pub fn run(&self, out: &Path, mut say: impl FnMut(&str)) -> anyhow::Result<Results> {
        let parts = self.parts(&mut say)?;
        let with_flanneld = flanneld::is_built()?;
        if !with_flanneld {
            say("flanneld is not built and left out: conformance/setup.sh bench builds it");
        }
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
            with_flanneld,
            stages: 0,
            report: Report {
                machine: Machine::look(),
                nodes: usize::from(self.nodes),
                ..Report::default()
            },
        };
        bench.report.set_sizes(&bench.fleet);
        for part in parts {
            say(part.what);
            (part.measure)(&mut bench, &mut say).with_context(|| part.what.to_owned())?;
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
    with_flanneld: bool,
    stages: u8,
    report: Report,
}

struct Part {
    what: &'static str,
    server: ServerKind,
    measure: Measure,
}

/// Measures, and tells of it.
type Measure = fn(&mut Bench<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<()>;

const PARTS: [Part; 4] = [
    Part {
        what: "the same messages by hand …",
        server: ServerKind::Own,
        measure: |bench, _| bench.floor(),
    },
    Part {
        what: "starts, over each source in turn …",
        server: ServerKind::Own,
        measure: |bench, _| bench.starts(),
    },
    Part {
        what: "Nodes that join one by one, heartbeats, and nothing at all …",
        server: ServerKind::Own,
        measure: |bench, _| bench.events(),
    },
    Part {
        what: "the same over kube-apiserver …",
        server: ServerKind::Kubernetes,
        measure: |bench, say| {
            bench.report.kubernetes = Some(kubernetes::measure(bench, say)?);
            Ok(())
        },
    },
];

impl Bench<'_> {
    fn stage(&mut self, who: Who) -> anyhow::Result<Stage> {
        self.stages = self.stages % MOST_STAGES + 1;
        Stage::new(self.underlay, self.stages, who)
    }

    fn floor(&mut self) -> anyhow::Result<()> {
        let nodes = self.nodes();
        let mut ms = Vec::new();
        for _ in 0..self.plan.starts {
            let stage = self.stage(Who::Tweed)?;
            let floor = Floor::new(stage.netns())?;
            ms.push(millis(floor.fill(&nodes)?));
            floor.end()?;
        }
        self.report.writes.push(Writes::new(
            BY_HAND,
            MESSAGES * nodes.len(),
            Spread::of(&ms),
        ));
        Ok(())
    }

    /// Each round starts each subject once; another one begins each time.
    fn starts(&mut self) -> anyhow::Result<()> {
        let subjects = Subject::all(self.with_flanneld);
        let mut samples = vec![StartSamples::default(); subjects.len()];
        for round in 0..usize::from(self.plan.starts) {
            for turn in 0..subjects.len() {
                let at = (round + turn) % subjects.len();
                if let (Some(subject), Some(samples)) = (subjects.get(at), samples.get_mut(at)) {
                    self.start(*subject, samples)
                        .with_context(|| subject.name())?;
                }
            }
        }
        // What the others are compared with: tweed as a cluster has it.
        let tweed = samples.first().cloned().unwrap_or_default();
        for (subject, samples) in subjects.into_iter().zip(&samples) {
            let start = Start::new(subject.who, subject.name(), samples, &tweed);
            self.report.starts.push(start);
            self.report.writes.push(Writes::new(
                subject.name(),
                MESSAGES * self.fleet.len(),
                Spread::of(&samples.writes),
            ));
        }
        Ok(())
    }

    fn start(&mut self, subject: Subject, samples: &mut StartSamples) -> anyhow::Result<()> {
        let mut stage = self.stage(subject.who)?;
        stage.serve(subject.source, &self.identity, &self.fleet)?;
        stage.start(self.fleet.len(), samples)
    }

    /// What happens after the start, over an API server.
    fn events(&mut self) -> anyhow::Result<()> {
        let mut stages = Vec::new();
        for subject in Subject::of_clusters(self.with_flanneld) {
            let mut stage = self.stage(subject.who)?;
            stage.serve(subject.source, &self.identity, &self.fleet)?;
            stage.start_agent()?;
            stage.wait_for_routes(self.fleet.len(), STUCK)?;
            stage.wait_ready()?;
            stages.push((subject.who, stage));
        }
        let stage = self.stage(Who::Tweed)?;
        let floor = Floor::new(stage.netns())?;
        floor.fill(&self.nodes())?;
        self.plan.settle();
        for (way, first) in WAYS
            .into_iter()
            .zip((0..).step_by(self.plan.samples.into()))
        {
            let latencies = self.joins(&stages, (&stage, &floor, first), way)?;
            self.report.latencies.extend(latencies);
        }
        floor.end()?;
        drop(stage);
        for (who, stage) in &stages {
            let beats = self.heartbeats(*who, stage)?;
            self.report.heartbeats.push(beats);
            let idle = self.idle(*who, stage)?;
            self.report.idle.push(idle);
        }
        Ok(())
    }

    /// Nodes join, each after a pause, and leave again: some of one agent, then
    /// some of the other, then some by hand, of which none leaves.
    fn joins(
        &self,
        stages: &[(Who, Stage)],
        (by_hand, floor, first): (&Stage, &Floor<'_>, u16),
        way: Way,
    ) -> anyhow::Result<Vec<Latency>> {
        let mut joined = vec![(Vec::new(), Duration::ZERO); stages.len()];
        let mut made_by_hand = Vec::new();
        let numbers: Vec<u16> = (0..self.plan.samples).collect();
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let hand = scope.spawn(move || floor.follow(told));
            for turn in numbers.chunks(TURN) {
                for ((_, stage), (samples, cpu)) in stages.iter().zip(&mut joined) {
                    let before = stage.process()?.cpu()?;
                    for number in turn {
                        samples.push(self.join(stage, way, *number)?);
                    }
                    *cpu += stage.process()?.cpu()? - before;
                }
                for number in turn {
                    let node = FleetNode::numbered(self.joining(first + number));
                    let messages = floor.messages(&node)?;
                    let destination = node.gateway()?;
                    sleep(way.pause(*number));
                    let asked = Instant::now();
                    tell.send(messages).context("the messages were refused")?;
                    let made = by_hand.routes().wait_for(destination, STUCK)?;
                    made_by_hand.push(millis(made - asked));
                }
            }
            drop(tell);
            match hand.join() {
                Ok(followed) => followed,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        let agents = stages.iter().zip(joined).map(|((who, _), (samples, cpu))| {
            Latency::of(who.name(), way.name, &samples, Some(millis(cpu)))
        });
        let floor = Latency::of(BY_HAND, way.name, &made_by_hand, None);
        Ok(agents.chain([floor]).collect())
    }

    /// One Node joins and leaves; gives the milliseconds until its route.
    fn join(&self, stage: &Stage, way: Way, number: u16) -> anyhow::Result<f64> {
        let server = stage.server()?;
        let node = FleetNode::numbered(self.joining(number));
        let destination = node.gateway()?;
        let name = node.name.clone();
        sleep(way.pause(number));
        stage.routes().forget(destination);
        let told = server.put(node);
        let made = stage.routes().wait_for(destination, STUCK)?;
        server.remove(&name);
        Ok(millis(made - told))
    }

    /// The number of a Node that joins.
    fn joining(&self, number: u16) -> u16 {
        self.plan.nodes + 1 + number
    }

    fn nodes(&self) -> Vec<FleetNode> {
        self.fleet.iter().map(|(node, _)| node.clone()).collect()
    }

    fn heartbeats(&self, who: Who, stage: &Stage) -> anyhow::Result<Heartbeats> {
        let server = stage.server()?;
        let nodes = server.nodes();
        let pause = Duration::from_secs(1) / self.plan.beats_a_second;
        let process = stage.process()?;
        let (cpu, wakes, start) = (process.cpu()?, process.wakes()?, Instant::now());
        let beats = nodes.iter().cycle().take(self.plan.heartbeats as usize);
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
            who,
            count,
            seconds: start.elapsed().as_secs_f64(),
            cpu_ms_each: millis(cpu) / f64::from(count),
            wakes_each: (process.wakes()? - wakes) as f64 / f64::from(count),
        })
    }

    fn idle(&self, who: Who, stage: &Stage) -> anyhow::Result<Idle> {
        let process = stage.process()?;
        let (cpu, wakes) = (process.cpu()?, process.wakes()?);
        sleep(Duration::from_secs(self.plan.idle));
        let seconds = self.plan.idle as f64;
        Ok(Idle {
            who,
            seconds,
            wakes_a_second: (process.wakes()? - wakes) as f64 / seconds,
            cpu_ms_a_second: millis(process.cpu()? - cpu) / seconds,
            peak_mib: process.peak_mib()?,
        })
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
