//! What the specification of NetworkPolicy and ClusterNetworkPolicy says of one packet:
//! plain code that asks one rule after the other, and says which one decided.
//!
//! It answers people who ask why a packet passes or not, and the compiled plan is tested
//! against it. So it shares nothing with the compiler but the objects.

mod matching;

use std::collections::BTreeSet;

use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::node_labels::NodeLabels;
use tweed_core::object::pod::NamedPort;
use tweed_core::object::selector::Labels;

use super::model::end_addresses::EndAddresses;
use super::model::local::PolicyKey;
use super::verdicts::Direction;
use matching::{Asked, Outcome};

/// A pod as policies see it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodParty {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// The labels of its namespace, with `kubernetes.io/metadata.name`.
    pub namespace_labels: Labels,
    /// Its named ports.
    pub ports: Vec<NamedPort>,
}

/// One end of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Party {
    /// The address, and others that count as well.
    pub addresses: EndAddresses,
    /// The pod, unless it is on the host's network or has ended.
    pub pod: Option<PodParty>,
    /// The labels of the Nodes that have the address.
    pub nodes: Vec<NodeLabels>,
}

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The source.
    pub from: Party,
    /// The destination, after a Service's address was replaced by a pod's.
    pub to: Party,
    /// The number of the protocol: 1 is ICMP, 6 TCP, 17 UDP, 58 ICMPv6, 132 SCTP.
    pub protocol: u8,
    /// The destination port; without meaning for protocols without ports.
    pub port: u16,
}

/// The policies of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Policies<'a> {
    /// NetworkPolicies.
    pub network: Vec<&'a NetworkPolicy>,
    /// ClusterNetworkPolicies.
    pub cluster: Vec<&'a ClusterNetworkPolicy>,
    /// Those that are refused for what they cost.
    pub refused: BTreeSet<PolicyKey>,
}

/// Whether a packet passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    Allowed,
    /// It is dropped.
    Denied,
}

/// What decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// This end is no pod that policies are about.
    NotSubject,
    /// It comes from the pod's own node, which always reaches its pods.
    OwnNode,
    /// The pod is of this node and not known yet, so that it is isolated.
    NotYetKnown,
    /// The pod speaks to itself through a Service, which NetworkPolicies always allow.
    Itself,
    /// No policy that selects the pod decides this packet.
    Default,
    /// A rule.
    Rule {
        /// The policy.
        policy: PolicyKey,
        /// The rule's place among those of its direction, from 0.
        rule: usize,
        /// The rule's name; empty in a NetworkPolicy.
        name: String,
    },
    /// These NetworkPolicies select the pod, and none of them allows the packet.
    NoneAllows(Vec<PolicyKey>),
}

/// What policies say of a packet at one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether it passes.
    pub verdict: Verdict,
    /// What decided.
    pub decision: Decision,
    /// The policies that select the pod in this direction, in the order in which they
    /// were asked.
    pub policies: Vec<PolicyKey>,
}

/// What policies say of a packet at both ends: it passes if both allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// At its source.
    pub egress: Evaluation,
    /// At its destination.
    pub ingress: Evaluation,
}

impl Evaluation {
    /// A evaluation without policies.
    pub(super) fn without_policies(verdict: Verdict, decision: Decision) -> Self {
        Self {
            verdict,
            decision,
            policies: Vec::new(),
        }
    }
}

/// Judges a packet in one direction.
#[must_use]
pub fn evaluate(policies: &Policies<'_>, packet: &Packet, direction: Direction) -> Evaluation {
    let (subject, peer) = match direction {
        Direction::In => (&packet.to, &packet.from),
        Direction::Out => (&packet.from, &packet.to),
    };
    let Some(pod) = &subject.pod else {
        return Evaluation::without_policies(Verdict::Allowed, Decision::NotSubject);
    };
    let mut asked = Vec::new();
    let mut question = Question {
        packet,
        direction,
        pod,
        peer,
        policies_asked: &mut asked,
    };
    let decided = question
        .tier(policies, "Admin")
        .or_else(|| question.network_policies(policies, subject == peer))
        .or_else(|| question.tier(policies, "Baseline"));
    let (verdict, decision) = decided.unwrap_or((Verdict::Allowed, Decision::Default));
    Evaluation {
        verdict,
        decision,
        policies: asked,
    }
}

