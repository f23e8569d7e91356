//! `tweed-bench converge`: from what an API server with 5,000 Nodes says to the
//! kernel: the start of an agent, one Node that joins, heartbeats, memory.
//!
//! ```text
//! fleet      Nodes as large as real ones, in both encodings of the API
//! protobuf   what stands around them in an answer
//! server     an API server for them, in this process
//! agent      an agent on a node of its own, tweed's or flannel's
//! routes     when each route was made, by the kernel's notifications
//! floor      the same messages sent by hand
//! tally      what a client asked the server for
//! growth     `tweed-bench scale`: the same by the number of Nodes
//! ```
//!
//! The agents are real programs and looked at from outside. The moment of a change
//! is taken before the server sends it.

mod agent;
mod fleet;
mod floor;
pub mod growth;
mod protobuf;
mod routes;
mod server;
mod tally;

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use tweed_lab::{Programs, Underlay};

use crate::Options;
use crate::report::{BEFORE, Report, Table, progress};
use crate::stats::{millis, percentile, turns};
use agent::{Agent, Program};
use fleet::{Encoded, FleetNode};
use floor::Floor;
use routes::RouteWatch;
use server::{Identity, Speaks};

/// Before each start, in which the kernel takes down the network namespace of the one
/// before, with all its routes; and after it, before Nodes join. Neither is part of
/// what is measured next.
const SETTLE: Duration = Duration::from_secs(2);
/// Between two measurements of one agent, in which it ends what it does besides.
const PAUSE_AFTER_START: Duration = Duration::from_secs(1);
/// Before each Node that joins, from and to, in milliseconds.
const PAUSE: (u64, u64) = (60, 120);
/// Between two heartbeats: 5,000 kubelets that report every 10 s.
const BEAT: Duration = Duration::from_millis(2);

/// One run of each round.
struct Run {
    /// Its column.
    column: usize,
    work: Work,
}

enum Work {
    /// All that is measured of an agent.
    Whole(Program),
    /// Its start alone, over a server that speaks JSON only.
    JsonStart(Program),
    /// The messages without an agent.
    ByHand,
}

struct Bench<'a> {
    underlay: &'a Underlay,
    identity: Identity,
    fleet: Vec<(FleetNode, Encoded)>,
    joins: u16,
    beats: u32,
}

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let rounds = options.rounds(6);
    let nodes: u16 = options.size(5000, 40);
    let encoded = |number| {
        let node = FleetNode::numbered(number);
        let encoded = node.encode();
        (node, encoded)
    };
    let bench = Bench {
        underlay,
        identity: Identity::new()?,
        fleet: (1..=nodes).map(encoded).collect(),
        joins: options.size(100, 3),
        beats: options.size(1000, 20),
    };
    let megabytes = |size: fn(&Encoded) -> usize| {
        let bytes: usize = bench.fleet.iter().map(|(_, node)| size(node)).sum();
        bytes as f64 / 1e6
    };
    let how = format!(
        "{rounds} rounds; in each every agent starts over {nodes} Nodes ({:.0} MB as JSON, {:.0} \
         MB as protobuf), then {} Nodes join and leave one by one, then come {} heartbeats. \
         flanneld asks for JSON.",
        megabytes(|node| node.json.len()),
        megabytes(|node| node.protobuf.len()),
        bench.joins,
        bench.beats
    );
    let mut report = Report::new("converge", out, &how);
    let (columns, runs) = runs(options)?;
    report.tables = vec![Table::new(&format!("{nodes} Nodes"), columns)];
    for round in 0..rounds {
        progress(&format!("round {} of {rounds} …", round + 1));
        for at in turns(round, runs.len()) {
            let Run { column, work } = &runs[at];
            sleep(options.size(SETTLE, Duration::ZERO));
            let mut record = |row: &str, value: f64| report.tables[0].record(row, *column, value);
            match work {
                Work::Whole(program) => bench.agent(program, &mut record),
                Work::JsonStart(program) => bench.json_start(program, &mut record),
                Work::ByHand => bench.by_hand(&mut record),
            }
            .with_context(|| format!("run {at} of round {}", round + 1))?;
        }
        report.save()?;
    }
    Ok(report)
}

