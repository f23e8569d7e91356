//! Whether a rule is about a packet.

use ipnetwork::IpNetwork;
use tweed_core::object::cluster_network_policy::{
    self as cluster, ClusterNetworkPolicy, Protocol, Subject,
};
use tweed_core::object::network_policy::{self as network, NetworkPolicy, PortMatch};
use tweed_core::object::pod::NamedPort;
use tweed_core::object::selector::LabelSelector;

use super::{Packet, Party, PodParty};
use crate::addresses::parse_cidr;
use crate::policy::model::end_addresses::EndAddresses;
use crate::policy::verdicts::Direction;
use crate::protocols::protocol_number;

/// What a rule of a ClusterNetworkPolicy says of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    NoMatch,
    Accept,
    Deny,
    Pass,
}

/// What a rule is asked.
pub struct Asked<'a> {
    pub direction: Direction,
    /// The other end.
    pub peer: &'a Party,
    pub packet: &'a Packet,
}

/// Whether something matches; none if it cannot be understood.
type Match = Option<bool>;

/// Whether a NetworkPolicy is about a direction.
pub fn is_about(policy: &NetworkPolicy, direction: Direction) -> bool {
    let types = &policy.policy_types;
    let (name, default) = match direction {
        Direction::In => ("Ingress", true),
        Direction::Out => ("Egress", !policy.egress.is_empty()),
    };
    let unknown = |one: &String| one != "Ingress" && one != "Egress";
    if types.is_empty() {
        default
    } else {
        types.iter().any(|one| one == name || unknown(one))
    }
}

/// Whether a ClusterNetworkPolicy selects a pod.
pub fn is_cluster_subject(policy: &ClusterNetworkPolicy, pod: &PodParty) -> bool {
    match &policy.subject {
        Subject::Namespaces(namespaces) => namespaces.may_select(&pod.namespace_labels),
        Subject::Pods {
            namespace,
            pod: pods,
        } => namespace.may_select(&pod.namespace_labels) && pods.may_select(&pod.labels),
        Subject::Unknown(_) => false,
    }
}

/// Whether tier and subject of a ClusterNetworkPolicy are understood.
pub fn is_understood(policy: &ClusterNetworkPolicy) -> bool {
    let known = |selector: &LabelSelector| selector.unknown_operator().is_none();
    let subject = match &policy.subject {
        Subject::Namespaces(namespaces) => known(namespaces),
        Subject::Pods { namespace, pod } => known(namespace) && known(pod),
        Subject::Unknown(_) => false,
    };
    subject && ["Admin", "Baseline"].contains(&policy.tier.as_str())
}

/// Whether a rule of a NetworkPolicy allows a packet.
pub fn network_rule(policy: &NetworkPolicy, rule: &network::Rule, asked: &Asked<'_>) -> bool {
    let Asked { peer, packet, .. } = *asked;
    let is_peer = |one: &network::Peer| match one {
        network::Peer::Pods { namespace, pod } => {
            let Some(other) = &peer.pod else {
                return false;
            };
            let there = match namespace {
                None => other.namespace == policy.namespace,
                Some(selector) => selector.selects(&other.namespace_labels),
            };
            there && pod.as_ref().is_none_or(|pod| pod.selects(&other.labels))
        }
        network::Peer::Block { cidr, except } => {
            in_block(&peer.addresses, cidr, except) == Some(true)
        }
        network::Peer::Unknown(_) => false,
    };
    let is_port = |one: &network::Port| match protocol_number(&one.protocol) {
        Some(protocol) => port_matches(Some(protocol), &one.port, packet) == Some(true),
        None => false,
    };
    (rule.peers.is_empty() || rule.peers.iter().any(is_peer))
        && (rule.ports.is_empty() || rule.ports.iter().any(is_port))
}

/// What a rule of a ClusterNetworkPolicy says of a packet. One with a part that is not
/// understood says nothing if it accepts, and else denies everything.
pub fn cluster_rule(rule: &cluster::Rule, asked: &Asked<'_>) -> Outcome {
    let action = match rule.action.as_str() {
        "Accept" => Outcome::Accept,
        "Pass" => Outcome::Pass,
        _ => Outcome::Deny,
    };
    let accepts = action == Outcome::Accept;
    let peers = rule
        .peers
        .iter()
        .map(|one| cluster_peer(one, asked, accepts));
    let peers = any(peers);
    let protocols = if rule.protocols.is_empty() {
        Some(true)
    } else {
        any(rule
            .protocols
            .iter()
            .map(|one| cluster_protocol(one, asked.packet)))
    };
    match (peers, protocols) {
        (Some(true), Some(true)) => action,
        (Some(_), Some(_)) => Outcome::NoMatch,
        _ if accepts => Outcome::NoMatch,
        _ => Outcome::Deny,
    }
}

