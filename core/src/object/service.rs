//! A Service as its source describes it: not yet validated.

/// A Service, with only the fields that tweed uses. Fields that may hold wrong text stay
/// text, for the planner to refuse.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Service {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.creationTimestamp` in seconds since 1970. `None` counts as the
    /// oldest.
    pub created: Option<i64>,
    /// Whether it has one of the labels [`OTHER_PROXY_LABEL`] and [`HEADLESS_LABEL`]:
    /// then it is served by another proxy, or by none.
    pub not_ours: bool,
    /// `spec.type`; `ClusterIP` if the source gives none.
    pub kind: String,
    /// `spec.clusterIPs`, or `spec.clusterIP` alone; empty texts and `None` are left
    /// out.
    pub cluster_ips: Vec<String>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<String>,
    /// The `ip` of each of `status.loadBalancer.ingress` that has one, and whose
    /// `ipMode` is not `Proxy`: connections to such an address have to go to the load
    /// balancer (KEP-1860).
    pub load_balancer_ips: Vec<String>,
    /// `spec.loadBalancerSourceRanges`.
    pub source_ranges: Vec<String>,
    /// `spec.ports`. Entries whose `port` is no port are left out.
    pub ports: Vec<ServicePort>,
    /// `spec.sessionAffinityConfig.clientIP.timeoutSeconds` if `spec.sessionAffinity` is
    /// `ClientIP`.
    pub affinity_seconds: Option<u32>,
    /// Whether `spec.internalTrafficPolicy` is `Local`.
    pub internal_local: bool,
    /// Whether `spec.externalTrafficPolicy` is `Local`.
    pub external_local: bool,
    /// `spec.healthCheckNodePort`; 0 if there is none.
    pub health_check_node_port: u16,
}

/// One entry of `spec.ports`. The port of the endpoints is in the EndpointSlices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// `name`; may be empty.
    pub name: String,
    /// `protocol`; `TCP` if the source gives none.
    pub protocol: String,
    /// `port`.
    pub port: u16,
    /// `nodePort`; 0 if there is none.
    pub node_port: u16,
}

/// The label of Services and EndpointSlices that names who serves them instead of the
/// cluster's usual proxy.
pub const OTHER_PROXY_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// The label of Services and EndpointSlices that no proxy is to serve.
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// The affinity timeout that the API server sets where a Service names none.
pub const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

object!(Service, "Services", namespace);
