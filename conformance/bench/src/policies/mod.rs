//! `tweed-bench policies`: policies from an API server to the kernel and what they cost,
//! by the number of policies and of pods in the cluster.
//!
//! ```text
//! objects    pods and policies as the API has them
//! server     an API server for any kind, in this process
//! host       a node with its agent and pods
//! subject    who enforces the policies: tweed, kube-router, nobody
//! probe      packets: when a verdict changes, and what one costs
//! costs      what policies in force cost: packets, and ADD
//! ```
//!
//! All subjects take turns within a round, one of them a node without any policy: the
//! floor of what is measured of packets and of ADD. All verdicts are seen by packets.

mod costs;
pub mod host;
pub mod objects;
pub mod probe;
pub mod server;
mod subject;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use tweed_lab::Underlay;

use crate::Options;
use crate::report::{Report, Table, progress};
use crate::stats::{millis, percentile, turns};
use objects::{PODS, POLICIES};
use probe::Probe;
use subject::{Enforced, Subject};

/// Numbers of policies, and of pods of other nodes.
const SIZES: [(u32, u32); 3] = [(10, 100), (100, 1000), (1000, 10_000)];
/// For a look at whether all works.
const FEW: [(u32, u32); 3] = [(2, 5), (4, 10), (6, 20)];

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

/// The percentiles that are shown.
const SHARES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

type Record<'a> = &'a mut dyn FnMut(&str, f64);

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let rounds = options.rounds(3);
    let sizes = options.size(SIZES, FEW);
    let (locals, changes) = options.size((50, 50), (2, 2));
    let kube_router = subject::kube_router()?;
    let how = format!(
        "{rounds} rounds. {locals} pods on the node, each the subject of its share of the \
         policies, each with three rules for workloads of the other nodes' pods; {changes} \
         changes of each kind. {}",
        match kube_router {
            Some(_) => format!(
                "kube-router has {} of each kind at most, and as many as begin within {} s.",
                changes.min(MOST_CHANGES_OF_KUBE_ROUTER),
                LONGEST_OF_KUBE_ROUTER.as_secs()
            ),
            None => "kube-router is left out: `conformance/setup.sh bench` builds it.".to_owned(),
        }
    );
    let mut report = Report::new("policies", out, &how);
    report.tables = (sizes.iter())
        .map(|(policies, peers)| {
            let title = format!("{policies} policies, {peers} pods");
            Table::new(&title, Subject::ALL.map(Subject::name))
        })
        .collect();
    for number in 0..rounds {
        for (table, (policies, peers)) in sizes.into_iter().enumerate() {
            progress(&format!(
                "round {} of {rounds}: {policies} policies, {peers} pods …",
                number + 1
            ));
            let round = Round {
                number,
                policies,
                peers,
                locals,
                changes,
                adds: options.size(500, 2),
                batches: options.size(100, 2),
                has_kube_router: kube_router.is_some(),
            };
            round
                .measure(underlay, &mut report.tables[table])
                .with_context(|| format!("{policies} policies in round {}", number + 1))?;
            report.save()?;
        }
    }
    Ok(report)
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
    has_kube_router: bool,
}

impl Round {
    fn measure(&self, underlay: &Underlay, table: &mut Table) -> anyhow::Result<()> {
        let mut nodes = Vec::new();
        for at in turns(self.number, Subject::ALL.len()) {
            let subject = Subject::ALL[at];
            if subject == Subject::KubeRouter && !self.has_kube_router {
                continue;
            }
            let mut node = Enforced::new(underlay, at as u8 + 1, subject, self.locals)?;
            if subject != Subject::Nobody {
                let mut record = |row: &str, value| table.record(row, at, value);
                self.engine(&mut node, &mut record).with_context(|| {
                    format!("{}{}", subject.name(), node.host.last_lines_of_peer())
                })?;
            }
            nodes.push((at, node));
        }
        costs::packets(&nodes, self.batches, table)?;
        costs::adds(&nodes, self.adds, self.locals, table)
    }

