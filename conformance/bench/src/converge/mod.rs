//! `tweed-bench converge`: from what an API server with 5,000 Nodes, or as many as
//! `--nodes` says, has to the kernel: the start of an agent, one Node that joins,
//! heartbeats, memory.
//!
//! ```text
//! fleet      Nodes as large as real ones
//! agent      an agent on a node of its own, tweed's or flannel's
//! routes     when each route was made, by the kernel's notifications
//! ```
//!
//! The agents are real programs and looked at from outside. The moment of a change
//! is taken before the server sends it.

mod agent;
mod fleet;
mod routes;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use tweed_lab::{Programs, Underlay};

use crate::Options;
use crate::report::{BEFORE, Column, Report, progress};
use crate::stats::{millis, turns};
use agent::{Agent, Program};
use fleet::FleetNode;
use tweed_lab_api::{Identity, NODES, Object, Serves};

/// Before each start, in which the kernel takes down the network namespace of the one
/// before, with all its routes; and after it, in which the agent ends what it does besides.
/// Neither is part of what is measured next.
const SETTLE: Duration = Duration::from_secs(2);
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
}

struct Bench<'a> {
    underlay: &'a Underlay,
    identity: &'a Identity,
    /// Nodes 1 and upwards, ready to be sent.
    fleet: &'a [Arc<Object>],
    joins: u16,
    beats: u32,
}

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let rounds = options.rounds(6);
    let sizes = options.size(options.nodes.clone(), vec![40, 1000]);
    let most = sizes.iter().copied().max().unwrap_or_default();
    let encoded = |number| FleetNode::numbered(number).encoded();
    let fleet: Vec<_> = (1..=most).map(encoded).collect();
    let identity = Identity::new()?;
    let bench = |nodes: u16| Bench {
        underlay,
        identity: &identity,
        fleet: &fleet[..usize::from(nodes)],
        joins: options.size(100, 3),
        beats: options.size(1000, 20),
    };
    let how = format!(
        "{rounds} rounds; in each every agent starts over so many Nodes (17 KB each as JSON, 13 KB \
         as protobuf), then {} Nodes join and leave one by one, then come {} heartbeats. flanneld \
         asks for JSON.",
        bench(most).joins,
        bench(most).beats
    );
    let (columns, runs) = runs(options)?;
    let title = |nodes| format!("{nodes} Nodes");
    let report = Report::new("converge", out, &how);
    report.of_sizes(rounds, &columns, &sizes, title, |round, nodes, table| {
        for at in turns(round, runs.len()) {
            let Run { column, work } = &runs[at];
            sleep(options.size(SETTLE, Duration::ZERO));
            let column = &mut table.column(*column);
            match work {
                Work::Whole(program) => bench(nodes).agent(program, column),
                Work::JsonStart(program) => bench(nodes).json_start(program, column),
            }
            .with_context(|| format!("run {at}"))?;
        }
        Ok(())
    })
}

/// The columns, and the runs of a round with the column of each.
fn runs(options: &Options) -> anyhow::Result<(Vec<String>, Vec<Run>)> {
    let programs = Programs::find()?;
    let mut columns = vec!["tweed".to_owned()];
    let mut builds = vec![Program::Tweed(programs.own("tweed-agent")?)];
    if let Some(program) = options.program_before("tweed-agent")? {
        columns.push(BEFORE.to_owned());
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
            columns.push("flanneld".to_owned());
        }
        Err(_) => progress("flanneld is left out: conformance/setup.sh bench builds it"),
    }
    Ok((columns, runs))
}

impl Bench<'_> {
    fn start(&self, program: &Program, serves: Serves) -> anyhow::Result<(Agent, f64)> {
        let api = (self.identity, serves);
        let mut agent = Agent::start(self.underlay, program, api, self.fleet)?;
        let took = agent.wait_for_routes(self.fleet.len())?;
        Ok((agent, millis(took)))
    }

    fn json_start(&self, program: &Program, column: &mut Column<'_>) -> anyhow::Result<()> {
        let (agent, took) = self.start(program, Serves::NodesAsJson)?;
        column.record("start to the last route, JSON, ms", took);
        column.record("peak memory of the start, JSON, MiB", agent.peak_mib()?);
        Ok(())
    }

    fn agent(&self, program: &Program, column: &mut Column<'_>) -> anyhow::Result<()> {
        let (mut agent, took) = self.start(program, Serves::Nodes)?;
        column.record("start to the last route, ms", took);
        column.record("CPU of the start, ms", millis(agent.cpu()?));
        column.record("peak memory of the start, MiB", agent.peak_mib()?);
        sleep(SETTLE);
        let before = agent.cpu()?;
        let mut waits = Vec::new();
        for number in 0..self.joins {
            let node = self.joining(number);
            sleep(pause(number));
            let start = agent.server.put(NODES, [node.object()]);
            let made = agent.routes.wait_for(node.pods, start)?;
            waits.push(millis(made - start));
            agent.server.delete(NODES, "", &node.name);
        }
        let cpu = millis(agent.cpu()? - before) / f64::from(self.joins);
        column.record_times("one Node's route", &waits);
        column.record("CPU for a Node that joins and leaves, ms", cpu);
        let before = agent.cpu()?;
        self.heartbeats(&agent);
        let cpu = millis(agent.cpu()? - before) / f64::from(self.beats);
        column.record("CPU of a heartbeat, ms", cpu);
        agent.restart()?;
        sleep(SETTLE);
        column.record("peak memory of a restart, MiB", agent.peak_mib()?);
        Ok(())
    }

    /// Status updates of all Nodes in turn.
    fn heartbeats(&self, agent: &Agent) {
        let start = Instant::now();
        let numbers = (1..=self.fleet.len() as u16).cycle();
        for (node, number) in numbers.map(FleetNode::numbered).zip(1..=self.beats) {
            agent.server.put(NODES, [node.beating().object()]);
            sleep((start + BEAT * number).saturating_duration_since(Instant::now()));
        }
        // For the last one to be read.
        sleep(Duration::from_millis(200));
    }

    fn joining(&self, number: u16) -> FleetNode {
        FleetNode::numbered(self.fleet.len() as u16 + 1 + number)
    }
}

/// Before the Node of this number: a sequence that is the same in every run.
fn pause(number: u16) -> Duration {
    let (least, most) = PAUSE;
    let share = u64::from(number) * 7919 % 1000;
    Duration::from_micros(least * 1000 + (most - least) * share)
}
