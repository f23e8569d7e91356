//! Who plays: two servers on two nodes, their Services, and who asks them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tweed_lab::Transport;
use tweed_lab_kubernetes::{CONTROL, Machine};

use crate::node::Node;
use crate::place::Place;
use crate::pods;
use crate::stage::Stage;

const LIMIT: Duration = Duration::from_secs(120);

const OBJECTS: &str = include_str!("objects.yaml");

/// All of them.
pub struct Cast {
    pub servers: [Server; 2],
    /// A pod on the first server's node.
    pub neighbour: Place,
    /// A pod on the node without a server.
    pub stranger: Place,
    /// The node without a server.
    pub bare: Node,
    pub outside: Place,
    pub web: Service,
    /// With `externalTrafficPolicy: Local`.
    pub local: Service,
    /// With `sessionAffinity: ClientIP`.
    pub sticky: Service,
}

/// A pod that answers.
pub struct Server {
    pub place: Place,
    pub node: Node,
}

/// A Service that both servers are behind.
pub struct Service {
    address: IpAddr,
    ports: Ports,
    node_ports: Ports,
}

/// A way into a Service.
#[derive(Debug, Clone, Copy)]
pub struct Door {
    address: IpAddr,
    ports: Ports,
}

#[derive(Debug, Clone, Copy, Default)]
struct Ports {
    tcp: u16,
    udp: u16,
}

impl Cast {
    /// Makes the pods and Services, and waits until they are complete.
    pub fn enter(stage: &Stage<'_>) -> Result<Self> {
        let workers: Vec<&Machine> = stage.cluster.workers().collect();
        let [first, second, ..] = workers.as_slice() else {
            bail!("this takes two workers, and there are {}", workers.len());
        };
        let bare = stage.cluster.node(CONTROL)?;
        stage.apply(OBJECTS)?;
        let server = |name, machine| {
            anyhow::Ok(Server {
                place: Place::pod(&stage.wait_ready(name, LIMIT)?)?,
                node: Node::of(stage, machine)?,
            })
        };
        Ok(Self {
            neighbour: pods::start(stage, "neighbour", first.name())?,
            stranger: pods::start(stage, "stranger", bare.name())?,
            servers: [server("web-1", first)?, server("web-2", second)?],
            bare: Node::of(stage, bare)?,
            outside: Place::outside(stage.cluster),
            web: Service::wait(stage, "web")?,
            local: Service::wait(stage, "local")?,
            sticky: Service::wait(stage, "sticky")?,
        })
    }
}

impl Server {
    /// The pod's name.
    pub fn name(&self) -> &str {
        &self.place.name
    }
}

impl Service {
    /// Waits until its EndpointSlices have both servers.
    fn wait(stage: &Stage<'_>, name: &str) -> Result<Self> {
        let line = format!(
            "endpointslices --namespace {} --selector kubernetes.io/service-name={name}",
            stage.namespace()
        );
        let what = format!("the endpoints of the Service {name}");
        stage.kubectl().wait_for(&what, LIMIT, || {
            let slices = stage.kubectl().list(&line).map_err(|e| e.chain())?;
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
        let line = format!("get service {name} --namespace {}", stage.namespace());
        Self::from_object(&stage.kubectl().json(&line)?)
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

    /// Its own address.
    pub fn cluster(&self) -> Door {
        Door {
            address: self.address,
            ports: self.ports,
        }
    }

    /// Its ports on a node.
    pub fn on(&self, node: &Node) -> Door {
        Door {
            address: node.place.address,
            ports: self.node_ports,
        }
    }
}

/// A port of a Service; 0, which nobody answers, for one that it does not have.
fn port(object: &Value, protocol: &str, key: &str) -> u16 {
    let ports = object["spec"]["ports"].as_array();
    ports
        .and_then(|all| all.iter().find(|port| port["protocol"] == protocol))
        .and_then(|port| port[key].as_u64()?.try_into().ok())
        .unwrap_or(0)
}

impl Door {
    /// Where it is.
    pub fn by(self, transport: Transport) -> SocketAddr {
        let port = match transport {
            Transport::Tcp => self.ports.tcp,
            Transport::Udp => self.ports.udp,
        };
        SocketAddr::new(self.address, port)
    }
}