/// What is asked of policies.
struct Question<'a> {
    packet: &'a Packet,
    direction: Direction,
    pod: &'a PodParty,
    peer: &'a Party,
    policies_asked: &'a mut Vec<PolicyKey>,
}

impl Question<'_> {
    /// Asks the ClusterNetworkPolicies of a tier.
    fn tier(&mut self, policies: &Policies<'_>, tier: &str) -> Option<(Verdict, Decision)> {
        let of_tier = |policy: &&ClusterNetworkPolicy| match policy.tier.as_str() {
            known @ ("Admin" | "Baseline") => known == tier,
            // One of an unknown tier can only deny, and that before all others.
            _ => tier == "Admin",
        };
        let mut cluster: Vec<_> = policies.cluster.iter().copied().filter(of_tier).collect();
        cluster.sort_by_key(|policy| (policy.priority, &policy.name));
        for policy in cluster {
            let rules = match self.direction {
                Direction::In => &policy.ingress,
                Direction::Out => &policy.egress,
            };
            if rules.is_empty() || !matching::is_cluster_subject(policy, self.pod) {
                continue;
            }
            let key = PolicyKey::Cluster(policy.name.clone());
            self.policies_asked.push(key.clone());
            let asked = self.asked();
            let refused = policies.refused.contains(&key);
            let denies_only = !matching::is_understood(policy);
            for (at, rule) in rules.iter().enumerate() {
                let outcome = if refused {
                    matching::refused_rule(rule, denies_only, &asked)
                } else {
                    matching::cluster_rule(rule, &asked)
                };
                let decision = || Decision::Rule {
                    policy: PolicyKey::Cluster(policy.name.clone()),
                    rule: at,
                    name: rule.name.clone(),
                };
                match outcome {
                    Outcome::Deny => return Some((Verdict::Denied, decision())),
                    Outcome::Accept if !denies_only => {
                        return Some((Verdict::Allowed, decision()));
                    }
                    Outcome::Pass if !denies_only => return None,
                    Outcome::Accept | Outcome::Pass | Outcome::NoMatch => {}
                }
            }
        }
        None
    }

    /// What rules are asked.
    fn asked(&self) -> Asked<'_> {
        Asked {
            direction: self.direction,
            peer: self.peer,
            packet: self.packet,
        }
    }

    /// Asks the NetworkPolicies.
    fn network_policies(
        &mut self,
        policies: &Policies<'_>,
        itself: bool,
    ) -> Option<(Verdict, Decision)> {
        let selects = |policy: &&NetworkPolicy| {
            policy.namespace == self.pod.namespace
                && matching::is_about(policy, self.direction)
                && policy.pod_selector.may_select(&self.pod.labels)
        };
        let mut network: Vec<_> = policies.network.iter().copied().filter(selects).collect();
        network.sort_by_key(|policy| &policy.name);
        let key = |policy: &NetworkPolicy| {
            PolicyKey::Network(policy.namespace.clone(), policy.name.clone())
        };
        let keys: Vec<PolicyKey> = network.iter().map(|policy| key(policy)).collect();
        self.policies_asked.extend(keys.iter().cloned());
        if network.is_empty() {
            return None;
        }
        if itself {
            return Some((Verdict::Allowed, Decision::Itself));
        }
        for policy in network {
            let rules = match self.direction {
                Direction::In => &policy.ingress,
                Direction::Out => &policy.egress,
            };
            let known = policy.pod_selector.unknown_operator().is_none();
            let counts = known && !policies.refused.contains(&key(policy));
            let asked = self.asked();
            let matches = |rule| matching::network_rule(policy, rule, &asked);
            if counts && let Some(rule) = rules.iter().position(matches) {
                let decision = Decision::Rule {
                    policy: key(policy),
                    rule,
                    name: String::new(),
                };
                return Some((Verdict::Allowed, decision));
            }
        }
        Some((Verdict::Denied, Decision::NoneAllows(keys)))
    }
}
