//! The rules of a ClusterNetworkPolicy, and whom it is about.

use std::collections::BTreeSet;

use tweed_core::object::cluster_network_policy::{
    self as cluster, ClusterNetworkPolicy, Protocol, Subject,
};
use tweed_core::object::selector::{LabelSelector, Labels};
use tweed_core::text::printable;

use super::{
    Action, Atom, Namespaces, Peers, Rule, Rules, Tier, add_port, block, operators_known, port_text,
};
use crate::policy::model::labels::LabelSet;
use crate::policy::model::ports::RulePorts;
use crate::policy::model::verdicts::{Direction, PerDirection};

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
    let egress = rules_of(Direction::Out, &policy.egress);
    let rules = PerDirection {
        ingress: rules_of(Direction::In, &policy.ingress),
        egress: egress.map(|rules| rules.into_iter().flat_map(Rule::split).collect()),
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
        return (action != Action::Accept).then(Rule::denies_everything);
    };
    let matches = !atoms.is_empty() && !ports.is_empty();
    matches.then_some(Rule {
        action,
        peers: Peers::of(atoms),
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
