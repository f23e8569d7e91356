//! A Service as the API server shows it: the addresses and ports at which it is reached.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde_json::Value;
use tweed_lab::Transport;

use crate::fixture::Fixture;

/// A Service with at most one port for each transport.
pub struct Service {
    address: IpAddr,
    ports: Ports,
    node_ports: Ports,
    health_check: u16,
}

/// An address and ports of a Service.
#[derive(Debug, Clone, Copy)]
pub struct Frontend {
    address: IpAddr,
    ports: Ports,
}

#[derive(Debug, Clone, Copy, Default)]
struct Ports {
    tcp: u16,
    udp: u16,
}

impl Service {
    /// The one of this name in the scenario's namespace.
    pub fn get(fixture: &Fixture<'_>, name: &str) -> Result<Self> {
        let line = format!("get service {name} --namespace {}", fixture.namespace());
        Self::from_object(&fixture.kubectl().json(&line)?)
    }

    fn from_object(object: &Value) -> Result<Self> {
        let cluster_ip = object["spec"]["clusterIP"].as_str();
        let address = cluster_ip.with_context(|| format!("no address in {object}"))?;
        let ports = |key: &str| Ports {
            tcp: port(object, "TCP", key),
            udp: port(object, "UDP", key),
        };
        Ok(Self {
            address: address.parse().with_context(|| address.to_owned())?,
            ports: ports("port"),
            node_ports: ports("nodePort"),
            health_check: number(&object["spec"]["healthCheckNodePort"]),
        })
    }

    /// Its ClusterIP and ports.
    pub fn cluster_ip(&self) -> Frontend {
        Frontend {
            address: self.address,
            ports: self.ports,
        }
    }

    /// Its node ports on the node with this address.
    pub fn node_port(&self, node: IpAddr) -> Frontend {
        Frontend {
            address: node,
            ports: self.node_ports,
        }
    }

    /// Where the node with this address is asked whether it has endpoints.
    pub fn health_check(&self, node: IpAddr) -> SocketAddr {
        SocketAddr::new(node, self.health_check)
    }
}

/// A port of a Service; 0, at which nothing listens, if it does not have one.
fn port(object: &Value, protocol: &str, key: &str) -> u16 {
    let ports = object["spec"]["ports"].as_array();
    let port = ports.and_then(|all| all.iter().find(|port| port["protocol"] == protocol));
    port.map_or(0, |port| number(&port[key]))
}

fn number(value: &Value) -> u16 {
    let number = value.as_u64().and_then(|number| number.try_into().ok());
    number.unwrap_or(0)
}

impl Frontend {
    /// The address and port for a transport.
    pub fn socket_address(self, transport: Transport) -> SocketAddr {
        let port = match transport {
            Transport::Tcp => self.ports.tcp,
            Transport::Udp => self.ports.udp,
        };
        SocketAddr::new(self.address, port)
    }
}
