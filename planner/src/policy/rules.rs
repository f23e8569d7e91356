//! A policy as rules over interned peers and sets of ports, with what of it cannot be
//! represented.
//!
//! What cannot be represented never allows anything: in a NetworkPolicy the entry
//! matches nothing; in a ClusterNetworkPolicy a rule with an unknown part matches
//! nothing if it accepts, and denies everything otherwise. A subject with an unknown
//! operator is read without that requirement, so that the pods that may be meant are
//! isolated, and then nothing is allowed by the policy.

use std::collections::BTreeSet;

use ipnetwork::IpNetwork;
use tweed_core::object::cluster_network_policy::{
    self as cluster, ClusterNetworkPolicy, Protocol, Subject,
};
use tweed_core::object::network_policy::{self as network, NetworkPolicy, Port, PortMatch};
use tweed_core::object::selector::{LabelSelector, Labels};
use tweed_core::text::printable;

use super::addresses::parse_cidr;
use super::desired::{Direction, PerDirection};
use super::labels::LabelSet;
use super::ports::{PortSet, RulePorts, protocol_number};

/// Which namespaces a selector of pods is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespaces {
    /// This one.
    Named(String),
    /// Those with such labels.
    Selected(LabelSelector),
}

/// One thing that a rule can name as the other end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// Pods that are not on the host's network.
    Pods(Namespaces, LabelSelector),
    /// A CIDR without exceptions.
    Block(IpNetwork, Vec<IpNetwork>),
    /// Nodes.
    Nodes(LabelSelector),
}

/// The other ends of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// Everybody.
    All,
    /// Whoever is one of these.
    Any(BTreeSet<Atom>),
}

/// What a rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The packet passes.
    Accept,
    /// It is dropped.
    Deny,
    /// The rest of the tier is left out.
    Pass,
}

/// When a rule is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Before NetworkPolicies.
    Admin,
    /// A NetworkPolicy.
    Network,
    /// After them, for pods that none selects.
    Baseline,
}

/// A rule of a policy in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What it decides; a NetworkPolicy only accepts.
    pub action: Action,
    /// The other ends.
    pub peers: Peers,
    /// Protocols and destination ports.
    pub ports: RulePorts,
}

/// A policy that can be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// When it is asked.
    pub tier: Tier,
    /// The order within the tier; lower is earlier, then the name decides.
    pub priority: i64,
    /// The rules of each direction that the policy is about.
    pub rules: PerDirection<Option<Vec<Rule>>>,
    /// What of it cannot be represented.
    pub unsupported: Vec<String>,
}

/// Whether a ClusterNetworkPolicy selects a pod.
pub fn cluster_policy_selects(
    policy: &ClusterNetworkPolicy,
    namespace: &Labels,
    labels: &LabelSet,
) -> bool {
    match &policy.subject {
        Subject::Namespaces(selector) => selector.may_select(namespace),
        Subject::Pods { namespace: of, pod } => {
            of.may_select(namespace) && labels.may_be_selected_by(pod)
        }
        Subject::Unknown(_) => false,
    }
}

/// The rules of a NetworkPolicy.
pub fn of_network_policy(policy: &NetworkPolicy) -> Rules {
    let mut unsupported = Vec::new();
    let known_subject = operators_known(&policy.pod_selector, &mut unsupported);
    let types = policy_types(policy, &mut unsupported);
    let mut direction = |applies: bool, rules: &[network::Rule]| {
        let rule = |rule| network_rule(&policy.namespace, rule, &mut unsupported);
        let rules: Vec<Rule> = rules.iter().filter_map(rule).collect();
        applies.then(|| if known_subject { rules } else { Vec::new() })
    };
    let rules = PerDirection {
        ingress: direction(types.ingress, &policy.ingress),
        egress: direction(types.egress, &policy.egress),
    };
    Rules {
        tier: Tier::Network,
        priority: 0,
        rules,
        unsupported,
    }
}

/// The directions of a NetworkPolicy. With a type that is not known both are meant.
fn policy_types(policy: &NetworkPolicy, unsupported: &mut Vec<String>) -> PerDirection<bool> {
    let mut types = PerDirection::default();
    if policy.policy_types.is_empty() {
        types.ingress = true;
        types.egress = !policy.egress.is_empty();
    }
    for one in &policy.policy_types {
        match one.as_str() {
            "Ingress" => types.ingress = true,
            "Egress" => types.egress = true,
            other => {
                unsupported.push(format!("policy type {}", printable(other)));
                types = PerDirection {
                    ingress: true,
                    egress: true,
                };
                break;
            }
        }
    }
    types
}

