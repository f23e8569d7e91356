//! Decoding of Services.
//!
//! A field of the wrong type is passed on as text, or is as good as absent where it
//! can be no text; it invalidates neither the Service nor its neighbours in a list.

use tweed_core::object::service::{
    DEFAULT_AFFINITY_SECONDS, HEADLESS_LABEL, OTHER_PROXY_LABEL, Service, ServicePort,
};

use super::metadata::Metadata;
use super::{exact, list_or_first, lossy, protocol};
use crate::kind::{InvalidName, Kind};

message! {
    /// The used fields of a Service.
    pub struct ServiceFields {
        metadata: one(Metadata) = 1,
        spec: object(Spec) = 2,
        status: object(Status) = 3,
    }

    struct Spec {
        ports: objects(Port) = 1,
        cluster_ip: text = 3 as "clusterIP",
        kind: text = 4 as "type",
        external_ips: texts = 5 as "externalIPs",
        session_affinity: text = 7,
        source_ranges: texts = 9 as "loadBalancerSourceRanges",
        external_traffic_policy: text = 11,
        health_check_node_port: number = 12,
        session_affinity_config: object(AffinityConfig) = 14,
        cluster_ips: texts = 18 as "clusterIPs",
        internal_traffic_policy: text = 22,
    }

    struct Port {
        name: text = 1,
        protocol: text = 2,
        port: number = 3,
        node_port: number = 5,
    }

    struct AffinityConfig {
        client_ip: object(ClientIpConfig) = 1 as "clientIP",
    }

    struct ClientIpConfig {
        timeout_seconds: number = 1,
    }

    struct Status {
        load_balancer: object(LoadBalancer) = 1,
    }

    struct LoadBalancer {
        ingress: objects(Ingress) = 1,
    }

    struct Ingress {
        ip: text = 1,
        ip_mode: text = 3,
    }
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
            namespace: metadata.namespace()?,
            name: metadata.name(Self::NAME)?,
            created: metadata.created(),
            not_ours: not_ours(&mut metadata),
            affinity_seconds: spec.affinity_seconds(),
            internal_local: spec.internal_traffic_policy == b"Local",
            external_local: spec.external_traffic_policy == b"Local",
            health_check_node_port: u16::try_from(spec.health_check_node_port).unwrap_or_default(),
            kind: if spec.kind.is_empty() {
                "ClusterIP".to_owned()
            } else {
                lossy(spec.kind)
            },
            cluster_ips: cluster_ips(list_or_first(spec.cluster_ips, vec![spec.cluster_ip])),
            external_ips: exact(spec.external_ips.into_iter().map(lossy)),
            load_balancer_ips: load_balancer.map(LoadBalancer::ips).unwrap_or_default(),
            source_ranges: exact(spec.source_ranges.into_iter().map(lossy)),
            ports: exact(spec.ports.into_iter().filter_map(Port::read)),
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
        let own = ingress.filter(|one| !one.ip.is_empty() && one.ip_mode != b"Proxy");
        exact(own.map(|one| lossy(one.ip)))
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
