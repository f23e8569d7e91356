//! Services of the cluster under test: simple ones, drawn from a number, and what they lead
//! to. Plain code that shares nothing with tweed.

mod manifest;

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::policy::APPS;
use crate::random::Random;

pub use manifest::Place;

/// Number of Services that there can be at a time.
pub const SERVICES: usize = 4;

/// The port of every Service.
pub const SERVICE_PORT: u16 = 7780;

/// What there is of Services.
#[derive(Debug, Clone, Default)]
pub struct Services {
    /// Each by its number, from 0.
    pub all: BTreeMap<usize, Service>,
}

/// A Service of UDP.
#[derive(Debug, Clone)]
pub struct Service {
    /// The label `app` of the pods that are its endpoints, in all namespaces.
    app: &'static str,
    /// Which of these are ready.
    readiness: u64,
    /// Whether each node uses its own endpoints only.
    is_local: bool,
    /// Whether a client keeps its endpoint.
    has_affinity: bool,
}

/// A pod that may be an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The number of its node.
    pub node: u8,
    /// Its name.
    pub name: &'a str,
    /// Its label `app`.
    pub app: &'a str,
}

/// What a Service makes of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// New flows of a node of this number go to it.
    Chosen,
    /// Flows that it had before stay.
    Serving,
    /// None goes to it.
    None,
}

/// The cluster IP of a Service in a family.
pub fn cluster_ip(number: usize, is_ipv4: bool) -> IpAddr {
    let last = u8::try_from(number + 10).unwrap_or(u8::MAX);
    if is_ipv4 {
        IpAddr::from([10, 96, 0, last])
    } else {
        IpAddr::from([0xfd00, 0x96, 0, 0, 0, 0, 0, u16::from(last)])
    }
}

impl Service {
    /// The Service of this number.
    pub fn drawn(number: u64) -> Self {
        let mut random = Random::new(number, 3);
        Self {
            app: APPS[random.below(APPS.len())],
            readiness: random.next(),
            is_local: random.below(4) == 0,
            has_affinity: random.below(4) == 0,
        }
    }

    /// Whether a pod is an endpoint that is ready.
    fn is_ready(&self, candidate: &Candidate<'_>) -> bool {
        let sum: u64 = candidate.name.bytes().map(u64::from).sum();
        // Two thirds of them.
        candidate.app == self.app && !(self.readiness ^ sum).is_multiple_of(3)
    }

    /// What it makes of a candidate for clients on a node.
    pub fn uses(&self, candidate: &Candidate<'_>, client_node: u8) -> Use {
        if !self.is_ready(candidate) {
            return Use::None;
        }
        if !self.is_local || candidate.node == client_node {
            Use::Chosen
        } else {
            Use::Serving
        }
    }
}
