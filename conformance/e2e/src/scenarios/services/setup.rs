//! Two servers on two nodes, their Services, and the clients.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tweed_lab::Transport;
use tweed_lab_kubernetes::{CONTROL, Machine};

use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::node::NodeEndpoint;
use crate::pods;

/// Maximum time until each object is ready.
const LIMIT: Duration = Duration::from_secs(120);

const OBJECTS: &str = include_str!("objects.yaml");

/// All servers, clients and Services.
pub struct Setup {
    pub servers: [Server; 2],
    /// A pod on the first server's node.
    pub local_client: Endpoint,
    /// A pod on the node without a server.
    pub remote_client: Endpoint,
    /// The node without a server.
    pub node_without_server: NodeEndpoint,
    pub outside: Endpoint,
    pub web: Service,
    /// With `externalTrafficPolicy: Local`.
    pub local: Service,
    /// With `sessionAffinity: ClientIP`.
    pub sticky: Service,
}

/// The pod of a server.
pub struct Server {
    pub endpoint: Endpoint,
    pub node: NodeEndpoint,
}

/// A Service with both servers as endpoints.
pub struct Service {
    address: IpAddr,
    ports: Ports,
    node_ports: Ports,
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

impl Setup {
    /// Creates pods and Services, and waits until they are ready.
    pub fn create(fixture: &Fixture<'_>) -> Result<Self> {
        let workers: Vec<&Machine> = fixture.cluster.workers().collect();
        let [first, second, ..] = workers.as_slice() else {
            bail!("this needs two workers, and there are {}", workers.len());
        };
        let node_without_server = fixture.cluster.node(CONTROL)?;
        fixture.apply(OBJECTS)?;
        let server = |name, machine| {
            anyhow::Ok(Server {
                endpoint: Endpoint::pod(&fixture.wait_ready(name, LIMIT)?)?,
                node: NodeEndpoint::of(fixture, machine)?,
            })
        };
        Ok(Self {
            local_client: pods::start(fixture, "local-client", first.name())?,
            remote_client: pods::start(fixture, "remote-client", node_without_server.name())?,
            servers: [server("web-1", first)?, server("web-2", second)?],
            node_without_server: NodeEndpoint::of(fixture, node_without_server)?,
            outside: Endpoint::outside(fixture.cluster),
            web: Service::wait(fixture, "web")?,
            local: Service::wait(fixture, "local")?,
            sticky: Service::wait(fixture, "sticky")?,
        })
    }
}

impl Server {
    /// The pod's name.
    pub fn name(&self) -> &str {
        &self.endpoint.name
    }
}

impl Service {
    /// Waits until its EndpointSlices have both servers.
    fn wait(fixture: &Fixture<'_>, name: &str) -> Result<Self> {
        let line = format!(
            "endpointslices --namespace {} --selector kubernetes.io/service-name={name}",
            fixture.namespace()
        );
        let what = format!("the endpoints of the Service {name}");
        fixture.kubectl().wait_for(&what, LIMIT, || {
            let slices = fixture.kubectl().list(&line).map_err(|e| e.chain())?;
            let is_ready = |one: &&Value| one["conditions"]["ready"] == true;
            let ready: usize = slices
                .iter()
                .filter_map(|slice| slice["endpoints"].as_array())
                .map(|all| all.iter().filter(is_ready).count())
                .sum();
            if ready == 2 {
                Ok(())
            } else {
                Err(format!("{ready} are ready"))
            }
        })?;
        let line = format!("get service {name} --namespace {}", fixture.namespace());
        Self::from_object(&fixture.kubectl().json(&line)?)
    }

    fn from_object(object: &Value) -> Result<Self> {
        let address = object["spec"]["clusterIP"].as_str();
        let address = address.with_context(|| format!("no address in {object}"))?;
        let ports = |key: &str| Ports {
            tcp: port(object, "TCP", key),
            udp: port(object, "UDP", key),
        };
        Ok(Self {
            address: address.parse().with_context(|| address.to_owned())?,
            ports: ports("port"),
            node_ports: ports("nodePort"),
        })
    }

    /// Its ClusterIP and ports.
    pub fn cluster_ip(&self) -> Frontend {
        Frontend {
            address: self.address,
            ports: self.ports,
        }
    }

    /// Its node ports on a node.
    pub fn node_port(&self, node: &NodeEndpoint) -> Frontend {
        Frontend {
            address: node.endpoint.address,
            ports: self.node_ports,
        }
    }
}

/// A port of a Service; 0, at which nothing listens, if it does not have one.
fn port(object: &Value, protocol: &str, key: &str) -> u16 {
    let ports = object["spec"]["ports"].as_array();
    ports
        .and_then(|all| all.iter().find(|port| port["protocol"] == protocol))
        .and_then(|port| port[key].as_u64()?.try_into().ok())
        .unwrap_or(0)
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
