//! An agent on a node of its own over an API server of its own, so that it meets
//! nothing that an earlier one has left in the kernel.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use serde_json::json;
use tweed_lab::{Background, Node, NodeSpec, Underlay, wait_until};

use super::fleet::FleetNode;
use super::routes::RouteWatch;
use crate::cost;
use tweed_lab_api::{Identity, NODES, Object, Server, Serves};

/// The routing protocol of tweed's routes.
const TWEED_PROTOCOL: u8 = 116;

/// Maximum time until an agent that ends or starts watches the Nodes no more, or again.
const WATCH_LIMIT: Duration = Duration::from_secs(60);

/// Whose agent.
#[derive(Debug, Clone)]
pub enum Program {
    /// `tweed-agent` of some build.
    Tweed(PathBuf),
    /// flannel's daemon, as its manifest runs it: VXLAN, masquerading.
    Flanneld(PathBuf),
}

impl Program {
    /// The routing protocol of its routes.
    fn protocol(&self) -> u8 {
        match self {
            Self::Tweed(_) => TWEED_PROTOCOL,
            // `RTPROT_BOOT`: flannel names none.
            Self::Flanneld(_) => 3,
        }
    }

    fn run(&self, node: &Node, kubeconfig: &Path) -> anyhow::Result<Background> {
        let log = node.folder().join("agent.log");
        let mut command = self.command(node, kubeconfig)?;
        Ok(Background::start(node.lab(), &mut command, &log)?)
    }

    fn command(&self, node: &Node, kubeconfig: &Path) -> anyhow::Result<Command> {
        match self {
            Self::Tweed(program) => {
                let mut command = node.netns().command(program);
                command
                    .args(["--node-name", node.name()])
                    .arg("--kubeconfig")
                    .arg(kubeconfig)
                    .arg("--run-dir")
                    .arg(node.run_dir())
                    .arg("--cni-conf-dir")
                    .arg(node.cni_conf_dir())
                    .arg("--cni-bin-dir")
                    .arg(node.cni_bin_dir());
                Ok(command)
            }
            Self::Flanneld(program) => {
                let config = node.folder().join("net-conf.json");
                // All pod CIDRs of the bench are in it.
                let network = json!({ "Network": "10.0.0.0/8", "Backend": { "Type": "vxlan" } });
                fs::write(&config, network.to_string()).context("flannel's config")?;
                let mut command = node.netns().command(program);
                command
                    .args(["--kube-subnet-mgr", "--ip-masq", "--iface", "eth0"])
                    .arg("--kubeconfig-file")
                    .arg(kubeconfig)
                    .arg("--net-config-path")
                    .arg(config)
                    .arg("--subnet-file")
                    .arg(node.folder().join("subnet.env"))
                    .env("NODE_NAME", node.name());
                Ok(command)
            }
        }
    }
}

/// A node for an agent.
fn node(underlay: &Underlay) -> anyhow::Result<Node> {
    let spec = NodeSpec {
        name: "bench".to_owned(),
        address: Ipv4Addr::new(192, 0, 2, 10),
        pod_cidr: "10.250.0.0/24".to_owned(),
        mtu: 1500,
    };
    Ok(Node::new(underlay, spec)?)
}

/// A running agent.
pub struct Agent {
    // In the order in which they end.
    process: Background,
    /// Its API server.
    pub server: Server,
    /// The routes that it makes.
    pub routes: RouteWatch,
    start: Instant,
    program: Program,
    kubeconfig: PathBuf,
    node: Node,
}

impl Agent {
    /// Starts it over a server that has the Nodes of `fleet` and its own.
    pub fn start(
        underlay: &Underlay,
        program: &Program,
        (identity, serves): (&Identity, Serves),
        fleet: &[Arc<Object>],
    ) -> anyhow::Result<Self> {
        let node = node(underlay)?;
        let own = FleetNode::own(node.name(), node.address()).encoded();
        let all = fleet.iter().cloned().chain([own]);
        let nodes = all.map(|node| (NODES, node));
        let server = Server::start(&node, serves, Some(identity), nodes)?;
        let routes = RouteWatch::start(node.netns(), program.protocol())?;
        let kubeconfig = server.kubeconfig(&node)?;
        let start = Instant::now();
        let process = program.run(&node, &kubeconfig)?;
        Ok(Self {
            process,
            server,
            routes,
            start,
            program: program.clone(),
            kubeconfig,
            node,
        })
    }

    /// Starts it again on its node, and waits until it has listed the Nodes.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.process.stop(Signal::SIGTERM)?;
        self.wait_watched(false)?;
        self.process = self.program.run(&self.node, &self.kubeconfig)?;
        self.wait_watched(true)
    }

    fn wait_watched(&self, expected: bool) -> anyhow::Result<()> {
        wait_until("the watch of Nodes", WATCH_LIMIT, || {
            if self.server.is_watched() == expected {
                return Ok(());
            }
            Err(self.process.last_lines(20))
        })?;
        Ok(())
    }

    /// Waits until it has made so many routes; gives the time from its start to
    /// the last one.
    pub fn wait_for_routes(&mut self, count: usize) -> anyhow::Result<Duration> {
        let waited = self.routes.wait_for_all(count);
        let last = waited.with_context(|| self.process.last_lines(20))?;
        Ok(last - self.start)
    }

    /// The most memory that it ever had resident, in MiB (`VmHWM`).
    pub fn peak_mib(&self) -> anyhow::Result<f64> {
        cost::memory_mib(self.process.pid(), "VmHWM:")
    }

    /// The CPU time of all its threads, those that have ended included.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        cost::cpu(self.process.pid())
    }
}
