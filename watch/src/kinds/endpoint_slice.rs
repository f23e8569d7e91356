//! Decoding of EndpointSlices (`discovery.k8s.io/v1`).
//!
//! What a source does not say has the defaults of the API: an endpoint without
//! conditions is ready and serves. A condition that is no boolean is false.

use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use tweed_core::object::endpoint_slice::{
    Endpoint, EndpointSlice, SERVICE_LABEL, SlicePort, TRIGGERED,
};

use super::metadata::Metadata;
use super::{list, lossy, number, optional_text, protocol, service, text};
use crate::kind::{InvalidName, Kind};

/// The used fields of an EndpointSlice.
#[derive(prost::Message, Deserialize)]
#[serde(from = "Value")]
pub struct EndpointSliceFields {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<EndpointFields>,
    #[prost(message, repeated, tag = "3")]
    ports: Vec<Port>,
}

#[derive(prost::Message)]
struct EndpointFields {
    #[prost(bytes = "vec", repeated, tag = "1")]
    addresses: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "2")]
    conditions: Option<Conditions>,
    #[prost(bytes = "vec", tag = "6")]
    node_name: Vec<u8>,
    #[prost(message, optional, tag = "8")]
    hints: Option<Hints>,
}

#[derive(prost::Message)]
struct Conditions {
    #[prost(bool, optional, tag = "1")]
    ready: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    serving: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    terminating: Option<bool>,
}

#[derive(prost::Message)]
struct Hints {
    #[prost(message, repeated, tag = "1")]
    for_zones: Vec<For>,
    #[prost(message, repeated, tag = "2")]
    for_nodes: Vec<For>,
}

/// A `ForZone` or `ForNode`.
#[derive(prost::Message)]
struct For {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
}

#[derive(prost::Message)]
struct Port {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    protocol: Vec<u8>,
    #[prost(int32, tag = "3")]
    port: i32,
}

impl Kind for EndpointSlice {
    const NAME: &'static str = "EndpointSlice";
    const PATH: &'static str = "/apis/discovery.k8s.io/v1/endpointslices";
    type Fields = EndpointSliceFields;

    fn from_fields(fields: EndpointSliceFields) -> Result<Self, InvalidName> {
        let mut metadata = fields.metadata.unwrap_or_default();
        Ok(Self {
            namespace: metadata.namespace(Self::NAME)?,
            name: metadata.name(Self::NAME)?,
            service: metadata.label(SERVICE_LABEL).unwrap_or_default(),
            not_ours: service::not_ours(&mut metadata),
            endpoints: fields
                .endpoints
                .into_iter()
                .filter_map(EndpointFields::read)
                .collect(),
            ports: fields.ports.into_iter().filter_map(Port::read).collect(),
            triggered: metadata.annotation(TRIGGERED).and_then(|text| time(&text)),
        })
    }
}

fn time(text: &str) -> Option<SystemTime> {
    let time: Timestamp = text.parse().ok()?;
    Some(time.into())
}

impl EndpointFields {
    fn read(self) -> Option<Endpoint> {
        let conditions = self.conditions.unwrap_or_default();
        let hints = self.hints.unwrap_or_default();
        let names = |hints: Vec<For>| hints.into_iter().map(|one| lossy(one.name)).collect();
        Some(Endpoint {
            address: self.addresses.into_iter().next().map(lossy)?,
            ready: conditions.ready.unwrap_or(true),
            serving: conditions.serving.unwrap_or(true),
            terminating: conditions.terminating.unwrap_or(false),
            node: lossy(self.node_name),
            zone_hints: names(hints.for_zones),
            node_hints: names(hints.for_nodes),
        })
    }
}

impl Port {
    fn read(self) -> Option<SlicePort> {
        Some(SlicePort {
            port: u16::try_from(self.port).ok().filter(|port| *port != 0)?,
            name: lossy(self.name),
            protocol: protocol(self.protocol),
        })
    }
}

impl From<Value> for EndpointSliceFields {
    fn from(mut slice: Value) -> Self {
        let metadata = slice.get_mut("metadata").map(Value::take);
        Self {
            metadata: metadata.and_then(|one| serde_json::from_value(one).ok()),
            endpoints: list(&mut slice, "endpoints")
                .map(EndpointFields::from)
                .collect(),
            ports: list(&mut slice, "ports").map(Port::from).collect(),
        }
    }
}

impl From<Value> for EndpointFields {
    fn from(mut endpoint: Value) -> Self {
        let part = |name: &str| endpoint.get(name).filter(|value| !value.is_null()).cloned();
        Self {
            conditions: part("conditions").map(Conditions::from),
            hints: part("hints").map(Hints::from),
            addresses: list(&mut endpoint, "addresses").map(text).collect(),
            node_name: optional_text(&mut endpoint, "nodeName"),
        }
    }
}

impl From<Value> for Conditions {
    fn from(conditions: Value) -> Self {
        let condition = |name: &str| match conditions.get(name) {
            None | Some(Value::Null) => None,
            Some(value) => Some(value.as_bool().unwrap_or(false)),
        };
        Self {
            ready: condition("ready"),
            serving: condition("serving"),
            terminating: condition("terminating"),
        }
    }
}

impl From<Value> for Hints {
    fn from(mut hints: Value) -> Self {
        let mut names = |name| {
            let one = |mut hint: Value| For {
                name: optional_text(&mut hint, "name"),
            };
            list(&mut hints, name).map(one).collect()
        };
        Self {
            for_zones: names("forZones"),
            for_nodes: names("forNodes"),
        }
    }
}

impl From<Value> for Port {
    fn from(mut entry: Value) -> Self {
        Self {
            port: number(&entry, "port"),
            name: optional_text(&mut entry, "name"),
            protocol: optional_text(&mut entry, "protocol"),
        }
    }
}

#[cfg(test)]
mod tests;
