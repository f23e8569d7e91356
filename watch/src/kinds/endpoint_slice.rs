//! Decoding of EndpointSlices (`discovery.k8s.io/v1`).
//!
//! What a source does not say has the defaults of the API: an endpoint without
//! conditions is ready and serves. A condition that is no boolean is false.

use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use tweed_core::object::endpoint_slice::{
    Endpoint, EndpointSlice, SERVICE_LABEL, SlicePort, TRIGGERED,
};

use super::metadata::Metadata;
use super::{exact, lossy, protocol, service};
use crate::kind::{InvalidName, Kind};

message! {
    /// The used fields of an EndpointSlice.
    pub struct EndpointSliceFields {
        metadata: one(Metadata) = 1,
        endpoints: objects(EndpointFields) = 2,
        ports: objects(Port) = 3,
    }

    struct EndpointFields {
        addresses: texts = 1,
        conditions: object(Conditions) = 2,
        node_name: text = 6,
        hints: object(Hints) = 8,
    }

    struct Conditions {
        #[prost(bool, optional, tag = "1")]
        #[serde(deserialize_with = "condition")]
        ready: Option<bool>,
        #[prost(bool, optional, tag = "2")]
        #[serde(deserialize_with = "condition")]
        serving: Option<bool>,
        #[prost(bool, optional, tag = "3")]
        #[serde(deserialize_with = "condition")]
        terminating: Option<bool>,
    }

    struct Hints {
        for_zones: objects(For) = 1,
        for_nodes: objects(For) = 2,
    }

    /// A `ForZone` or `ForNode`.
    struct For {
        name: text = 1,
    }

    struct Port {
        name: text = 1,
        protocol: text = 2,
        port: number = 3,
    }
}

impl Kind for EndpointSlice {
    const NAME: &'static str = "EndpointSlice";
    const PATH: &'static str = "/apis/discovery.k8s.io/v1/endpointslices";
    type Fields = EndpointSliceFields;

    fn from_fields(fields: EndpointSliceFields) -> Result<Self, InvalidName> {
        let mut metadata = fields.metadata.unwrap_or_default();
        Ok(Self {
            namespace: metadata.namespace()?,
            name: metadata.name(Self::NAME)?,
            service: metadata.label(SERVICE_LABEL).unwrap_or_default(),
            not_ours: service::not_ours(&mut metadata),
            endpoints: exact(
                fields
                    .endpoints
                    .into_iter()
                    .filter_map(EndpointFields::read),
            ),
            ports: exact(fields.ports.into_iter().filter_map(Port::read)),
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
        let names = |hints: Vec<For>| exact(hints.into_iter().map(|one| lossy(one.name)));
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

/// A condition that is no boolean is false.
fn condition<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    Ok(value.map(|value| value.as_bool().unwrap_or(false)))
}

#[cfg(test)]
mod tests;