/// What a rule of a ClusterNetworkPolicy that is refused says of all packets, if rules that do not
/// deny may not count.
pub fn refused_rule(rule: &cluster::Rule, denies_only: bool, asked: &Asked<'_>) -> Outcome {
    let counts = match rule.action.as_str() {
        "Accept" => false,
        "Pass" => !denies_only,
        _ => true,
    };
    let is_somebody = |peer: &cluster::Peer| match peer {
        cluster::Peer::Networks(cidrs) => !cidrs.is_empty(),
        _ => true,
    };
    let is_understood = cluster_rule(rule, asked) != Outcome::Deny;
    if !is_understood || counts && rule.peers.iter().any(is_somebody) {
        Outcome::Deny
    } else {
        Outcome::NoMatch
    }
}

/// Whether any matches; none if any is not understood.
fn any(matches: impl Iterator<Item = Match>) -> Match {
    let all: Option<Vec<bool>> = matches.collect();
    all.map(|all| all.contains(&true))
}

fn cluster_peer(one: &cluster::Peer, asked: &Asked<'_>, accepts: bool) -> Match {
    let peer = asked.peer;
    let egress = asked.direction == Direction::Out;
    match one {
        cluster::Peer::Namespaces(namespaces) => {
            let pod = peer.pod.as_ref();
            understood(namespaces)?;
            Some(pod.is_some_and(|pod| namespaces.selects(&pod.namespace_labels)))
        }
        cluster::Peer::Pods { namespace, pod } => {
            understood(namespace)?;
            understood(pod)?;
            let selected = |other: &PodParty| {
                namespace.selects(&other.namespace_labels) && pod.selects(&other.labels)
            };
            Some(peer.pod.as_ref().is_some_and(selected))
        }
        cluster::Peer::Nodes(nodes) if egress => {
            understood(nodes)?;
            let mut all = peer.nodes.iter();
            Some(all.any(|labels| nodes.selects_by(|key| labels.get(key))))
        }
        cluster::Peer::Networks(cidrs) if egress => any(cidrs
            .iter()
            .map(|cidr| in_block(&peer.addresses, cidr, &[]))),
        cluster::Peer::DomainNames(_) if egress && accepts => Some(false),
        _ => None,
    }
}

fn understood(selector: &LabelSelector) -> Option<()> {
    selector.unknown_operator().is_none().then_some(())
}

fn cluster_protocol(one: &Protocol, packet: &Packet) -> Match {
    match one {
        Protocol::Ports { protocol, port } => {
            port_matches(Some(protocol_number(protocol)?), port, packet)
        }
        Protocol::NamedPort(name) => port_matches(None, &PortMatch::Named(name.clone()), packet),
        Protocol::Unknown(_) => None,
    }
}

fn port_matches(protocol: Option<u8>, port: &PortMatch, packet: &Packet) -> Match {
    let same = protocol.is_none_or(|protocol| protocol == packet.protocol);
    match port {
        PortMatch::All => Some(same),
        PortMatch::Range(first, last) if first <= last => {
            Some(same && (*first..=*last).contains(&packet.port))
        }
        PortMatch::Range(..) | PortMatch::Invalid(_) => None,
        PortMatch::Named(name) => {
            let mut ports = packet.to.pod.iter().flat_map(|pod| &pod.ports);
            let named = |one: &NamedPort| {
                one.name == *name
                    && protocol_number(&one.protocol) == Some(packet.protocol)
                    && one.port == packet.port
            };
            Some(same && ports.any(named))
        }
    }
}

/// Whether an end is in a CIDR without its exceptions.
fn in_block(addresses: &EndAddresses, cidr: &str, except: &[String]) -> Match {
    let cidr = parse_cidr(cidr)?;
    let except: Option<Vec<IpNetwork>> = except.iter().map(|one| parse_cidr(one)).collect();
    Some(addresses.is_in(&cidr, &except?))
}
