//! `tweed-bench policies`: policies from an API server to the kernel and what they cost,
//! by the number of policies and of pods in the cluster.
//!
//! ```text
//! objects    pods and policies as the API has them
//! host       a node with its agent and pods
//! subject    who does the work of a node: tweed, a program of others, nobody
//! probe      packets: when a verdict changes, and what one costs
//! costs      what rules in force cost: packets, and ADD
//! ```
//!
//! All subjects take turns within a round, one of them a node without any policy: the
//! floor of what is measured of packets and of ADD. All verdicts are seen by packets.

pub mod costs;
pub mod host;
pub mod objects;
pub mod probe;
pub mod subject;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use tweed_lab::{Programs, Underlay};

use crate::report::{Column, Report, Table};
use crate::stats::millis;
use crate::{Options, cost};
use objects::{NAMESPACE, PODS, POLICIES};
use probe::Probe;
use subject::{Contender, Subject, Who};
use tweed_lab_api::NODES;

/// Numbers of policies, and of pods of other nodes.
const SIZES: [(u32, u32); 3] = [(10, 100), (100, 1000), (1000, 10_000)];
/// For a look at whether all works.
const FEW: [(u32, u32); 3] = [(2, 5), (4, 10), (6, 20)];

/// kube-router as a policy engine only. What it does by the clock is none of what is measured.
const KUBE_ROUTER: [&str; 6] = [
    "--run-firewall=true",
    "--run-router=false",
    "--run-service-proxy=false",
    "--run-loadbalancer=false",
    "--enable-cni=false",
    "--iptables-sync-period=1h",
];
/// Each of its changes takes up to many seconds: no more of a kind than these, and none
/// begins after so long.
const MOST_CHANGES_OF_KUBE_ROUTER: u32 = 5;
const LONGEST_OF_KUBE_ROUTER: Duration = Duration::from_secs(60);

/// The port that a policy lets the peer in on, from the start.
const OPEN: u16 = 7001;
/// The port of the policy that comes and goes.
const COMING: u16 = 7002;
/// The port at which costs are measured, open to the same peer.
const COST: u16 = 7003;

/// After a change, before the next one.
pub const PAUSE: Duration = Duration::from_millis(100);

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let rounds = options.rounds(3);
    let sizes = options.size(SIZES, FEW);
    let (locals, changes) = options.size((50, 50), (2, 2));
    let subjects = subjects()?;
    let how = format!(
        "{rounds} rounds. {locals} pods on the node, each the subject of its share of the \
         policies, each with three rules for workloads of the other nodes' pods; {changes} \
         changes of each kind, of kube-router {} at most, and as many as begin within {} s. \
         kube-router is there if `conformance/setup.sh bench` has built it.",
        changes.min(MOST_CHANGES_OF_KUBE_ROUTER),
        LONGEST_OF_KUBE_ROUTER.as_secs()
    );
    let columns = subjects.each_ref().map(|subject| subject.name.clone());
    let title = |(policies, peers)| format!("{policies} policies, {peers} pods");
    let report = Report::new("policies", out, &how);
    report.of_sizes(rounds, &columns, &sizes, title, |number, size, table| {
        let (policies, peers) = size;
        let round = Round {
            number,
            policies,
            peers,
            locals,
            changes,
            adds: options.size(500, 2),
            batches: options.size(100, 2),
        };
        round.measure(underlay, &subjects, table)
    })
}

/// The engines, and a node without any policy.
fn subjects() -> anyhow::Result<[Subject; 3]> {
    let subject = |name: &str, who| Subject {
        name: name.to_owned(),
        who,
    };
    let kube_router = Who::Peer {
        program: Programs::find()?.tool("kube-router").ok(),
        flags: KUBE_ROUTER.map(str::to_owned).into(),
        agent: &["--policy", "off"],
    };
    Ok([
        subject("tweed", Who::Tweed(&[])),
        subject("kube-router", kube_router),
        subject("without policies", Who::Nobody),
    ])
}

/// One round of one size of a cluster.
struct Round {
    /// Which round it is: it decides in which order the subjects begin.
    number: usize,
    policies: u32,
    peers: u32,
    locals: usize,
    changes: u32,
    adds: u32,
    batches: u32,
}

impl Round {
    fn measure(
        &self,
        underlay: &Underlay,
        subjects: &[Subject],
        table: &mut Table,
    ) -> anyhow::Result<()> {
        let nodes = (self.number, self.locals);
        let contenders = Contender::all(underlay, subjects, nodes, |one| match one.subject.who {
            Who::Nobody => Ok(()),
            _ => self.engine(one, &mut table.column(one.column)),
        })?;
        let to = |one: &Contender<'_>| SocketAddr::new(one.server().address, COST);
        costs::packets(&contenders, self.batches, COST, to, table)?;
        costs::adds(&contenders, self.adds, self.locals, table)
    }

