//! Two servers on two nodes, their Services, and the clients.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;
use tweed_lab_kubernetes::{CONTROL, Machine};

use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::node::NodeEndpoint;
use crate::pods;
use crate::service::Service;

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
            web: wait(fixture, "web")?,
            local: wait(fixture, "local")?,
            sticky: wait(fixture, "sticky")?,
        })
    }
}

impl Server {
    /// The pod's name.
    pub fn name(&self) -> &str {
        &self.endpoint.name
    }
}

/// Waits until the EndpointSlices of a Service have both servers, and returns it.
fn wait(fixture: &Fixture<'_>, name: &str) -> Result<Service> {
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
    Service::get(fixture, name)
}