    /// What an engine alone does.
    fn engine(&self, node: &mut Enforced, record: Record<'_>) -> anyhow::Result<()> {
        let start = self.load(node, record)?;
        // kube-router writes everything anew after each change: what comes meanwhile waits.
        let (most, longest, rest) = match node.subject {
            Subject::KubeRouter => (MOST_CHANGES_OF_KUBE_ROUTER, LONGEST_OF_KUBE_ROUTER, start),
            _ => (self.changes, Duration::MAX, PAUSE),
        };
        let changes = Changes {
            node,
            most: self.changes.min(most),
            longest,
            rest,
        };
        changes.of_a_peer(record)?;
        changes.of_a_policy(record)?;
        changes.of_a_pod(record)?;
        record("peak memory, MiB", node.host.peak_mib()?);
        Ok(())
    }

    /// From the engine's start to the last packet that no policy allows: the node has
    /// none in its kernel before.
    fn load(&self, node: &mut Enforced, record: Record<'_>) -> anyhow::Result<Duration> {
        let api = &node.host.server;
        api.put(PODS, (0..self.peers).map(objects::peer));
        // One workload more than there are pods: its pod comes with the ADDs.
        let policies = 0..self.policies;
        let policies = policies.map(|number| objects::policy(number, self.locals + 1));
        api.put(POLICIES, policies);
        let allow = [("open", OPEN), ("cost", COST)];
        let allow = allow.map(|(name, port)| objects::allow(name, "friend", port));
        api.put(POLICIES, allow);
        let probe = Probe::start(node.client(), node.server(), COMING)?;
        let slab = host::slab_mib()?;
        let start = node.start()?;
        let took = probe.wait_shut(start)?;
        record("start to in force, ms", millis(took));
        record("kernel memory of it, MiB", host::slab_mib()? - slab);
        record("CPU of the start, ms", millis(node.host.cpu()?));
        Ok(took)
    }
}

/// Changes of one engine.
struct Changes<'a> {
    node: &'a Enforced,
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
    fn of_a_peer(&self, record: Record<'_>) -> anyhow::Result<()> {
        let host = &self.node.host;
        let address = self.node.client().address;
        let [friend, stranger] =
            ["friend", "stranger"].map(|app| host.object("client", app, Some(address)));
        self.alternate(
            "a peer",
            OPEN,
            || host.server.put(PODS, [friend.clone()]),
            || host.server.put(PODS, [stranger.clone()]),
            record,
        )?;
        host.server.put(PODS, [friend.clone()]);
        Ok(())
    }

    /// A policy that comes and goes.
    fn of_a_policy(&self, record: Record<'_>) -> anyhow::Result<()> {
        let api = &self.node.host.server;
        let policy = objects::allow("coming", "friend", COMING);
        self.alternate(
            "a policy",
            COMING,
            || api.put(POLICIES, [policy.clone()]),
            || api.delete(POLICIES, &policy),
            record,
        )
    }

    /// What lets packets to a port of the server pass, and what ends that, in turn.
    fn alternate(
        &self,
        what: &str,
        port: u16,
        comes: impl Fn() -> Instant,
        goes: impl Fn() -> Instant,
        record: Record<'_>,
    ) -> anyhow::Result<()> {
        let probe = Probe::start(self.node.client(), self.node.server(), port)?;
        let (mut opened, mut shut) = (Vec::new(), Vec::new());
        for () in self.turns() {
            std::thread::sleep(self.rest);
            opened.push(millis(probe.wait_open(comes())?));
            std::thread::sleep(self.rest);
            shut.push(millis(probe.wait_shut(goes())?));
        }
        record_all(&format!("{what} comes"), &mut opened, record);
        record_all(&format!("{what} goes"), &mut shut, record);
        Ok(())
    }

    /// A pod that comes, of the workload of the server: how long it takes, from the end of
    /// its ADD, what no policy allows. Nothing else of it is known before.
    fn of_a_pod(&self, record: Record<'_>) -> anyhow::Result<()> {
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
        open.sort_by(f64::total_cmp);
        for (name, share) in SHARES {
            if let Some(value) = percentile(&open, share) {
                record(&format!("a new pod is open to all for, {name}, ms"), value);
            }
        }
        Ok(())
    }
}

pub fn record_all(what: &str, times: &mut [f64], record: Record<'_>) {
    times.sort_by(f64::total_cmp);
    for (name, share) in SHARES {
        if let Some(value) = percentile(times, share) {
            record(&format!("{what}, event to packet, {name}, ms"), value);
        }
    }
}