fn network_rule(namespace: &str, rule: &network::Rule, bad: &mut Vec<String>) -> Option<Rule> {
    let peers = if rule.peers.is_empty() {
        Peers::All
    } else {
        let atom = |peer| network_peer(namespace, peer, bad);
        Peers::Any(rule.peers.iter().filter_map(atom).collect())
    };
    let mut ports = RulePorts::default();
    if rule.ports.is_empty() {
        ports = RulePorts::all();
    }
    for Port { protocol, port } in &rule.ports {
        if !add_port(&mut ports, protocol, port) {
            bad.push(format!("port {}", port_text(protocol, port)));
        }
    }
    let matches = peers != Peers::Any(BTreeSet::new()) && !ports.is_empty();
    matches.then_some(Rule {
        action: Action::Accept,
        peers,
        ports,
    })
}

fn network_peer(own: &str, peer: &network::Peer, bad: &mut Vec<String>) -> Option<Atom> {
    match peer {
        network::Peer::Pods { namespace, pod } => {
            let pod = pod.clone().unwrap_or_default();
            let namespaces = match namespace {
                None => Namespaces::Named(own.to_owned()),
                Some(selector) if operators_known(selector, bad) => {
                    Namespaces::Selected(selector.clone())
                }
                Some(_) => return None,
            };
            operators_known(&pod, bad).then_some(Atom::Pods(namespaces, pod))
        }
        network::Peer::Block { cidr, except } => {
            let block = block(cidr, except);
            if block.is_none() {
                let texts: Vec<String> = except.iter().map(|one| printable(one)).collect();
                bad.push(format!(
                    "ipBlock {} except [{}]",
                    printable(cidr),
                    texts.join(", ")
                ));
            }
            block
        }
        network::Peer::Unknown(text) => {
            bad.push(format!("peer {}", printable(text)));
            None
        }
    }
}

fn block(cidr: &str, except: &[String]) -> Option<Atom> {
    let cidr = parse_cidr(cidr)?;
    let mut holes = Vec::new();
    for one in except {
        holes.push(parse_cidr(one)?);
    }
    holes.sort_unstable();
    Some(Atom::Block(cidr, holes))
}

/// The rules of a ClusterNetworkPolicy.
pub fn of_cluster_policy(policy: &ClusterNetworkPolicy) -> Rules {
    let mut unsupported = Vec::new();
    let mut restricted = !subject_known(&policy.subject, &mut unsupported);
    let tier = match policy.tier.as_str() {
        "Admin" => Tier::Admin,
        "Baseline" => Tier::Baseline,
        other => {
            unsupported.push(format!("tier {}", printable(other)));
            restricted = true;
            Tier::Admin
        }
    };
    let mut rules_of = |direction, rules: &[cluster::Rule]| {
        let rule = |rule| cluster_rule(direction, rule, &mut unsupported);
        let denies = |rule: &Rule| !restricted || rule.action == Action::Deny;
        let rules: Vec<Rule> = rules.iter().filter_map(rule).filter(denies).collect();
        (!rules.is_empty()).then_some(rules)
    };
    let rules = PerDirection {
        ingress: rules_of(Direction::In, &policy.ingress),
        egress: rules_of(Direction::Out, &policy.egress),
    };
    Rules {
        tier,
        priority: policy.priority,
        rules,
        unsupported,
    }
}

/// Whether what the policy is about is known.
fn subject_known(subject: &Subject, bad: &mut Vec<String>) -> bool {
    match subject {
        Subject::Namespaces(selector) => operators_known(selector, bad),
        Subject::Pods { namespace, pod } => {
            operators_known(namespace, bad) & operators_known(pod, bad)
        }
        Subject::Unknown(text) => {
            bad.push(format!("subject {}", printable(text)));
            false
        }
    }
}

fn cluster_rule(direction: Direction, rule: &cluster::Rule, bad: &mut Vec<String>) -> Option<Rule> {
    let action = match rule.action.as_str() {
        "Accept" => Action::Accept,
        "Deny" => Action::Deny,
        "Pass" => Action::Pass,
        other => {
            bad.push(format!("action {}", printable(other)));
            Action::Deny
        }
    };
    let peers = cluster_peers(direction, action, &rule.peers, bad);
    let ports = cluster_ports(&rule.protocols, bad);
    let (Some(atoms), Some(ports)) = (peers, ports) else {
        return (action != Action::Accept).then(|| Rule {
            action: Action::Deny,
            peers: Peers::All,
            ports: RulePorts::all(),
        });
    };
    let matches = !atoms.is_empty() && !ports.is_empty();
    matches.then_some(Rule {
        action,
        peers: Peers::Any(atoms),
        ports,
    })
}

