//! Decoding of Services.
//!
//! A field of the wrong type is passed on as text, or is as good as absent where it
//! can be no text; it invalidates neither the Service nor its neighbours in a list.

use serde::Deserialize;
use serde_json::Value;

use tweed_core::object::service::{
    DEFAULT_AFFINITY_SECONDS, HEADLESS_LABEL, OTHER_PROXY_LABEL, Service, ServicePort,
};

use super::metadata::Metadata;
use super::{list, lossy, number, optional_text, protocol, text};
use crate::kind::{InvalidName, Kind};

/// The used fields of a Service.
#[derive(prost::Message, Deserialize)]
pub struct ServiceFields {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
    #[prost(message, optional, tag = "3")]
    status: Option<Status>,
}

#[derive(prost::Message, Deserialize)]
#[serde(from = "Value")]
struct Spec {
    #[prost(message, repeated, tag = "1")]
    ports: Vec<Port>,
    #[prost(bytes = "vec", tag = "3")]
    cluster_ip: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    kind: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "5")]
    external_ips: Vec<Vec<u8>>,
    #[prost(bytes = "vec", tag = "7")]
    session_affinity: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "9")]
    source_ranges: Vec<Vec<u8>>,
    #[prost(bytes = "vec", tag = "11")]
    external_traffic_policy: Vec<u8>,
    #[prost(int32, tag = "12")]
    health_check_node_port: i32,
    #[prost(message, optional, tag = "14")]
    session_affinity_config: Option<AffinityConfig>,
    #[prost(bytes = "vec", repeated, tag = "18")]
    cluster_ips: Vec<Vec<u8>>,
    #[prost(bytes = "vec", tag = "22")]
    internal_traffic_policy: Vec<u8>,
}

#[derive(prost::Message)]
struct Port {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    protocol: Vec<u8>,
    #[prost(int32, tag = "3")]
    port: i32,
    #[prost(int32, tag = "5")]
    node_port: i32,
}

#[derive(prost::Message)]
struct AffinityConfig {
    #[prost(message, optional, tag = "1")]
    client_ip: Option<ClientIpConfig>,
}

#[derive(prost::Message)]
struct ClientIpConfig {
    #[prost(int32, optional, tag = "1")]
    timeout_seconds: Option<i32>,
}

#[derive(prost::Message, Deserialize)]
#[serde(from = "Value")]
struct Status {
    #[prost(message, optional, tag = "1")]
    load_balancer: Option<LoadBalancer>,
}

#[derive(prost::Message)]
struct LoadBalancer {
    #[prost(message, repeated, tag = "1")]
    ingress: Vec<Ingress>,
}

#[derive(prost::Message)]
struct Ingress {
    #[prost(bytes = "vec", tag = "1")]
    ip: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
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
            cluster_ips: cluster_ips(spec.cluster_ips, spec.cluster_ip),
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
            .and_then(|client| client.timeout_seconds)
            .and_then(|seconds| u32::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0);
        (self.session_affinity == b"ClientIP").then(|| seconds.unwrap_or(DEFAULT_AFFINITY_SECONDS))
    }
}

/// `clusterIP` is the first of `clusterIPs`, and alone with old servers.
fn cluster_ips(mut all: Vec<Vec<u8>>, first: Vec<u8>) -> Vec<String> {
    if all.is_empty() {
        all.push(first);
    }
    all.retain(|one| !one.is_empty() && one != b"None");
    all.into_iter().map(lossy).collect()
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

impl From<Value> for Spec {
    fn from(mut spec: Value) -> Self {
        let client_ip = spec.pointer("/sessionAffinityConfig/clientIP");
        let client_ip = client_ip.map(|config| ClientIpConfig {
            timeout_seconds: Some(number(config, "timeoutSeconds")),
        });
        let health_check_node_port = number(&spec, "healthCheckNodePort");
        let mut texts = |name| list(&mut spec, name).map(text).collect();
        let (external_ips, cluster_ips) = (texts("externalIPs"), texts("clusterIPs"));
        let source_ranges = texts("loadBalancerSourceRanges");
        Self {
            ports: list(&mut spec, "ports").map(Port::from).collect(),
            cluster_ip: optional_text(&mut spec, "clusterIP"),
            kind: optional_text(&mut spec, "type"),
            external_ips,
            session_affinity: optional_text(&mut spec, "sessionAffinity"),
            source_ranges,
            external_traffic_policy: optional_text(&mut spec, "externalTrafficPolicy"),
            health_check_node_port,
            session_affinity_config: Some(AffinityConfig { client_ip }),
            cluster_ips,
            internal_traffic_policy: optional_text(&mut spec, "internalTrafficPolicy"),
        }
    }
}

impl From<Value> for Port {
    fn from(mut entry: Value) -> Self {
        Self {
            port: number(&entry, "port"),
            node_port: number(&entry, "nodePort"),
            name: optional_text(&mut entry, "name"),
            protocol: optional_text(&mut entry, "protocol"),
        }
    }
}

impl From<Value> for Status {
    fn from(mut status: Value) -> Self {
        let balancer = status.get_mut("loadBalancer");
        Self {
            load_balancer: balancer.map(|balancer| LoadBalancer {
                ingress: list(balancer, "ingress").map(Ingress::from).collect(),
            }),
        }
    }
}

impl From<Value> for Ingress {
    fn from(mut ingress: Value) -> Self {
        Self {
            ip: optional_text(&mut ingress, "ip"),
            ip_mode: optional_text(&mut ingress, "ipMode"),
        }
    }
}

#[cfg(test)]
mod tests;
