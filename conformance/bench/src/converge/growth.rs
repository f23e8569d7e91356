//! `tweed-bench scale`: how an agent's work grows with the cluster, from 10 Nodes to
//! 15,000, and what it asks its API server for.
//!
//! For each size: the start, one Node, a third of all Nodes that leave at once, and the
//! same ones that join again at once. The same messages by hand show what of it is the
//! kernel's.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context;
use tweed_lab::{Programs, Underlay};

use super::agent::{self, Agent, Program};
use super::fleet::{Encoded, FleetNode};
use super::floor::Floor;
use super::server::{Identity, Speaks};
use super::tally::{Asked, Count};
use super::{PAUSE_AFTER_START, SETTLE, pause};
use crate::Options;
use crate::report::{Report, Table, progress};
use crate::stats::{millis, percentile, turns};

/// Numbers of Nodes.
const SIZES: [u16; 5] = [10, 100, 1000, 5000, 15_000];
/// For a look at whether all works.
const FEW: [u16; 5] = [3, 6, 9, 12, 15];
/// A kubelet whose Node does not change reports it again after so long
/// (`nodeStatusReportFrequency`); in between it only renews its Lease.
const REPORTS_EVERY: Duration = Duration::from_secs(300);

/// An agent that is ready says so in its Node's status after five seconds.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);

/// What is measured of one size, without the column of the table.
struct Size<'a> {
    underlay: &'a Underlay,
    identity: &'a Identity,
    program: &'a Program,
    fleet: &'a [(FleetNode, Encoded)],
    joins: u16,
    /// After this time what the start asks for is counted.
    reported: Duration,
    /// For how long heartbeats are counted.
    minute: Duration,
}

type Record<'a> = &'a mut dyn FnMut(&str, f64);

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let rounds = options.rounds(3);
    let sizes = options.size(SIZES, FEW);
    let identity = Identity::new()?;
    let program = Program::Tweed(Programs::find()?.own("tweed-agent")?);
    let most = sizes.iter().max().copied().unwrap_or_default();
    let fleet: Vec<_> = (1..=most).map(protobuf_only).collect();
    let how = format!(
        "{rounds} rounds. For each number of Nodes: the start of an agent, {} Nodes that join and \
         leave one by one, a third of all Nodes that leave at once, and the same that join at \
         once; then the same messages by hand.",
        options.size(20, 2),
    );
    let mut report = Report::new("scale", out, &how);
    let columns = || sizes.map(|size| size.to_string());
    report.tables = vec![
        Table::new("By the number of Nodes", columns()),
        Table::new("What one agent asks its API server for", columns()),
    ];
    for round in 0..rounds {
        for at in turns(round, sizes.len()) {
            let size = usize::from(sizes[at]);
            progress(&format!("round {} of {rounds}: {size} Nodes …", round + 1));
            let one = Size {
                underlay,
                identity: &identity,
                program: &program,
                fleet: &fleet[..size],
                joins: options.size(20, 2),
                reported: options.size(REPORTED_WITHIN, PAUSE_AFTER_START),
                minute: Duration::from_secs(options.size(60, 1)),
            };
            let [work, asked] = &mut report.tables[..] else {
                anyhow::bail!("the report has two tables");
            };
            sleep(options.size(SETTLE, Duration::ZERO));
            one.agent(
                &mut |row, value| work.record(row, at, value),
                // The same in every round.
                (round == 0).then_some(&mut |row: &str, value| asked.record(row, at, value)),
            )
            .and_then(|()| one.by_hand(&mut |row, value| work.record(row, at, value)))
            .with_context(|| format!("{size} Nodes in round {}", round + 1))?;
        }
        report.save()?;
    }
    Ok(report)
}

/// A Node for a server that is asked for protobuf only: 15,000 take half the memory.
fn protobuf_only(number: u16) -> (FleetNode, Encoded) {
    let node = FleetNode::numbered(number);
    let encoded = Encoded {
        json: bytes::Bytes::new(),
        ..node.encode()
    };
    (node, encoded)
}