/// The columns, and the runs of a round with the column of each.
fn runs(options: &Options) -> anyhow::Result<(Vec<&'static str>, Vec<Run>)> {
    let programs = Programs::find()?;
    let mut columns = vec!["tweed"];
    let mut builds = vec![Program::Tweed(programs.own("tweed-agent")?)];
    if let Some(program) = options.program_before("tweed-agent")? {
        columns.push(BEFORE);
        builds.push(Program::Tweed(program));
    }
    let mut runs = Vec::new();
    let mut push = |column, work| runs.push(Run { column, work });
    // Builds of tweed stand next to each other: what is compared is close in time.
    for work in [Work::Whole, Work::JsonStart] {
        for (column, program) in builds.iter().enumerate() {
            push(column, work(program.clone()));
        }
    }
    match programs.tool("flanneld") {
        Ok(program) => {
            push(columns.len(), Work::Whole(Program::Flanneld(program)));
            columns.push("flanneld");
        }
        Err(_) => progress("flanneld is left out: conformance/setup.sh bench builds it"),
    }
    push(columns.len(), Work::ByHand);
    columns.push("by hand");
    Ok((columns, runs))
}

/// Takes a row's name and a value.
type Record<'a> = &'a mut dyn FnMut(&str, f64);

const START: &str = "start to the last route, ms";
const JOIN_P50: &str = "one Node's route, p50, ms";
const JOIN_P99: &str = "one Node's route, p99, ms";

impl Bench<'_> {
    fn start(&self, program: &Program, speaks: Speaks) -> anyhow::Result<(Agent, f64)> {
        let speech = (&self.identity, speaks);
        let agent = Agent::start(self.underlay, program, speech, &self.fleet)?;
        let took = agent.wait_for_routes(self.fleet.len())?;
        Ok((agent, millis(took)))
    }

    fn json_start(&self, program: &Program, record: Record<'_>) -> anyhow::Result<()> {
        let (agent, took) = self.start(program, Speaks::Json)?;
        record("start to the last route, JSON, ms", took);
        record("peak memory of the start, JSON, MiB", agent.peak_mib()?);
        Ok(())
    }

    fn agent(&self, program: &Program, record: Record<'_>) -> anyhow::Result<()> {
        let (agent, took) = self.start(program, Speaks::Both)?;
        record(START, took);
        record("CPU of the start, ms", millis(agent.cpu()?));
        record("peak memory of the start, MiB", agent.peak_mib()?);
        sleep(SETTLE);
        let before = agent.cpu()?;
        let mut waits = Vec::new();
        for number in 0..self.joins {
            let node = self.joining(number);
            let (name, destination) = (node.name.clone(), node.pods);
            sleep(pause(number));
            agent.routes.forget(destination);
            let start = agent.server.put(node);
            let made = agent.routes.wait_for(destination)?;
            waits.push(millis(made - start));
            agent.server.delete(&name);
        }
        let cpu = millis(agent.cpu()? - before) / f64::from(self.joins);
        record_waits(waits, record);
        record("CPU for a Node that joins and leaves, ms", cpu);
        let before = agent.cpu()?;
        self.heartbeats(&agent);
        let cpu = millis(agent.cpu()? - before) / f64::from(self.beats);
        record("CPU of a heartbeat, ms", cpu);
        Ok(())
    }

    /// Status updates of all Nodes in turn.
    fn heartbeats(&self, agent: &Agent) {
        let start = Instant::now();
        let nodes = self.fleet.iter().cycle();
        for ((node, _), number) in nodes.zip(1..=self.beats) {
            let mut node = node.clone();
            node.beat();
            agent.server.put(node);
            sleep((start + BEAT * number).saturating_duration_since(Instant::now()));
        }
        // For the last one to be read.
        sleep(Duration::from_millis(200));
    }

    fn by_hand(&self, record: Record<'_>) -> anyhow::Result<()> {
        let node = agent::node(self.underlay)?;
        let routes = RouteWatch::start(node.netns(), floor::PROTOCOL)?;
        let mut floor = Floor::new(node.netns())?;
        let nodes: Vec<FleetNode> = self.fleet.iter().map(|(node, _)| node.clone()).collect();
        record(START, millis(floor.fill(&nodes)?));
        sleep(SETTLE);
        let mut waits = Vec::new();
        for number in 0..self.joins {
            let node = self.joining(number);
            sleep(pause(number));
            let start = floor.send_one(&node)?;
            waits.push(millis(routes.wait_for(node.pods)? - start));
        }
        record_waits(waits, record);
        Ok(())
    }

    fn joining(&self, number: u16) -> FleetNode {
        FleetNode::numbered(self.fleet.len() as u16 + 1 + number)
    }
}

fn record_waits(mut waits: Vec<f64>, record: Record<'_>) {
    waits.sort_by(f64::total_cmp);
    for (row, share) in [(JOIN_P50, 0.5), (JOIN_P99, 0.99)] {
        if let Some(value) = percentile(&waits, share) {
            record(row, value);
        }
    }
}

/// Before the Node of this number: a sequence that is the same in every run.
fn pause(number: u16) -> Duration {
    let (least, most) = PAUSE;
    let share = u64::from(number) * 7919 % 1000;
    Duration::from_micros(least * 1000 + (most - least) * share)
}
