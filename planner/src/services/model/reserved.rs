//! The addresses and ports by which this agent reaches the API server: no load balancer,
//! external IP or node port is served there. Pure.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use tweed_core::family::Family;

use super::claims::Class;
use super::frontends::frontends_of;
use super::refusal::{Refusal, Refused};
use super::spec::Spec;
use super::surroundings::Surroundings;
use super::value::{Frontend, NodePort, Tracked};
use crate::addresses::{Span, within};
use crate::protocols::TCP;

/// What leads to the API server, and so is no Service's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reserved {
    frontends: BTreeSet<Frontend>,
    node_ports: BTreeSet<NodePort>,
}

impl Reserved {
    /// By where the agent connects to. Node ports are at addresses of this machine alone, so
    /// one counts if it may have the server's, which no other Node has then.
    pub fn of(surroundings: &Surroundings, node_port_networks: &BTreeSet<Span>) -> Self {
        let servers = surroundings.api_servers.iter();
        let at = |server: &SocketAddr| Frontend {
            address: server.ip(),
            protocol: TCP,
            port: server.port(),
        };
        let may_be_here = |server: &&SocketAddr| {
            let ip = server.ip();
            let is_own = surroundings.own.addresses.contains(&ip);
            within(node_port_networks, ip) && (is_own || !surroundings.nodes.contains(&ip))
        };
        let node_port = |server: &SocketAddr| NodePort {
            family: Family::of(server.ip()),
            protocol: TCP,
            port: server.port(),
        };
        Self {
            frontends: servers.clone().map(at).collect(),
            node_ports: servers.filter(may_be_here).map(node_port).collect(),
        }
    }

    /// The addresses and ports of the API server.
    pub fn frontends(&self) -> impl Iterator<Item = &Frontend> {
        self.frontends.iter()
    }

    /// Whether a frontend of this class is not served.
    pub fn has(&self, at: &Tracked, class: Class) -> bool {
        let is_reserved = match at {
            Tracked::Address(key) => self.frontends.contains(key),
            Tracked::NodePort(key) => self.node_ports.contains(key),
        };
        is_reserved && class != Class::ClusterIp
    }

    /// Whether a Service has such a frontend.
    pub fn concerns(&self, spec: &Spec) -> bool {
        self.of_service(spec).next().is_some()
    }

    fn of_service(&self, spec: &Spec) -> impl Iterator<Item = Refused> {
        let spec = (*self != Self::default()).then_some(spec);
        let all = spec.into_iter().flat_map(frontends_of);
        let reserved = all.filter(|(at, class)| self.has(at, *class));
        reserved.map(|(at, class)| {
            let (address, port) = match at {
                Tracked::Address(key) => (Some(key.address), key.port),
                Tracked::NodePort(key) => (None, key.port),
            };
            Refused {
                class,
                address,
                port: Some(port),
                why: Refusal::ApiServer,
            }
        })
    }

    /// Where a Service is not served, for whatever reason.
    pub fn refused(&self, spec: &Spec) -> impl Iterator<Item = Refused> {
        spec.refused.iter().copied().chain(self.of_service(spec))
    }
}
