//! Random Services beside kube-proxy's own proxier: two nodes that are set up alike, on one of
//! which tweed sends Services on and on the other one kube-proxy, get the same packets.

mod kube_proxy;
mod outcome;
mod probes;
mod random;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tweed_core::object::endpoint_slice::SERVICE_LABEL;

use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::prober::{Probe, Prober};
use crate::tweed::Tweed;
use kube_proxy::{KubeProxy, Mode};
use outcome::{Outcome, agree, differs_on_purpose};

/// How many clusters there are: with what follows, 3,600 kinds of packets.
const CLUSTERS: u64 = 2;
/// How often the Services of a cluster change while it is looked at.
const CHANGES: usize = 3;
/// How many kinds of packets are sent between two changes.
const PROBES: usize = 600;
/// How often each packet is sent at first, and how often more as long as the two have chosen
/// different endpoints.
const DRAWS: [usize; 4] = [6, 20, 60, 200];

/// Packets of one kind, and the Service that they are meant for.
struct Kind {
    probe: Probe,
    service: Value,
    /// What became of them with tweed, and with kube-proxy.
    outcomes: [Outcome; 2],
}

impl Kind {
    fn new(cluster: &Cluster, dice: &mut Dice) -> Self {
        let (probe, service) = probes::probe(cluster, dice);
        Self {
            probe,
            service,
            outcomes: Default::default(),
        }
    }

    fn agrees(&self) -> bool {
        let [ours, theirs] = &self.outcomes;
        let many = probes::has_many_sources(&self.probe);
        agree(ours, theirs, random::has_affinity(&self.service) && !many)
    }

    fn describe(&self, cluster: &Cluster) -> String {
        let [ours, theirs] = &self.outcomes;
        let name = &self.service["metadata"]["name"];
        let all = cluster.slices.iter();
        let own = all.filter(|one| one["metadata"]["labels"][SERVICE_LABEL] == *name);
        let slices: Vec<String> = own.map(|one| format!("\n  {one}")).collect();
        format!(
            "{:?}\n  tweed {ours:?}\n  kube-proxy {theirs:?}\n  zone {:?}, node ports at {:?}\n  {}{}",
            self.probe,
            cluster.zone,
            cluster.node_port_addresses,
            self.service,
            slices.concat(),
        )
    }
}

/// Both nodes.
struct Pair {
    ours: Prober,
    theirs: Prober,
    mode: Mode,
}

impl Pair {
    /// Sends so many packets of each kind.
    fn draw(&mut self, kinds: &mut [&mut Kind], draws: usize, dice: &mut Dice) {
        let mut probes = Vec::new();
        for Kind { probe, service, .. } in kinds.iter() {
            probes.extend((0..draws).map(|_| probes::like(probe, service, dice)));
        }
        let [ours, theirs] = [&mut self.ours, &mut self.theirs].map(|side| side.send(&probes));
        for (at, kind) in kinds.iter_mut().enumerate() {
            let these = at * draws..(at + 1) * draws;
            for (outcome, outcomes) in kind.outcomes.iter_mut().zip([&ours, &theirs]) {
                outcome.add(&probes[these.clone()], &outcomes[these.clone()]);
            }
        }
    }

    /// Compares what becomes of packets. Gives what differs.
    fn compare(&mut self, cluster: &Cluster, dice: &mut Dice, seen: &mut Seen) -> Vec<String> {
        let mut kinds: Vec<Kind> = (0..PROBES).map(|_| Kind::new(cluster, dice)).collect();
        let mut open: Vec<&mut Kind> = kinds.iter_mut().collect();
        for draws in DRAWS {
            self.draw(&mut open, draws, dice);
            open.retain(|kind| !kind.agrees());
        }
        let mut wrong = Vec::new();
        for kind in open {
            let [ours, theirs] = &kind.outcomes;
            let packet = (&kind.probe, &kind.service);
            match differs_on_purpose(self.mode, cluster, packet, [ours, theirs]) {
                Some(why) => *seen.entry(why).or_default() += 1,
                None => wrong.push(kind.describe(cluster)),
            }
        }
        for kind in &kinds {
            *seen.entry(kind.outcomes[0].word()).or_default() += 1;
        }
        wrong
    }
}

/// How many kinds of packets had each outcome, and how many differed for each reason.
type Seen = BTreeMap<&'static str, usize>;

/// Compares TWEED_CLUSTERS clusters, each with its own seed: TWEED_SEED is that of the first, and
/// the time if that is not given.
fn compare(mode: Mode) {
    let clusters = number_of("TWEED_CLUSTERS").unwrap_or(CLUSTERS);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = number_of("TWEED_SEED").unwrap_or(now.as_secs());
    let mut seen = Seen::new();
    for seed in first..first + clusters {
        let mut dice = Dice(seed);
        let mut cluster = random::cluster(&mut dice);
        let mut pair = Pair {
            ours: Prober::of_node(&cluster.node_ips),
            theirs: Prober::of_node(&cluster.node_ips),
            mode,
        };
        let mut tweed = Tweed::new(pair.ours.netns(), random::POD_CIDRS);
        let mut kube_proxy = KubeProxy::start(pair.theirs.netns(), mode);
        for change in 0..CHANGES {
            random::change(&mut cluster, &mut dice);
            tweed.serve(pair.ours.netns(), &cluster);
            kube_proxy.serve(&cluster);
            let wrong = pair.compare(&cluster, &mut dice, &mut seen);
            assert!(
                wrong.is_empty(),
                "{} packets after change {change} of TWEED_SEED={seed}:\n{}",
                wrong.len(),
                wrong[..wrong.len().min(3)].join("\n"),
            );
        }
    }
    // As long as no case is too simple to decide anything.
    let least = clusters as usize * CHANGES * PROBES / 100;
    for word in ["sent", "rejected", "dropped", "untouched"] {
        assert!(seen[word] > least, "{seen:?}");
    }
    println!("{mode:?}: {seen:?}");
}

fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap())
}

#[test]
#[ignore = "needs services-judge: conformance/setup.sh test builds it, make test runs it"]
fn packets_fare_as_with_kube_proxy_by_nftables() {
    compare(Mode::Nftables);
}

#[test]
#[ignore = "needs services-judge: conformance/setup.sh test builds it, make test runs it"]
fn packets_fare_as_with_kube_proxy_by_iptables() {
    compare(Mode::Iptables);
}