    /// What an engine alone does.
    fn engine(&self, node: &mut Contender<'_>, column: &mut Column<'_>) -> anyhow::Result<()> {
        let start = self.load(node, column)?;
        // kube-router writes everything anew after each change: what comes meanwhile waits.
        let (most, longest, rest) = if node.subject.is_peer() {
            (MOST_CHANGES_OF_KUBE_ROUTER, LONGEST_OF_KUBE_ROUTER, start)
        } else {
            (self.changes, Duration::MAX, PAUSE)
        };
        let changes = Changes {
            node,
            most: self.changes.min(most),
            longest,
            rest,
        };
        changes.of_a_peer(column)?;
        changes.of_a_policy(column)?;
        changes.of_a_pod(column)?;
        column.record("peak memory, MiB", node.host.peak_mib()?);
        Ok(())
    }

    /// From the engine's start to the last packet that no policy allows: the node has
    /// none in its kernel before.
    fn load(&self, node: &mut Contender<'_>, column: &mut Column<'_>) -> anyhow::Result<Duration> {
        let api = &node.host.server;
        api.put(NODES, objects::others(self.peers));
        api.put(PODS, (0..self.peers).map(objects::peer));
        // One workload more than there are pods: its pod comes with the ADDs.
        let policy = |number| objects::policy(number, self.locals + 1);
        api.put(POLICIES, (0..self.policies).map(policy));
        let allow = |(name, port)| objects::allow(name, "friend", port);
        api.put(POLICIES, [("open", OPEN), ("cost", COST)].map(allow));
        let probe = Probe::start(node.client(), node.server(), COMING)?;
        let slab = cost::slab_mib()?;
        let start = node.start()?;
        let took = probe.wait_shut(start)?;
        column.record("start to in force, ms", millis(took));
        column.record("kernel memory of it, MiB", cost::slab_mib()? - slab);
        column.record("CPU of the start, ms", millis(node.host.cpu()?));
        Ok(took)
    }
}

/// Changes of one engine.
struct Changes<'a> {
    node: &'a Contender<'a>,
    /// So many of a kind,
    most: u32,
    /// and after so long only the first.
    longest: Duration,
    /// Before each of them: after so long all that belongs to the one before is over.
    rest: Duration,
}

impl Changes<'_> {
    /// One for each change of a kind that is to be made.
    fn turns(&self) -> impl Iterator<Item = ()> {
        let (begin, longest) = (Instant::now(), self.longest);
        let goes_on = move |turn: &u32| *turn == 0 || begin.elapsed() < longest;
        (0..self.most).take_while(goes_on).map(|_| ())
    }

    /// A peer that comes and goes, by the label of the client, which is one at the end.
    fn of_a_peer(&self, column: &mut Column<'_>) -> anyhow::Result<()> {
        let host = &self.node.host;
        let address = self.node.client().address;
        let [friend, stranger] =
            ["friend", "stranger"].map(|app| host.object("client", app, Some(address)));
        let put = |object: &Value| host.server.put(PODS, [object.clone()]);
        let (comes, goes) = (|| put(&friend), || put(&stranger));
        self.alternate("a peer", OPEN, [&comes, &goes], column)?;
        comes();
        Ok(())
    }

    /// A policy that comes and goes.
    fn of_a_policy(&self, column: &mut Column<'_>) -> anyhow::Result<()> {
        let api = &self.node.host.server;
        let policy = objects::allow("coming", "friend", COMING);
        let comes = || api.put(POLICIES, [policy.clone()]);
        let goes = || api.delete(POLICIES, NAMESPACE, "coming");
        self.alternate("a policy", COMING, [&comes, &goes], column)
    }

    /// What lets packets to a port of the server pass, and what ends that, in turn.
    fn alternate(
        &self,
        what: &str,
        port: u16,
        [comes, goes]: [&dyn Fn() -> Instant; 2],
        column: &mut Column<'_>,
    ) -> anyhow::Result<()> {
        let probe = Probe::start(self.node.client(), self.node.server(), port)?;
        let mut opened = Vec::new();
        for () in self.turns() {
            std::thread::sleep(self.rest);
            opened.push(millis(probe.wait_open(comes())?));
            std::thread::sleep(self.rest);
            probe.wait_shut(goes())?;
        }
        column.record_times(&format!("{what} comes, event to packet"), &opened);
        Ok(())
    }

    /// A pod that comes, of the workload of the server: how long it takes, from the end of
    /// its ADD, what no policy allows. Nothing else of it is known before.
    fn of_a_pod(&self, column: &mut Column<'_>) -> anyhow::Result<()> {
        let (host, client) = (&self.node.host, self.node.client());
        let mut open = Vec::new();
        for () in self.turns() {
            std::thread::sleep(self.rest);
            let pod = host.attach("new", "server")?;
            let probe = Probe::start(client, &pod, COMING)?;
            open.push(millis(probe.wait_shut(pod.since)?));
            drop(probe);
            // It is not out of reach: what a policy allows arrives.
            let probe = Probe::start(client, &pod, COST)?;
            probe.wait_open(Instant::now())?;
            host.detach("new", &pod)?;
        }
        column.record_times("a new pod is open to all for", &open);
        Ok(())
    }
}
