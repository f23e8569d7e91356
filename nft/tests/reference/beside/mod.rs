//! Random Services beside kube-proxy's own proxier: two nodes that are set up alike, on one of
//! which tweed sends Services on and on the other one kube-proxy, get the same packets.

mod kube_proxy;
mod outcome;
mod random;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tweed_core::object::endpoint_slice::SERVICE_LABEL;

use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::netns::Netns;
use crate::prober::{Probe, Prober};
use crate::tweed::Tweed;
use kube_proxy::{KubeProxy, Mode};
use outcome::{Outcome, agree, differs_on_purpose};

/// How often the Services of a cluster change while it is looked at.
const CHANGES: usize = 3;
/// How many packets are sent of each kind between two changes.
const PROBES: usize = 600;
/// How often each packet is sent at first, and how often more as long as the two have chosen
/// different endpoints.
const DRAWS: [usize; 4] = [6, 20, 60, 200];

/// A node with a prober around it.
fn node() -> Prober {
    let prober = Prober::new();
    set_up(prober.netns());
    prober
}

fn set_up(netns: &Netns) {
    netns.sh("
        ip addr add 10.255.0.1/32 dev pods
        ip addr add fd00:10:255::1/128 dev pods nodad
        ip route add 10.0.0.0/8 dev pods
        ip -6 route add fd00:10::/32 dev pods");
    for ip in random::NODE_IPS {
        netns.sh(&match ip.contains('.') {
            true => format!("ip addr add {ip}/32 dev world"),
            false => format!("ip addr add {ip}/128 dev world nodad"),
        });
    }
}

/// Both nodes.
struct Pair {
    ours: Prober,
    theirs: Prober,
    mode: Mode,
}

impl Pair {
    /// Compares what becomes of packets. Gives what differs.
    fn compare(
        &mut self,
        cluster: &Cluster,
        dice: &mut Dice,
        seen: &mut BTreeMap<&'static str, usize>,
    ) -> Vec<String> {
        let kinds: Vec<(Probe, Value)> =
            (0..PROBES).map(|_| random::probe(cluster, dice)).collect();
        let mut outcomes = vec![[Outcome::default(), Outcome::default()]; kinds.len()];
        let mut open: Vec<usize> = (0..kinds.len()).collect();
        let mut draws = DRAWS.into_iter();
        while !open.is_empty() {
            let Some(draws) = draws.next() else { break };
            let mut probes = Vec::new();
            for index in &open {
                let (probe, service) = &kinds[*index];
                probes.extend((0..draws).map(|_| random::like(probe, service, dice)));
            }
            let [ours, theirs] = [&mut self.ours, &mut self.theirs].map(|side| side.send(&probes));
            for (at, index) in open.iter().enumerate() {
                let these = at * draws..(at + 1) * draws;
                for (outcome, fates) in outcomes[*index].iter_mut().zip([&ours, &theirs]) {
                    outcome.add(&probes[these.clone()], &fates[these.clone()]);
                }
            }
            open.retain(|index| {
                let ((probe, service), [ours, theirs]) = (&kinds[*index], &outcomes[*index]);
                let one_client = random::has_affinity(service) && !random::has_many_sources(probe);
                !agree(ours, theirs, one_client)
            });
        }
        for [ours, _] in &outcomes {
            *seen.entry(ours.word()).or_default() += 1;
        }
        let mut wrong = Vec::new();
        for index in open {
            let ((probe, service), [ours, theirs]) = (&kinds[index], &outcomes[index]);
            if let Some(why) =
                differs_on_purpose(self.mode, cluster, (probe, service), [ours, theirs])
            {
                *seen.entry(why).or_default() += 1;
                continue;
            }
            let name = &service["metadata"]["name"];
            let slices = cluster.slices.iter();
            let slices = slices.filter(|one| one["metadata"]["labels"][SERVICE_LABEL] == *name);
            let slices: Vec<String> = slices.map(Value::to_string).collect();
            wrong.push(format!(
                "{probe:?}\n  tweed {ours:?}\n  kube-proxy {theirs:?}\n  zone {:?}, node ports at {:?}\n  {service}\n  {}",
                cluster.zone,
                cluster.node_port_addresses,
                slices.join("\n  "),
            ));
        }
        wrong
    }
}

/// Compares as many clusters as are asked for, each with its own seed: TWEED_SEED is that of
/// the first one.
fn compare(mode: Mode, clusters: u64) {
    let given = std::env::var("TWEED_SEED")
        .ok()
        .map(|seed| seed.parse().unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first: u64 = given.unwrap_or(now.as_secs());
    let mut seen = BTreeMap::new();
    for seed in first..first + clusters {
        let mut dice = Dice(seed);
        let mut pair = Pair {
            ours: node(),
            theirs: node(),
            mode,
        };
        let mut tweed = Tweed::new(pair.ours.netns());
        let mut kube_proxy = KubeProxy::start(pair.theirs.netns(), mode);
        let mut cluster = random::cluster(&mut dice);
        for change in 0..CHANGES {
            random::change(&mut cluster, &mut dice);
            tweed.serve(pair.ours.netns(), &cluster);
            kube_proxy.serve(&cluster);
            let wrong = pair.compare(&cluster, &mut dice, &mut seen);
            assert!(
                wrong.is_empty(),
                "{} packets after change {change} of TWEED_SEED={seed}:\n{}",
                wrong.len(),
                wrong[..wrong.len().min(80)].join("\n"),
            );
        }
    }
    // As long as no case is too simple to decide anything.
    let least = clusters as usize * CHANGES * PROBES / 100;
    for word in ["sent", "rejected", "dropped", "untouched"] {
        assert!(seen[word] > least, "{seen:?}");
    }
    println!("{seen:?}");
}

/// TWEED_CLUSTERS, or as many as take a quarter of a minute.
fn clusters() -> u64 {
    let given = std::env::var("TWEED_CLUSTERS").ok();
    given.map_or(6, |text| text.parse().unwrap())
}

#[test]
#[ignore = "needs services-judge: conformance/setup.sh test builds it, make test runs it"]
fn packets_fare_as_with_kube_proxy_by_nftables() {
    compare(Mode::Nftables, clusters());
}

#[test]
#[ignore = "needs services-judge: conformance/setup.sh test builds it, make test runs it"]
fn packets_fare_as_with_kube_proxy_by_iptables() {
    compare(Mode::Iptables, clusters());
}
