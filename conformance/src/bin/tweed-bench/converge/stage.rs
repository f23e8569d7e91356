//! A node of its own for each start of the agent, so that none meets what an
//! earlier one has left in the kernel.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tweed_lab::{Agent, AgentOptions, Netns, Node, NodeManifest, NodeSpec, NodesFile, Underlay};

use super::fleet::{Encoded, FleetNode};
use super::process::Process;
use super::routes::RouteWatch;
use super::server::{Server, Speaks};
use super::tls::Identity;

/// A file that was written a moment ago may be half a file: the agent waits
/// until it is this old. On a node it mostly is.
const FILE_AGE: Duration = Duration::from_millis(600);

/// Where the agent learns of Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// An API server over TLS.
    Api(Speaks),
    /// A file of manifests.
    File,
}

impl Source {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Api(Speaks::Both) => "API server, protobuf",
            Self::Api(Speaks::Json) => "API server, JSON",
            Self::File => "file",
        }
    }
}

/// A node, its API server or file, and its agent.
pub struct Stage {
    // The agent ends before what it leans on.
    agent: Option<Agent>,
    server: Option<Server>,
    routes: RouteWatch,
    options: Option<AgentOptions>,
    node: Node,
}

impl Stage {
    /// A node of this number.
    pub fn new(underlay: &Underlay, number: u8) -> anyhow::Result<Self> {
        let node = Node::new(
            underlay,
            NodeSpec {
                name: format!("bench{number}"),
                address: Ipv4Addr::new(192, 0, 2, 10 + number),
                pod_cidr: "10.200.0.0/24".to_owned(),
                mtu: 1500,
            },
        )?;
        Ok(Self {
            agent: None,
            server: None,
            routes: RouteWatch::start(node.netns())?,
            options: None,
            node,
        })
    }

    /// The node's namespace.
    pub fn netns(&self) -> &Netns {
        self.node.netns()
    }

    /// Has the Nodes of `fleet`, and the own one, ready for the agent.
    pub fn serve(
        &mut self,
        source: Source,
        identity: &Identity,
        fleet: &[(FleetNode, Arc<Encoded>)],
    ) -> anyhow::Result<()> {
        let speaks = match source {
            Source::Api(speaks) => speaks,
            Source::File => {
                let file = NodesFile::at(self.node.folder().join("nodes.json"));
                let manifests: Vec<NodeManifest> = fleet
                    .iter()
                    .map(|(node, _)| NodeManifest::new(&node.name, node.address, &node.pod_cidr))
                    .chain([self.node.manifest()])
                    .collect();
                file.write(&manifests)?;
                self.options = Some(AgentOptions::new(&file));
                sleep(FILE_AGE);
                return Ok(());
            }
        };
        let own = FleetNode::own(self.node.name(), self.node.address(), self.node.pod_cidr());
        let encoded = Arc::new(own.encode());
        let mut nodes = fleet.to_vec();
        nodes.push((own, encoded));
        let server = Server::start(self.netns(), identity, speaks, &nodes)?;
        let folder = self.node.folder();
        let authority = folder.join("ca.pem");
        fs::write(&authority, &identity.certificate).context("the certificate")?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [{"name": "bench", "cluster": {
                "server": format!("https://{}", server.address()),
                "certificate-authority": authority,
            }}],
            "users": [{"name": "bench", "user": {"token": "bench"}}],
        });
        let path = folder.join("kubeconfig");
        fs::write(&path, kubeconfig.to_string()).context("the kubeconfig")?;
        self.options = Some(AgentOptions::kubernetes(path));
        self.server = Some(server);
        Ok(())
    }

    /// Starts the agent.
    pub fn start_agent(&mut self) -> anyhow::Result<()> {
        let options = self.options.as_ref().context("nothing is served")?;
        self.agent = Some(self.node.start_agent(options)?);
        Ok(())
    }

    /// The agent.
    pub fn agent(&mut self) -> anyhow::Result<&mut Agent> {
        self.agent.as_mut().context("no agent was started")
    }

    /// The agent's process.
    pub fn process(&self) -> anyhow::Result<Process> {
        let agent = self.agent.as_ref().context("no agent was started")?;
        Ok(Process::of(agent.pid()))
    }

    /// The routes of the node.
    pub fn routes(&self) -> &RouteWatch {
        &self.routes
    }

    /// The API server.
    pub fn server(&self) -> anyhow::Result<&Server> {
        self.server.as_ref().context("no API server was started")
    }

    /// How many requests the API server has had; none without one.
    pub fn requests(&self) -> u64 {
        self.server.as_ref().map_or(0, Server::requests)
    }
}
