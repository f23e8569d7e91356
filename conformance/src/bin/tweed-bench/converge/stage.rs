//! A node of its own for each start of an agent, so that none meets what an
//! earlier one has left in the kernel.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use serde_json::json;
use tweed_lab::{
    Agent, AgentOptions, Background, Netns, Node, NodeManifest, NodeSpec, NodesFile, Underlay,
};

use super::flanneld;
use super::fleet::{Encoded, FleetNode};
use super::process::Process;
use super::report::StartSamples;
use super::routes::RouteWatch;
use super::server::{Server, Speaks};
use super::tls::Identity;
use super::{STUCK, millis};

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

/// Whose agent it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// `tweed-agent`.
    Tweed,
    /// flannel's daemon.
    Flanneld,
}

impl Who {
    /// Those that can be measured: flannel's where it is built.
    pub fn here(with_flanneld: bool) -> impl Iterator<Item = Self> {
        let peer = with_flanneld.then_some(Self::Flanneld);
        [Self::Tweed].into_iter().chain(peer)
    }

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tweed => "tweed",
            Self::Flanneld => "flanneld",
        }
    }

    /// The routing protocol of its routes.
    fn protocol(self) -> u8 {
        match self {
            Self::Tweed => 116,
            // `RTPROT_BOOT`: it names none.
            Self::Flanneld => 3,
        }
    }
}

/// An agent over a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// Whose.
    pub who: Who,
    /// Over what.
    pub source: Source,
}

impl Subject {
    /// Those that are used in a cluster; flannel's where it is built.
    pub fn of_clusters(with_flanneld: bool) -> Vec<Self> {
        let over_api = |who| Self {
            who,
            source: Source::Api(Speaks::Both),
        };
        Who::here(with_flanneld).map(over_api).collect()
    }

    /// All: the others are tweed's over other sources.
    pub fn all(with_flanneld: bool) -> Vec<Self> {
        let mut all = Self::of_clusters(with_flanneld);
        let others = [Source::Api(Speaks::Json), Source::File].map(|source| Self {
            who: Who::Tweed,
            source,
        });
        all.splice(1..1, others);
        all
    }

    /// In tables.
    pub fn name(self) -> &'static str {
        match (self.who, self.source) {
            (Who::Tweed, Source::Api(Speaks::Both)) => "API server, protobuf",
            (Who::Tweed, Source::Api(Speaks::Json)) => "API server, JSON",
            (Who::Tweed, Source::File) => "file",
            (Who::Flanneld, _) => "flanneld, API server",
        }
    }
}

/// How its agent is started.
enum Start {
    Tweed(AgentOptions),
    Flanneld { kubeconfig: PathBuf },
}

/// An agent that runs.
enum Running {
    Tweed(Agent),
    Flanneld(Background),
}

/// A node, its API server or file, and its agent.
pub struct Stage {
    // The agent ends before what it leans on.
    running: Option<Running>,
    server: Option<Server>,
    routes: RouteWatch,
    start: Option<Start>,
    node: Node,
    who: Who,
}

impl Stage {
    /// A node of this number.
    pub fn new(underlay: &Underlay, number: u8, who: Who) -> anyhow::Result<Self> {
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
            running: None,
            server: None,
            routes: RouteWatch::start(node.netns(), who.protocol())?,
            start: None,
            node,
            who,
        })
    }

    /// The node's namespace.
    pub fn netns(&self) -> &Netns {
        self.node.netns()
    }

    /// Its own Node.
    pub fn own(&self) -> FleetNode {
        FleetNode::own(self.node.name(), self.node.address(), self.node.pod_cidr())
    }

    /// Has the API server of this kubeconfig, which is somebody else's, ready
    /// for the agent.
    pub fn lean_on(&mut self, kubeconfig: &Path) {
        let path = kubeconfig.to_owned();
        self.start = Some(match self.who {
            Who::Tweed => Start::Tweed(AgentOptions::kubernetes(path)),
            Who::Flanneld => Start::Flanneld { kubeconfig: path },
        });
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
                self.start = Some(Start::Tweed(AgentOptions::new(&file)));
                sleep(FILE_AGE);
                return Ok(());
            }
        };
        let own = self.own();
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
        self.lean_on(&path);
        self.server = Some(server);
        Ok(())
    }

    /// Starts the agent.
    pub fn start_agent(&mut self) -> anyhow::Result<()> {
        let start = self.start.as_ref().context("nothing is served")?;
        self.running = Some(match start {
            Start::Tweed(options) => Running::Tweed(self.node.start_agent(options)?),
            Start::Flanneld { kubeconfig } => {
                Running::Flanneld(flanneld::start(&self.node, kubeconfig)?)
            }
        });
        Ok(())
    }

    /// Starts the agent and waits until it has made so many routes, and is
    /// ready.
    pub fn start(&mut self, routes: usize, samples: &mut StartSamples) -> anyhow::Result<()> {
        let start = Instant::now();
        self.start_agent()?;
        let last = self.wait_for_routes(routes, STUCK)?;
        if self.wait_ready()? {
            samples.ready.push(millis(start.elapsed()));
        }
        samples.route.push(millis(last - start));
        samples.peak.push(self.process()?.peak_mib()?);
        samples.cpu.push(millis(self.process()?.cpu()?));
        samples.writes.extend(self.routes().span().map(millis));
        samples.requests = self.requests();
        Ok(())
    }

    /// Waits until all of these routes are there; gives the last one's moment.
    pub fn wait_for_routes(&self, count: usize, limit: Duration) -> anyhow::Result<Instant> {
        self.routes
            .wait_for_all(count, limit)
            .with_context(|| match &self.running {
                Some(Running::Flanneld(process)) => process.last_lines(20),
                _ => self.who.name().to_owned(),
            })
    }

    /// Waits until the agent says that it is ready. False if it has not been
    /// asked: flannel's says so before it makes the first route.
    pub fn wait_ready(&mut self) -> anyhow::Result<bool> {
        match self.running.as_mut().context("no agent was started")? {
            Running::Tweed(agent) => {
                agent.wait_ready()?;
                Ok(true)
            }
            Running::Flanneld(_) => Ok(false),
        }
    }

    /// The agent's process.
    pub fn process(&self) -> anyhow::Result<Process> {
        let pid = match self.running.as_ref().context("no agent was started")? {
            Running::Tweed(agent) => agent.pid(),
            Running::Flanneld(process) => process.pid(),
        };
        Ok(Process::of(pid))
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
