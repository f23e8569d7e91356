//! An EndpointSlice as its source describes it: not yet validated.

use std::time::SystemTime;

/// An EndpointSlice, with only the fields that tweed uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndpointSlice {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The label [`SERVICE_LABEL`]: the Service that it belongs to, in its namespace.
    /// Empty if it has none.
    pub service: String,
    /// Whether it has one of the labels that say so, as
    /// [`Service::not_ours`](super::service::Service::not_ours).
    pub not_ours: bool,
    /// `endpoints`. Those without an address are left out.
    pub endpoints: Vec<Endpoint>,
    /// `ports`. Those whose `port` is no port, or which have none, are left out.
    pub ports: Vec<SlicePort>,
    /// The annotation [`TRIGGERED`]; `None` if it has none, or it is no time.
    pub triggered: Option<SystemTime>,
}

/// One entry of `endpoints`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The first of `addresses`: all are addresses of one pod and of one family.
    pub address: String,
    /// `conditions.ready`; true if the source does not say.
    pub ready: bool,
    /// `conditions.serving`; true if the source does not say.
    pub serving: bool,
    /// `conditions.terminating`; false if the source does not say.
    pub terminating: bool,
    /// `nodeName`; empty if there is none.
    pub node: String,
    /// The names in `hints.forZones`.
    pub zone_hints: Vec<String>,
    /// The names in `hints.forNodes`.
    pub node_hints: Vec<String>,
}

/// One entry of `ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// `name`: that of the Service's port; may be empty.
    pub name: String,
    /// `protocol`; `TCP` if the source gives none.
    pub protocol: String,
    /// `port`, where the endpoints listen.
    pub port: u16,
}

/// The label of EndpointSlices that names their Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The annotation of EndpointSlices that says when the change of a pod or of the Service
/// took place that they were last changed for.
pub const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";

object!(EndpointSlice, "EndpointSlices", namespace);
