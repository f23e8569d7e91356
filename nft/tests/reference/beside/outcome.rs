//! What became of packets of one kind, and whether two nodes agree on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;
use serde_json::Value;

use super::kube_proxy::Mode;
use super::random;
use crate::cluster::Cluster;
use crate::prober::{Exit, Probe, ProbeOutcome, Sender};

/// Where a packet came out, and with which source if that was another one than it was sent
/// with.
type Out = (Exit, SocketAddr);

/// What became of packets of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub sent: BTreeMap<Out, BTreeSet<Option<IpAddr>>>,
    pub untouched: bool,
    pub rejected: bool,
    pub dropped: bool,
}

impl Outcome {
    /// Adds what became of packets.
    pub fn add(&mut self, probes: &[Probe], outcomes: &[ProbeOutcome]) {
        for (probe, outcome) in probes.iter().zip(outcomes) {
            match outcome {
                ProbeOutcome::Rejected => self.rejected = true,
                ProbeOutcome::Dropped => self.dropped = true,
                ProbeOutcome::Out {
                    exit,
                    destination,
                    source,
                    masqueraded,
                } => {
                    // At the node, an IPv6 packet does not tell its address.
                    let own = SocketAddr::new([0; 16].into(), probe.destination.port());
                    if *destination == probe.destination || *destination == own {
                        self.untouched = true;
                    } else {
                        let sources = self.sent.entry((*exit, *destination)).or_default();
                        sources.insert(masqueraded.then_some(*source));
                    }
                }
            }
        }
    }

    /// What it is, in a word.
    pub fn word(&self) -> &'static str {
        match (
            self.sent.is_empty(),
            self.untouched,
            self.rejected,
            self.dropped,
        ) {
            (false, false, false, false) => "sent",
            (true, true, false, false) => "untouched",
            (true, false, true, false) => "rejected",
            (true, false, false, true) => "dropped",
            _ => "mixed",
        }
    }
}

fn limits(service: &Value) -> impl Iterator<Item = &str> {
    let ranges = service["spec"]["loadBalancerSourceRanges"].as_array();
    ranges.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether what differs differs on purpose, and why.
pub fn differs_on_purpose(
    mode: Mode,
    cluster: &Cluster,
    (probe, service): (&Probe, &Value),
    [ours, theirs]: [&Outcome; 2],
) -> Option<&'static str> {
    let to = probe.destination.ip();
    let is_in = |network: &str, ip: &IpAddr| {
        let network: IpNetwork = network.trim().parse().unwrap();
        network.contains(*ip)
    };
    if random::is_remote_pod(probe.source) && differ_in_passing_through(ours, theirs) {
        return Some("a pod of another node is masqueraded to endpoints of other nodes");
    }
    if mode == Mode::Iptables {
        let is_cluster_ip = cluster.service_cidrs.iter().any(|cidr| is_in(cidr, &to));
        let is_own = cluster.node_ips.contains(&to);
        let node_ports = &cluster.node_port_addresses;
        let has_node_ports =
            node_ports.is_empty() || node_ports.iter().any(|network| is_in(network, &to));
        let known = match (ours.word(), theirs.word()) {
            ("rejected" | "dropped", "untouched") if is_cluster_ip => {
                Some("iptables: other cluster IPs and their ports are left alone")
            }
            // A limit may stand before.
            ("rejected" | "dropped", "untouched") if probe.sender == Sender::Node && !is_own => {
                Some(
                    "iptables: the node's own packets to external addresses without endpoints pass",
                )
            }
            (_, "rejected" | "dropped") if is_own && !has_node_ports => {
                Some("iptables: node ports without endpoints are refused at every address")
            }
            ("dropped", "rejected") if limits(service).next().is_some() => {
                Some("iptables: a Service without endpoints refuses those beyond its limit too")
            }
            _ => None,
        };
        if known.is_some() {
            return known;
        }
    }
    let allowed = |ip: &IpAddr| limits(service).any(|range| is_in(range, ip));
    let some = cluster.node_ips.iter().any(allowed);
    if probe.sender == Sender::Node && some && !allowed(&probe.source) {
        return Some("the node passes a limit with any of its addresses");
    }
    None
}

/// Whether two nodes differ only in this: what passes through, to an endpoint that is not of
/// this node, tweed masquerades. From kube-proxy it keeps its source if the pod is not that
/// endpoint, and its answer does not come back here.
fn differ_in_passing_through(ours: &Outcome, theirs: &Outcome) -> bool {
    let is_local = |ip: IpAddr| {
        let mut own = random::POD_CIDRS.iter();
        own.any(|cidr| cidr.parse::<IpNetwork>().unwrap().contains(ip))
    };
    let same_endpoints = ours.sent.keys().eq(theirs.sent.keys());
    let mut both = ours.sent.iter().zip(theirs.sent.values());
    same_endpoints
        && both.all(|(((exit, at), ours), theirs)| {
            let passes_through = *exit != Exit::Node && !is_local(at.ip());
            let masqueraded = ours.iter().all(Option::is_some);
            let kept = theirs.iter().all(Option::is_none);
            ours == theirs || passes_through && masqueraded && kept
        })
}

/// Whether two nodes do the same, as far as that was seen. One client of a Service that
/// remembers it gets any one endpoint.
pub fn agree(ours: &Outcome, theirs: &Outcome, one_client: bool) -> bool {
    if one_client {
        let most = ours.sent.len().max(theirs.sent.len());
        ours.word() == theirs.word() && most <= 1
    } else {
        ours == theirs
    }
}
