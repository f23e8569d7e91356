//! The rules of a NetworkPolicy.

use tweed_core::object::network_policy::{self as network, NetworkPolicy, Port};
use tweed_core::text::printable;

use super::{
    Action, Atom, Namespaces, Peers, Rule, Rules, Tier, add_port, block, operators_known, port_text,
};
use crate::policy::model::ports::RulePorts;
use crate::policy::model::verdicts::PerDirection;

/// The rules of a NetworkPolicy.
pub fn of_network_policy(policy: &NetworkPolicy) -> Rules {
    let mut unsupported = Vec::new();
    let known_subject = operators_known(&policy.pod_selector, &mut unsupported);
    let types = policy_types(policy, &mut unsupported);
    let mut direction = |applies: bool, rules: &[network::Rule]| {
        let rule = |rule| network_rule(&policy.namespace, rule, &mut unsupported);
        let mut rules: Vec<Rule> = rules.iter().filter_map(rule).collect();
        // A policy may have thousands, and stays.
        rules.shrink_to_fit();
        applies.then(|| if known_subject { rules } else { Vec::new() })
    };
    let egress = direction(types.egress, &policy.egress);
    let rules = PerDirection {
        ingress: direction(types.ingress, &policy.ingress),
        egress: egress.map(|rules| rules.into_iter().flat_map(Rule::split).collect()),
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
        Peers::of(rule.peers.iter().filter_map(atom).collect())
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
    let is_nobody = matches!(&peers, Peers::Any(atoms) if atoms.is_empty());
    let matches = !is_nobody && !ports.is_empty();
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
