//! Decoding of NetworkPolicies.
//!
//! Everything that cannot be understood stays in the policy as a value that says so, so
//! that it is never as good as absent: a rule without peers or ports is wider than any
//! other. A field that this build does not know is noticed in JSON and YAML within a
//! rule; in protobuf a field that is unknown is skipped, and a peer that has only such
//! fields is left without any.
//!
//! The field numbers are those of `k8s.io/api/networking/v1/generated.proto`. Those from
//! 10000 on are ours, for what JSON can have in place of an object.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use tweed_core::object::network_policy::{NetworkPolicy, Peer, Rule};
use tweed_core::object::selector::LabelSelector;

use super::metadata::Metadata;
use super::network_policy_port::PolicyPort;
use super::selector::{Selector, selector};
use super::{exact, list, lossy, only_keys, or_invalid, strict_object, text};
use crate::kind::{InvalidName, Kind};

message! {
    /// The used fields of a NetworkPolicy.
    pub struct NetworkPolicyFields {
        metadata: one(Metadata) = 1,
        spec: one(Spec) = 2,
    }

    #[serde(deny_unknown_fields)]
    struct PeerFields {
        #[prost(message, optional, tag = "1")]
        #[serde(deserialize_with = "selector")]
        pod_selector: Option<Selector>,
        #[prost(message, optional, tag = "2")]
        #[serde(deserialize_with = "selector")]
        namespace_selector: Option<Selector>,
        #[prost(message, optional, tag = "3")]
        #[serde(deserialize_with = "strict_object")]
        ip_block: Option<Block>,
        /// What JSON has in place of a peer.
        #[prost(bytes = "vec", tag = "10000")]
        #[serde(skip)]
        invalid: Vec<u8>,
    }

    #[serde(deny_unknown_fields)]
    struct Block {
        cidr: text = 1,
        except: texts = 2,
    }
}

#[derive(prost::Message, Deserialize)]
#[serde(from = "Value")]
struct Spec {
    #[prost(message, optional, tag = "1")]
    pod_selector: Option<Selector>,
    #[prost(message, repeated, tag = "2")]
    ingress: Vec<RuleFields>,
    #[prost(message, repeated, tag = "3")]
    egress: Vec<RuleFields>,
    #[prost(bytes = "vec", repeated, tag = "4")]
    policy_types: Vec<Vec<u8>>,
}

/// A rule of either direction: `from` and `to` have the same number.
#[derive(prost::Message)]
struct RuleFields {
    #[prost(message, repeated, tag = "1")]
    ports: Vec<PolicyPort>,
    #[prost(message, repeated, tag = "2")]
    peers: Vec<PeerFields>,
}

impl Kind for NetworkPolicy {
    const NAME: &'static str = "NetworkPolicy";
    const PATH: &'static str = "/apis/networking.k8s.io/v1/networkpolicies";
    type Fields = NetworkPolicyFields;

    fn from_fields(fields: NetworkPolicyFields) -> Result<Self, InvalidName> {
        let mut metadata = fields.metadata.unwrap_or_default();
        let spec = fields.spec.unwrap_or_default();
        Ok(Self {
            namespace: metadata.namespace()?,
            name: metadata.name(Self::NAME)?,
            uid: lossy(metadata.uid),
            pod_selector: spec.pod_selector.unwrap_or_default().into(),
            policy_types: exact(spec.policy_types.into_iter().map(lossy)),
            ingress: exact(spec.ingress.into_iter().map(Rule::from)),
            egress: exact(spec.egress.into_iter().map(Rule::from)),
        })
    }
}

impl From<RuleFields> for Rule {
    fn from(rule: RuleFields) -> Self {
        Self {
            peers: exact(rule.peers.into_iter().map(Peer::from)),
            ports: exact(rule.ports.into_iter().map(PolicyPort::read)),
        }
    }
}

impl From<PeerFields> for Peer {
    fn from(peer: PeerFields) -> Self {
        let unknown = |why: Cow<'_, str>| Self::Unknown(why.into_owned());
        if !peer.invalid.is_empty() {
            return unknown(String::from_utf8_lossy(&peer.invalid));
        }
        let selectors = (peer.namespace_selector, peer.pod_selector);
        match (peer.ip_block, selectors) {
            (Some(block), (None, None)) => Self::Block {
                cidr: lossy(block.cidr),
                except: exact(block.except.into_iter().map(lossy)),
            },
            (Some(_), _) => unknown("ipBlock beside a selector".into()),
            (None, (None, None)) => unknown("no field that is known".into()),
            (None, (namespace, pod)) => Self::Pods {
                namespace: namespace.map(LabelSelector::from),
                pod: pod.map(LabelSelector::from),
            },
        }
    }
}

impl From<Value> for Spec {
    fn from(mut spec: Value) -> Self {
        if !spec.is_object() {
            // Which pods it is for is not known: a selector that says so.
            return Self {
                pod_selector: Some(Selector::of_json(spec)),
                ..Self::default()
            };
        }
        let selector = spec.get_mut("podSelector").map(Value::take);
        Self {
            pod_selector: selector.filter(|one| !one.is_null()).map(Selector::of_json),
            ingress: (list(&mut spec, "ingress").map(|rule| RuleFields::of_json(rule, "from")))
                .collect(),
            egress: (list(&mut spec, "egress").map(|rule| RuleFields::of_json(rule, "to")))
                .collect(),
            policy_types: list(&mut spec, "policyTypes").map(text).collect(),
        }
    }
}

impl RuleFields {
    /// A rule whose peers are in the field `peers`. One that cannot be understood has a
    /// peer that says so and matches nothing.
    fn of_json(rule: Value, peers: &str) -> Self {
        let Some(fields) = only_keys(rule.clone(), &["ports", peers]) else {
            return Self {
                ports: Vec::new(),
                peers: vec![PeerFields::invalid(rule.to_string().into_bytes())],
            };
        };
        let mut rule = Value::Object(fields);
        Self {
            ports: list(&mut rule, "ports").map(PolicyPort::of_json).collect(),
            peers: list(&mut rule, peers)
                .map(|peer| or_invalid(peer, PeerFields::invalid))
                .collect(),
        }
    }
}

impl PeerFields {
    fn invalid(invalid: Vec<u8>) -> Self {
        Self {
            invalid,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests;
