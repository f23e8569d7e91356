//! The same over a real API server: etcd and kube-apiserver as the end-to-end
//! tests start them, with TLS and RBAC, filled with the same Nodes through its
//! API.
//!
//! ```text
//! client   HTTPS from the client's side
//! nodes    what the bench asks of the API server
//! lists    a plain client that reads the list and drops it: the bound
//! watcher  who watches beside the agent
//! samples  what the rounds came to; report: as tables
//! ```
//!
//! What always holds: one agent at a time leans on the API server, on a node of
//! its own that has a Node of its own; in each round all take turns, another one
//! first each time.

mod client;
mod lists;
mod nodes;
mod report;
mod samples;
mod watcher;

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use tweed_lab::{Netns, Node, NodeSpec};
use tweed_lab_kubernetes::{Credentials, StandaloneApiServer};

use super::fleet::FleetNode;
use super::process::Process;
use super::stage::{Stage, Who};
use super::{Bench, Plan, STUCK, millis};
use client::{Client, Way};
use lists::List;
use samples::{AgentSamples, Beats, Change, ListSamples};
use watcher::Watcher;

pub use report::Kubernetes;

/// A Node joins: until its route is there.
const COMES: &str = "a Node comes, from the request";
const COMES_FROM_EVENT: &str = "a Node comes, from the event";
/// It leaves: until its route is gone.
const GOES: &str = "a Node goes, from the request";
const GOES_FROM_EVENT: &str = "a Node goes, from the event";
/// What both begin with: until somebody else who watches is told.
const EVENT: &str = "beside it: the event, from the request";

/// What of these has an aim.
pub const JUDGED: [&str; 2] = [COMES, COMES_FROM_EVENT];

/// Whom the agents come as.
const USER: &str = "bench-agent";
/// The node from which the bench itself asks; those of agents are below.
const CLIENT: u8 = 110;
/// Before each change, from and to, in milliseconds.
const PAUSE: (u64, u64) = (20, 60);
/// Heartbeats in a second and all told, at most: each is a write of etcd's.
const BEATS_A_SECOND: u32 = 100;
const BEATS: u32 = 1000;

/// Whether there is one here to be measured over.
pub fn check_built() -> Result<(), tweed_lab::LabError> {
    StandaloneApiServer::check_built(&tweed_lab::Programs::find()?)
}

/// Measures, and tells of it.
pub fn measure(bench: &mut Bench<'_>, say: &mut dyn FnMut(&str)) -> anyhow::Result<Kubernetes> {
    let mut rig = Rig::up(bench, say)?;
    let mut lists = List::ALL.map(|list| (list, ListSamples::default()));
    let mut agents: Vec<(Who, AgentSamples)> = Who::here(bench.with_flanneld)
        .map(|who| (who, AgentSamples::default()))
        .collect();
    let rounds = usize::from(bench.plan.starts);
    let numbers: Vec<u16> = (0..bench.plan.samples).collect();
    let mut numbers = numbers.chunks(numbers.len().div_ceil(rounds));
    for round in 0..rounds {
        say(&format!("  round {} of {rounds}", round + 1));
        let numbers = numbers.next().unwrap_or_default();
        let all = lists.len() + agents.len();
        for turn in 0..all {
            let at = (round + turn) % all;
            if let Some((list, samples)) = lists.get_mut(at) {
                rig.list(*list, samples).with_context(|| list.name())?;
            } else if let Some((who, samples)) = agents.get_mut(at - lists.len()) {
                let stage = bench.stage(*who)?;
                rig.agent(bench.plan, stage, numbers, samples)
                    .with_context(|| who.name())?;
            }
        }
    }
    Ok(samples::report(rig.version()?, &agents, &lists))
}

/// An API server that has all Nodes, and the ways to it.
struct Rig {
    server: StandaloneApiServer,
    /// As its administrator.
    way: Way,
    agents: Credentials,
    /// The bench's own place on the underlay.
    node: Node,
    fleet: Vec<FleetNode>,
}

impl Rig {
    fn up(bench: &Bench<'_>, say: &mut dyn FnMut(&str)) -> anyhow::Result<Self> {
        let node = Node::new(
            bench.underlay,
            NodeSpec {
                name: "client".to_owned(),
                ..NodeSpec::numbered(CLIENT)
            },
        )?;
        let server = StandaloneApiServer::up(bench.underlay)?;
        let rig = Self {
            way: Way::new(server.address(), &server.administrator())?,
            agents: server.add_user(USER)?,
            node,
            fleet: bench.fleet.iter().map(|(node, _)| node.clone()).collect(),
            server,
        };
        rig.server.kubectl().apply(&nodes::rights(USER))?;
        nodes::create_all(&rig.way, rig.netns(), &rig.fleet, say)?;
        Ok(rig)
    }

