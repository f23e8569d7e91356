//! Decoding of ClusterNetworkPolicies (`policy.networking.k8s.io/v1alpha2`).
//!
//! The kind comes from a CRD: a server answers in JSON even where protobuf is preferred.
//! The API is young, so that fields of a newer version are to be expected. One that is
//! not known makes what it stands in unknown: a peer, a protocol, a subject, or, if it
//! is a rule, all peers of that rule. What the CRD requires and is missing is unknown
//! too. The planner decides what unknown means; it is never as good as absent.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use tweed_core::object::cluster_network_policy::{
    ClusterNetworkPolicy, Peer, Protocol, Rule, Subject,
};
use tweed_core::object::network_policy::PortMatch;
use tweed_core::object::selector::LabelSelector;

use super::metadata::Metadata;
use super::network_policy_port::range;
use super::selector::Selector;
use super::{list, lossy, only_keys, optional_text, text};
use crate::kind::{InvalidName, Kind};

/// The priority of a policy that has no number there: none that the API allows.
const NO_PRIORITY: i64 = -1;

message! {
    /// The used fields of a ClusterNetworkPolicy.
    pub struct ClusterNetworkPolicyFields {
        metadata: one(Metadata) = 1,
        /// `spec` as JSON. No server sends it in protobuf; the number is ours.
        #[prost(bytes = "vec", tag = "10000")]
        #[serde(deserialize_with = "json")]
        spec: Vec<u8>,
    }
}

fn json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    Ok(Value::deserialize(deserializer)?.to_string().into_bytes())
}

impl Kind for ClusterNetworkPolicy {
    const NAME: &'static str = "ClusterNetworkPolicy";
    const PATH: &'static str = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies";
    const OPTIONAL: bool = true;
    type Fields = ClusterNetworkPolicyFields;

    fn from_fields(fields: ClusterNetworkPolicyFields) -> Result<Self, InvalidName> {
        let mut metadata = fields.metadata.unwrap_or_default();
        // What is no JSON has no subject, and the planner refuses it by that.
        let mut spec: Value = serde_json::from_slice(&fields.spec).unwrap_or_default();
        Ok(Self {
            name: metadata.name(Self::NAME)?,
            uid: lossy(metadata.uid),
            tier: optional_string(&mut spec, "tier"),
            priority: (spec.get("priority").and_then(Value::as_i64)).unwrap_or(NO_PRIORITY),
            subject: subject(spec.get_mut("subject").map(Value::take).unwrap_or_default()),
            ingress: (list(&mut spec, "ingress").map(|one| rule(one, "from", ingress_peer)))
                .collect(),
            egress: (list(&mut spec, "egress").map(|one| rule(one, "to", egress_peer))).collect(),
        })
    }
}

fn optional_string(object: &mut Value, name: &str) -> String {
    lossy(optional_text(object, name))
}

/// The name and the value of the only field of a JSON object. Null is no field.
fn only_field(value: &Value) -> Option<(&str, Value)> {
    let object = value.as_object()?;
    let mut fields = object.iter().filter(|(_, value)| !value.is_null());
    match (fields.next(), fields.next()) {
        (Some((name, value)), None) => Some((name, value.clone())),
        _ => None,
    }
}

fn selector(value: Value) -> LabelSelector {
    Selector::of_json(value).into()
}

/// The selectors of a `NamespacedPod`: of the namespace and of the pod. That of the namespace
/// may be left out, and is then one of all namespaces
/// (`network-policy-api/apis/v1alpha2/clusternetworkpolicy_types.go`).
fn namespaced_pod(value: Value) -> Option<(LabelSelector, LabelSelector)> {
    let mut fields = only_keys(value, &["namespaceSelector", "podSelector"])?;
    let mut given = |name| fields.remove(name).filter(|value| !value.is_null());
    let namespace = given("namespaceSelector").map(selector);
    let pod = selector(given("podSelector")?);
    Some((namespace.unwrap_or_default(), pod))
}

fn subject(value: Value) -> Subject {
    let known = match only_field(&value) {
        Some(("namespaces", namespaces)) => Some(Subject::Namespaces(selector(namespaces))),
        Some(("pods", pods)) => {
            namespaced_pod(pods).map(|(namespace, pod)| Subject::Pods { namespace, pod })
        }
        _ => None,
    };
    known.unwrap_or_else(|| Subject::Unknown(value.to_string()))
}

/// A rule whose peers are in the field `peers`, each read by `peer`.
fn rule(value: Value, peers: &str, peer: fn(&Value) -> Option<Peer>) -> Rule {
    let known = only_keys(value.clone(), &["name", "action", "protocols", peers]);
    let is_known = known.is_some();
    let mut fields = match value {
        Value::Object(ref fields) => Value::Object(fields.clone()),
        _ => Value::Object(Map::new()),
    };
    let read = |entry: Value| peer(&entry).unwrap_or_else(|| Peer::Unknown(entry.to_string()));
    let mut found: Vec<Peer> = list(&mut fields, peers).map(read).collect();
    if !is_known || found.is_empty() {
        found = vec![Peer::Unknown(value.to_string())];
    }
    Rule {
        name: optional_string(&mut fields, "name"),
        action: optional_string(&mut fields, "action"),
        peers: found,
        protocols: list(&mut fields, "protocols").map(protocol).collect(),
    }
}

fn ingress_peer(value: &Value) -> Option<Peer> {
    match only_field(value)? {
        ("namespaces", namespaces) => Some(Peer::Namespaces(selector(namespaces))),
        ("pods", pods) => {
            namespaced_pod(pods).map(|(namespace, pod)| Peer::Pods { namespace, pod })
        }
        _ => None,
    }
}

fn egress_peer(value: &Value) -> Option<Peer> {
    let texts = |entries: Value| match entries {
        Value::Array(entries) if !entries.is_empty() => {
            Some(entries.into_iter().map(|e| lossy(text(e))).collect())
        }
        _ => None,
    };
    match only_field(value)? {
        ("nodes", nodes) => Some(Peer::Nodes(selector(nodes))),
        ("networks", networks) => texts(networks).map(Peer::Networks),
        ("domainNames", names) => texts(names).map(Peer::DomainNames),
        _ => ingress_peer(value),
    }
}

fn protocol(value: Value) -> Protocol {
    let ports = |protocol: &str, of: &Value| {
        let ("destinationPort", port) = only_field(of)? else {
            return None;
        };
        let protocol = protocol.to_owned();
        destination_port(&port).map(|port| Protocol::Ports { protocol, port })
    };
    let known = match only_field(&value) {
        Some(("tcp", tcp)) => ports("TCP", &tcp),
        Some(("udp", udp)) => ports("UDP", &udp),
        Some(("sctp", sctp)) => ports("SCTP", &sctp),
        Some(("destinationNamedPort", Value::String(name))) if !name.is_empty() => {
            Some(Protocol::NamedPort(name))
        }
        _ => None,
    };
    known.unwrap_or_else(|| Protocol::Unknown(value.to_string()))
}

fn destination_port(port: &Value) -> Option<PortMatch> {
    match only_field(port)? {
        ("number", number) => number.as_i64().map(|number| range(number, number)),
        ("range", ends) => {
            let ends = only_keys(ends, &["start", "end"])?;
            let end = |name: &str| ends.get(name).and_then(Value::as_i64);
            Some(range(end("start")?, end("end")?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