/// The peers of a rule; none if one of them is not known.
fn cluster_peers(
    direction: Direction,
    action: Action,
    peers: &[cluster::Peer],
    bad: &mut Vec<String>,
) -> Option<BTreeSet<Atom>> {
    let egress = direction == Direction::Out;
    let mut atoms = BTreeSet::new();
    for peer in peers {
        match peer {
            cluster::Peer::Namespaces(namespaces) => {
                let all = LabelSelector::default();
                atoms.insert(pods_peer(namespaces, &all, bad)?);
            }
            cluster::Peer::Pods { namespace, pod } => {
                atoms.insert(pods_peer(namespace, pod, bad)?);
            }
            cluster::Peer::Nodes(selector) if egress => {
                if !operators_known(selector, bad) {
                    return None;
                }
                atoms.insert(Atom::Nodes(selector.clone()));
            }
            cluster::Peer::Networks(cidrs) if egress => {
                for cidr in cidrs {
                    let Some(block) = block(cidr, &[]) else {
                        bad.push(format!("network {}", printable(cidr)));
                        return None;
                    };
                    atoms.insert(block);
                }
            }
            cluster::Peer::DomainNames(names) if egress => {
                bad.push(format!("domainNames {}", printable(&names.join(", "))));
                if action != Action::Accept {
                    return None;
                }
            }
            cluster::Peer::Unknown(text) => {
                bad.push(format!("peer {}", printable(text)));
                return None;
            }
            _ => {
                bad.push("a peer of ingress that only egress has".to_owned());
                return None;
            }
        }
    }
    Some(atoms)
}

fn pods_peer(of: &LabelSelector, pod: &LabelSelector, bad: &mut Vec<String>) -> Option<Atom> {
    let known = operators_known(of, bad) && operators_known(pod, bad);
    known.then(|| Atom::Pods(Namespaces::Selected(of.clone()), pod.clone()))
}

/// The protocols of a rule; none if one of them is not known.
fn cluster_ports(protocols: &[Protocol], bad: &mut Vec<String>) -> Option<RulePorts> {
    if protocols.is_empty() {
        return Some(RulePorts::all());
    }
    let mut ports = RulePorts::default();
    for one in protocols {
        match one {
            Protocol::Ports { protocol, port } => {
                if !add_port(&mut ports, protocol, port) {
                    bad.push(format!("port {}", port_text(protocol, port)));
                    return None;
                }
            }
            Protocol::NamedPort(name) => ports.named.push((None, name.clone())),
            Protocol::Unknown(text) => {
                bad.push(format!("protocol {}", printable(text)));
                return None;
            }
        }
    }
    Some(ports)
}

/// Adds a port; false if it cannot be understood.
fn add_port(ports: &mut RulePorts, protocol: &str, port: &PortMatch) -> bool {
    let Some(protocol) = protocol_number(protocol) else {
        return false;
    };
    let (first, last) = match port {
        PortMatch::All => (0, u16::MAX),
        PortMatch::Range(first, last) if first <= last => (*first, *last),
        PortMatch::Range(..) | PortMatch::Invalid(_) => return false,
        PortMatch::Named(name) => {
            ports.named.push((Some(protocol), name.clone()));
            return true;
        }
    };
    ports.fixed = ports.fixed.union(&PortSet::range(protocol, first, last));
    true
}

fn port_text(protocol: &str, port: &PortMatch) -> String {
    let port = match port {
        PortMatch::All => String::new(),
        PortMatch::Range(first, last) => format!(" {first}-{last}"),
        PortMatch::Named(name) | PortMatch::Invalid(name) => format!(" {}", printable(name)),
    };
    format!("{}{port}", printable(protocol))
}

/// Whether all operators of a selector are known.
fn operators_known(selector: &LabelSelector, bad: &mut Vec<String>) -> bool {
    let unknown = selector.unknown_operator();
    bad.extend(unknown.map(|operator| format!("operator {}", printable(operator))));
    unknown.is_none()
}