    fn netns(&self) -> &Netns {
        self.node.netns()
    }

    fn connect(&self) -> anyhow::Result<Client> {
        self.way.connect(self.netns())
    }

    fn version(&self) -> anyhow::Result<String> {
        let version = nodes::look(&mut self.connect()?, "/version")?;
        let version = version["gitVersion"].as_str();
        Ok(version.context("the API server has no version")?.to_owned())
    }

    fn list(&self, list: List, samples: &mut ListSamples) -> anyhow::Result<()> {
        let mut client = self.connect()?;
        let (took, bytes) = list.read(&mut client)?;
        samples.ms.push(millis(took));
        samples.bytes = bytes;
        Ok(())
    }

    /// One start of an agent, some Nodes that come and go, some heartbeats.
    fn agent(
        &mut self,
        plan: &Plan,
        mut stage: Stage,
        numbers: &[u16],
        samples: &mut AgentSamples,
    ) -> anyhow::Result<()> {
        let mut client = self.connect()?;
        let own = stage.own();
        nodes::create(&mut client, &nodes::creation(&own))?;
        stage.lean_on(&self.agents.kubeconfig);
        let server = Process::of(self.server.pid()?);
        let before = server.cpu()?;
        stage.start(self.fleet.len(), &mut samples.start)?;
        samples.server_cpu.push(millis(server.cpu()? - before));

        plan.settle();
        let watcher = Watcher::start(&self.way, self.netns())?;
        let cpu = stage.process()?.cpu()?;
        for number in numbers {
            let node = FleetNode::numbered(plan.nodes + 1 + number);
            let (came, went) = come_and_go(&mut client, &watcher, &stage, &node, *number)?;
            samples.came.push(came);
            samples.went.push(went);
        }
        samples.cpu += stage.process()?.cpu()? - cpu;
        drop(watcher);

        self.beat(plan, &mut client, &stage, &mut samples.beats)?;
        drop(stage);
        nodes::delete(&mut client, &own.name)
    }

    /// Heartbeats at a fixed rate, the fleet's Nodes in turn.
    fn beat(
        &mut self,
        plan: &Plan,
        client: &mut Client,
        stage: &Stage,
        beats: &mut Beats,
    ) -> anyhow::Result<()> {
        let rounds = u32::from(plan.starts);
        let count = plan.heartbeats.min(BEATS).div_ceil(rounds);
        let pause = Duration::from_secs(1) / plan.beats_a_second.min(BEATS_A_SECOND);
        let process = stage.process()?;
        let (cpu, wakes, start) = (process.cpu()?, process.wakes()?, Instant::now());
        for number in 1..=count {
            let at = number as usize % self.fleet.len();
            self.fleet[at].beat();
            nodes::beat(client, &self.fleet[at])?;
            let due = start + pause * number;
            sleep(due.saturating_duration_since(Instant::now()));
        }
        sleep(Duration::from_millis(200));
        beats.count += count;
        beats.seconds += start.elapsed().as_secs_f64();
        beats.cpu += process.cpu()? - cpu;
        beats.wakes += process.wakes()? - wakes;
        Ok(())
    }
}

/// One Node joins, and leaves again.
fn come_and_go(
    client: &mut Client,
    watcher: &Watcher,
    stage: &Stage,
    node: &FleetNode,
    number: u16,
) -> anyhow::Result<(Change, Change)> {
    let destination = node.gateway()?;
    let creation = nodes::creation(node);
    // A sequence that is the same in every run.
    let (least, most) = PAUSE;
    let share = u64::from(number) * 7919 % 1000;
    let pause = Duration::from_micros(least * 1000 + (most - least) * share);

    sleep(pause);
    stage.routes().forget(destination);
    let asked = Instant::now();
    nodes::create(client, &creation)?;
    let event = watcher.wait_for(watcher::Change::Comes, &node.name, STUCK)?;
    let route = stage.routes().wait_for(destination, STUCK)?;
    let came = Change::new(asked, event, route);

    sleep(pause);
    let asked = Instant::now();
    nodes::delete(client, &node.name)?;
    let event = watcher.wait_for(watcher::Change::Goes, &node.name, STUCK)?;
    let route = stage.routes().wait_until_gone(destination, STUCK)?;
    Ok((came, Change::new(asked, event, route)))
}
