//! Decoding of Services.
//!
//! A field of the wrong type is passed on as text, or is as good as absent where it
//! can be no text; it invalidates neither the Service nor its neighbours in a list.

use serde::Deserialize;

use tweed_core::object::service::{
    DEFAULT_AFFINITY_SECONDS, HEADLESS_LABEL, OTHER_PROXY_LABEL, Service, ServicePort,
};

use super::metadata::Metadata;
use super::{bytes, list_or_first, lossy, number, object, objects, protocol, texts};
use crate::kind::{InvalidName, Kind};

/// The used fields of a Service.
#[derive(prost::Message, Deserialize)]
#[serde(default)]
pub struct ServiceFields {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    #[serde(deserialize_with = "object")]
    spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    #[serde(deserialize_with = "object")]
    status: Option<Status>,
}

#[derive(prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "objects")]
    ports: Vec<Port>,
    #[prost(bytes = "vec", tag = "3")]
    #[serde(rename = "clusterIP", deserialize_with = "bytes")]
    cluster_ip: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(rename = "type", deserialize_with = "bytes")]
    kind: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "5")]
    #[serde(rename = "externalIPs", deserialize_with = "texts")]
    external_ips: Vec<Vec<u8>>,
    #[prost(bytes = "vec", tag = "7")]
    #[serde(deserialize_with = "bytes")]
    session_affinity: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "9")]
    #[serde(rename = "loadBalancerSourceRanges", deserialize_with = "texts")]
    source_ranges: Vec<Vec<u8>>,
    #[prost(bytes = "vec", tag = "11")]
    #[serde(deserialize_with = "bytes")]
    external_traffic_policy: Vec<u8>,
    #[prost(int32, tag = "12")]
    #[serde(deserialize_with = "number")]
    health_check_node_port: i32,
    #[prost(message, optional, tag = "14")]
    #[serde(deserialize_with = "object")]
    session_affinity_config: Option<AffinityConfig>,
    #[prost(bytes = "vec", repeated, tag = "18")]
    #[serde(rename = "clusterIPs", deserialize_with = "texts")]
    cluster_ips: Vec<Vec<u8>>,
    #[prost(bytes = "vec", tag = "22")]
    #[serde(deserialize_with = "bytes")]
    internal_traffic_policy: Vec<u8>,
}

#[derive(prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Port {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "bytes")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "bytes")]
    protocol: Vec<u8>,
    #[prost(int32, tag = "3")]
    #[serde(deserialize_with = "number")]
    port: i32,
    #[prost(int32, tag = "5")]
    #[serde(deserialize_with = "number")]
    node_port: i32,
}

#[derive(prost::Message, Deserialize)]
#[serde(default)]
struct AffinityConfig {
    #[prost(message, optional, tag = "1")]
    #[serde(rename = "clientIP", deserialize_with = "object")]
    client_ip: Option<ClientIpConfig>,
}

#[derive(prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClientIpConfig {
    #[prost(int32, tag = "1")]
    #[serde(deserialize_with = "number")]
    timeout_seconds: i32,
}

#[derive(prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[prost(message, optional, tag = "1")]
    #[serde(deserialize_with = "object")]
    load_balancer: Option<LoadBalancer>,
}

#[derive(prost::Message, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "objects")]
    ingress: Vec<Ingress>,
}

#[derive(prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ingress {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "bytes")]
    ip: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    #[serde(deserialize_with = "bytes")]
    ip_mode: Vec<u8>,
}

/// Whether a label says that an object is served by another proxy, or by none.
pub(super) fn not_ours(metadata: &mut Metadata) -> bool {
    let mut has = |label| metadata.label(label).is_some();
    has(OTHER_PROXY_LABEL) || has(HEADLESS_LABEL)
}

impl Kind for Service {
    const NAME: &'static str = "Service";
    const PATH: &'static str = "/api/v1/services";
    type Fields = ServiceFields;

    fn from_fields(fields: ServiceFields) -> Result<Self, InvalidName> {
        let mut metadata = fields.metadata.unwrap_or_default();
        let spec = fields.spec.unwrap_or_default();
        let load_balancer = fields.status.unwrap_or_default().load_balancer;
        Ok(Self {
            namespace: metadata.namespace(Self::NAME)?,
            name: metadata.name(Self::NAME)?,
            created: metadata.created(),
            not_ours: not_ours(&mut metadata),
            affinity_seconds: spec.affinity_seconds(),
            internal_local: spec.internal_traffic_policy == b"Local",
            external_local: spec.external_traffic_policy == b"Local",
            health_check_node_port: u16::try_from(spec.health_check_node_port).unwrap_or_default(),
            kind: match spec.kind.is_empty() {
                true => "ClusterIP".to_owned(),
                false => lossy(spec.kind),
            },
            cluster_ips: cluster_ips(list_or_first(spec.cluster_ips, vec![spec.cluster_ip])),
            external_ips: spec.external_ips.into_iter().map(lossy).collect(),
            load_balancer_ips: load_balancer.map(LoadBalancer::ips).unwrap_or_default(),
            source_ranges: spec.source_ranges.into_iter().map(lossy).collect(),
            ports: spec.ports.into_iter().filter_map(Port::read).collect(),
        })
    }
}

impl Spec {
    fn affinity_seconds(&self) -> Option<u32> {
        let config = self.session_affinity_config.as_ref();
        let seconds = config
            .and_then(|config| config.client_ip.as_ref())
            .and_then(|client| u32::try_from(client.timeout_seconds).ok())
            .filter(|seconds| *seconds > 0);
        (self.session_affinity == b"ClientIP").then(|| seconds.unwrap_or(DEFAULT_AFFINITY_SECONDS))
    }
}

/// A headless Service has none.
fn cluster_ips(mut all: Vec<String>) -> Vec<String> {
    all.retain(|one| one != "None");
    all
}

impl LoadBalancer {
    fn ips(self) -> Vec<String> {
        let ingress = self.ingress.into_iter();
        ingress
            .filter(|one| !one.ip.is_empty() && one.ip_mode != b"Proxy")
            .map(|one| lossy(one.ip))
            .collect()
    }
}

impl Port {
    fn read(self) -> Option<ServicePort> {
        Some(ServicePort {
            port: u16::try_from(self.port).ok().filter(|port| *port != 0)?,
            name: lossy(self.name),
            protocol: protocol(self.protocol),
            node_port: u16::try_from(self.node_port).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests;
