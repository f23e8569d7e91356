//! `tweed-bench policies`: policies from an API server to the kernel and what they cost,
//! by the number of policies and of pods in the cluster.
//!
//! ```text
//! objects    pods and policies as the API has them
//! server     an API server for any kind, in this process
//! host       a node with its agent and pods
//! probe      packets: when a verdict changes, and what one costs
//! ```
//!
//! In each round two nodes take turns, one without any policy: the floor of what is
//! measured of packets and of ADD. All verdicts are seen by packets.

pub mod host;
pub mod objects;
pub mod probe;
pub mod server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tweed_lab::{Pod, Underlay};

use crate::Options;
use crate::report::{Report, Table, progress};
use crate::stats::{millis, percentile, turns};
use host::Host;
use objects::{PODS, POLICIES};
use probe::Probe;

/// Numbers of policies, and of pods of other nodes.
const SIZES: [(u32, u32); 3] = [(10, 100), (100, 1000), (1000, 10_000)];
/// For a look at whether all works.
const FEW: [(u32, u32); 3] = [(2, 5), (4, 10), (6, 20)];

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

/// One size of a cluster.
struct Size<'a> {
    underlay: &'a Underlay,
    policies: u32,
    peers: u32,
    locals: usize,
    changes: u32,
    adds: u32,
    batches: u32,
}

/// Measures all of it.
pub fn measure(options: &Options, underlay: &Underlay, out: PathBuf) -> anyhow::Result<Report> {
    let rounds = options.rounds(3);
    let sizes = options.size(SIZES, FEW);
    let (locals, changes) = options.size((50, 50), (2, 2));
    let how = format!(
        "{rounds} rounds. {locals} pods on the node, each the subject of its share of the \
         policies, each with three rules for workloads of the other nodes' pods; {changes} \
         changes of each kind. The floor is another node without any policy, in turns within a \
         round."
    );
    let mut report = Report::new("policies", out, &how);
    let columns = sizes.map(|(policies, peers)| format!("{policies} policies, {peers} pods"));
    report.tables = vec![Table::new("By policies and pods", columns)];
    for round in 0..rounds {
        for (at, (policies, peers)) in sizes.into_iter().enumerate() {
            progress(&format!(
                "round {} of {rounds}: {policies} policies, {peers} pods …",
                round + 1
            ));
            let size = Size {
                underlay,
                policies,
                peers,
                locals,
                changes,
                adds: options.size(500, 2),
                batches: options.size(100, 2),
            };
            size.measure(&mut |row, value| report.tables[0].record(row, at, value))
                .with_context(|| format!("{policies} policies in round {}", round + 1))?;
        }
        report.save()?;
    }
    Ok(report)
}