impl Size<'_> {
    fn agent(&self, record: Record<'_>, asked: Option<Record<'_>>) -> anyhow::Result<()> {
        let speech = (self.identity, Speaks::Both);
        let agent = Agent::start(self.underlay, self.program, speech, self.fleet)?;
        let took = agent.wait_for_routes(self.fleet.len())?;
        record("start to the last route, ms", millis(took));
        record("CPU of the start, ms", millis(agent.cpu()?));
        record("peak memory of the start, MiB", agent.peak_mib()?);
        sleep(PAUSE_AFTER_START);
        if let Some(record) = asked {
            sleep(self.reported);
            self.count_requests(&agent, record);
        }
        self.single_joins(&agent, record)?;
        self.many_at_once(&agent, record)?;
        record("peak memory at the end, MiB", agent.peak_mib()?);
        Ok(())
    }

    fn single_joins(&self, agent: &Agent, record: Record<'_>) -> anyhow::Result<()> {
        let before = agent.cpu()?;
        let mut waits = Vec::new();
        for number in 0..self.joins {
            let node = FleetNode::numbered(self.fleet.len() as u16 + 1 + number);
            let (name, destination) = (node.name.clone(), node.pods);
            sleep(pause(number));
            agent.routes.forget(destination);
            let start = agent.server.put(node);
            waits.push(millis(agent.routes.wait_for(destination)? - start));
            agent.server.delete(&name);
            agent.routes.wait_for_removed(&[destination])?;
        }
        let cpu = millis(agent.cpu()? - before) / f64::from(self.joins);
        waits.sort_by(f64::total_cmp);
        if let Some(median) = percentile(&waits, 0.5) {
            record("one Node's route, p50, ms", median);
        }
        record("CPU for a Node that joins and leaves, ms", cpu);
        Ok(())
    }

    /// A third of all Nodes that leave, and join again.
    fn many_at_once(&self, agent: &Agent, record: Record<'_>) -> anyhow::Result<()> {
        let third = self.third();
        let destinations: Vec<_> = third.iter().map(|(node, _)| node.pods).collect();
        let before = agent.cpu()?;
        let names = third.iter().map(|(node, _)| node.name.as_str());
        let start = agent.server.delete_all(names);
        let gone = agent.routes.wait_for_removed(&destinations)?;
        record("a third leaves at once, ms", millis(gone - start));
        record("CPU of that, ms", millis(agent.cpu()? - before));
        sleep(PAUSE_AFTER_START);
        let before = agent.cpu()?;
        let start = agent.server.add_all(third);
        let made = agent.routes.wait_for_all(self.fleet.len())?;
        record("a third joins at once, ms", millis(made - start));
        record("CPU of these, ms", millis(agent.cpu()? - before));
        Ok(())
    }

    fn third(&self) -> &[(FleetNode, Encoded)] {
        &self.fleet[..self.fleet.len() / 3]
    }

    /// What the start asked for, and what a minute of heartbeats brings.
    fn count_requests(&self, agent: &Agent, record: Record<'_>) {
        let start = agent.server.tally();
        let mut bytes = 0;
        for (asked, words) in Asked::ALL {
            let Count { number, bytes: of } = start.of(asked);
            record(&format!("start: {words}"), number as f64);
            bytes += of;
        }
        record("start: bytes of all answers, MB", bytes as f64 / 1e6);
        let reports = self.minute.as_secs_f64() / REPORTS_EVERY.as_secs_f64();
        let reports = (self.fleet.len() as f64 * reports).ceil();
        let pause = self.minute.div_f64(reports);
        for (node, _) in self.fleet.iter().cycle().take(reports as usize) {
            let mut node = node.clone();
            node.beat();
            agent.server.put(node);
            sleep(pause);
        }
        let minute = agent.server.tally().since(&start);
        let requests: u64 = Asked::ALL
            .iter()
            .map(|(asked, _)| minute.of(*asked).number)
            .sum();
        record("a minute: requests", requests as f64);
        record(
            "a minute: events of the watch",
            minute.events().number as f64,
        );
        record(
            "a minute: bytes of these, MB",
            minute.events().bytes as f64 / 1e6,
        );
    }

    fn by_hand(&self, record: Record<'_>) -> anyhow::Result<()> {
        let node = agent::node(self.underlay)?;
        let mut floor = Floor::new(node.netns())?;
        let nodes = |of: &[(FleetNode, Encoded)]| -> Vec<FleetNode> {
            of.iter().map(|(node, _)| node.clone()).collect()
        };
        let third = nodes(self.third());
        let mut hand =
            |row: &str, took: Duration| record(&format!("by hand: {row}, ms"), millis(took));
        hand("all", floor.fill(&nodes(self.fleet))?);
        hand("a third leaves", floor.clear(&third)?);
        hand("a third joins", floor.fill(&third)?);
        Ok(())
    }
}