impl Size<'_> {
    fn measure(&self, record: Record<'_>) -> anyhow::Result<()> {
        let mut host = Host::new(self.underlay, 1, self.locals)?;
        let floor = Host::new(self.underlay, 2, self.locals)?;
        self.load(&mut host, record)?;
        self.changes(&host, record)?;
        record("peak memory of the agent, MiB", host.peak_mib()?);
        self.packets(&host, &floor, record)?;
        self.adds(&host, &floor, record)
    }

    /// The client with this label: as a friend it is a peer of the server's policies.
    fn client(&self, host: &Host, app: &str) -> serde_json::Value {
        let name = format!("{}-client", host.node.name());
        objects::pod(&name, host.node.name(), app, Some(host.ends[1].address))
    }

    /// From the agent's start to the last packet that no policy allows: the node has
    /// none in its kernel before.
    fn load(&self, host: &mut Host, record: Record<'_>) -> anyhow::Result<()> {
        host.stop_agent()?;
        host.server.put(PODS, (0..self.peers).map(objects::peer));
        // One workload more than there are pods: its pod comes with the ADDs.
        let policies = 0..self.policies;
        let policies = policies.map(|number| objects::policy(number, self.locals + 1));
        host.server.put(POLICIES, policies);
        let allow = [("open", OPEN), ("cost", COST)];
        let allow = allow.map(|(name, port)| objects::allow(name, "friend", port));
        host.server.put(POLICIES, allow);
        let probe = Probe::start(&host.ends[1], &host.ends[0], COMING)?;
        let slab = host::slab_mib()?;
        let start = host.start_agent()?;
        record(
            "agent's start to in force, ms",
            millis(probe.wait_shut(start)?),
        );
        record("kernel memory of it, MiB", host::slab_mib()? - slab);
        record("CPU of the start, ms", millis(host.cpu()?));
        Ok(())
    }

    /// A peer, by the label of the client, and a policy that come and go.
    fn changes(&self, host: &Host, record: Record<'_>) -> anyhow::Result<()> {
        let [friend, stranger] = ["friend", "stranger"].map(|app| self.client(host, app));
        let probe = Probe::start(&host.ends[1], &host.ends[0], OPEN)?;
        let (mut comes, mut goes) = (Vec::new(), Vec::new());
        for _ in 0..self.changes {
            std::thread::sleep(PAUSE);
            comes.push(millis(
                probe.wait_open(host.server.put(PODS, [friend.clone()]))?,
            ));
            std::thread::sleep(PAUSE);
            goes.push(millis(
                probe.wait_shut(host.server.put(PODS, [stranger.clone()]))?,
            ));
        }
        drop(probe);
        record_all("a peer comes", &mut comes, record);
        record_all("a peer goes", &mut goes, record);
        host.server.put(PODS, [friend]);
        let policy = objects::allow("coming", "friend", COMING);
        let probe = Probe::start(&host.ends[1], &host.ends[0], COMING)?;
        let (mut comes, mut goes) = (Vec::new(), Vec::new());
        for _ in 0..self.changes {
            std::thread::sleep(PAUSE);
            let start = host.server.put(POLICIES, [policy.clone()]);
            comes.push(millis(probe.wait_open(start)?));
            std::thread::sleep(PAUSE);
            let start = host.server.delete(POLICIES, &policy);
            goes.push(millis(probe.wait_shut(start)?));
        }
        record_all("a policy comes", &mut comes, record);
        record_all("a policy goes", &mut goes, record);
        Ok(())
    }

    /// The cost of a packet beside that of a node without policies, batch by batch.
    fn packets(&self, host: &Host, floor: &Host, record: Record<'_>) -> anyhow::Result<()> {
        let mut times: [[Vec<f64>; 2]; 2] = Default::default();
        for batch in 0..self.batches as usize {
            for turn in turns(batch, 2) {
                let (host, times) = ([host, floor][turn], &mut times[turn]);
                let [server, client] = [&host.ends[0], &host.ends[1]];
                let to = SocketAddr::new(server.address, COST);
                let one = probe::cost(client, server, COST, to)?;
                for (all, one) in times.iter_mut().zip(one) {
                    all.push(one);
                }
            }
        }
        for (at, what) in ["a new flow", "an established flow"]
            .into_iter()
            .enumerate()
        {
            let [with, without] = times.each_mut().map(|times| {
                times[at].sort_by(f64::total_cmp);
                percentile(&times[at], 0.5).unwrap_or_default()
            });
            record(&format!("packet of {what}, ns"), with);
            record(
                &format!("packet of {what} ÷ without policies"),
                with / without,
            );
        }
        Ok(())
    }

    /// ADDs of a further pod of a workload, and of the only pod of one: the policies for
    /// that one come in force with it.
    fn adds(&self, host: &Host, floor: &Host, record: Record<'_>) -> anyhow::Result<()> {
        self.adds_of("ADD", "local0", host, floor, record)?;
        let alone = format!("local{}", self.locals);
        self.adds_of("ADD of a new workload", &alone, host, floor, record)
    }

    /// Pairs of ADDs, one with and one without policies, each pair in the other order than
    /// the one before.
    fn adds_of(
        &self,
        what: &str,
        app: &str,
        host: &Host,
        floor: &Host,
        record: Record<'_>,
    ) -> anyhow::Result<()> {
        let mut pods = Vec::new();
        for host in [host, floor] {
            let name = format!("{}-{app}-added", host.node.name());
            let object = objects::pod(&name, host.node.name(), app, None);
            host.server.put(PODS, [object]);
            let pod = Pod::new(host.node.lab(), &name)?;
            pods.push((host, pod, name));
        }
        std::thread::sleep(PAUSE);
        let before = host.cpu()?;
        let mut times = [Vec::new(), Vec::new()];
        for pair in 0..self.adds {
            let turns = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
            for turn in turns {
                let (host, pod, name) = &pods[turn];
                times[turn].push(millis(host.add_and_del(pod, name)?));
            }
        }
        let cpu = millis(host.cpu()? - before) / f64::from(self.adds);
        record(
            &format!("CPU of the agent for an {what} and its DEL, ms"),
            cpu,
        );
        for times in &mut times {
            times.sort_by(f64::total_cmp);
        }
        for (name, share) in SHARES {
            let of = |times: &[f64]| percentile(times, share).unwrap_or_default();
            let [with, without] = times.each_ref().map(|times| of(times));
            record(&format!("{what}, {name}, ms"), with);
            record(&format!("{what} without policies, {name}, ms"), without);
            record(
                &format!("{what}, {name} ÷ without policies"),
                with / without,
            );
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
