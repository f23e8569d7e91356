//! Nodes whose agents read one node file: the starting point of most tests.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::agent::{Agent, AgentOptions};
use crate::cnitool::{AddResult, CniTool};
use crate::error::LabError;
use crate::lab::Lab;
use crate::manifest::{NodeManifest, NodesFile};
use crate::netns::Netns;
use crate::node::Node;
use crate::ping::{PingOptions, ping};
use crate::pod::Pod;
use crate::run::wait_until;
use crate::underlay::Underlay;

/// The network's name in the config that the agent writes.
const NETWORK: &str = "tweed";

/// Nodes by their number, each with an agent that reads the same node file.
#[derive(Debug)]
pub struct Cluster {
    nodes: BTreeMap<u8, ClusterNode>,
    nodes_file: NodesFile,
    options: AgentOptions,
    underlay: Underlay,
}

/// A node and its agent. All fields are public: a test may stop the agent, start
/// another one, or change the node.
#[derive(Debug)]
pub struct ClusterNode {
    /// The agent; none while it is stopped.
    pub agent: Option<Agent>,
    /// The node's entry in the node file; [`Cluster::publish`] writes it.
    pub manifest: NodeManifest,
    /// The node.
    pub node: Node,
}

/// A pod with an interface `eth0` in the network `tweed`.
#[derive(Debug)]
pub struct ClusterPod {
    pod: Pod,
    result: AddResult,
    address: IpAddr,
}

impl Cluster {
    /// A new lab with nodes 1 to `count` and all agents ready.
    ///
    /// # Errors
    /// What the system refuses, or an agent that does not become ready.
    pub fn start(count: u8) -> Result<Self, LabError> {
        Self::start_with(count, |options| options)
    }

    /// As [`Cluster::start`], with other options for all agents.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_with(
        count: u8,
        options: impl FnOnce(AgentOptions) -> AgentOptions,
    ) -> Result<Self, LabError> {
        let mut cluster = Self::empty(&Lab::new()?, options)?;
        for index in 1..=count {
            cluster.plug(index)?;
        }
        cluster.publish()?;
        for index in 1..=count {
            cluster.start_agent(index)?;
        }
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// An underlay without nodes in this lab.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn empty(
        lab: &Lab,
        options: impl FnOnce(AgentOptions) -> AgentOptions,
    ) -> Result<Self, LabError> {
        let nodes_file = NodesFile::at(lab.folder().join("nodes.yaml"));
        Ok(Self {
            nodes: BTreeMap::new(),
            options: options(AgentOptions::new(&nodes_file)),
            nodes_file,
            underlay: Underlay::new(lab)?,
        })
    }

    /// Connects node `index` to the underlay. It has no agent yet and is not in
    /// the node file.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn plug(&mut self, index: u8) -> Result<(), LabError> {
        let node = self.underlay.node(index)?;
        let manifest = node.manifest();
        let agent = None;
        let entry = ClusterNode {
            agent,
            manifest,
            node,
        };
        self.nodes.insert(index, entry);
        Ok(())
    }

    /// Starts the agent of node `index`; an earlier one is killed.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub fn start_agent(&mut self, index: u8) -> Result<(), LabError> {
        let options = self.options.clone();
        let entry = self.entry(index)?;
        entry.agent = None;
        entry.agent = Some(entry.node.start_agent(&options)?);
        Ok(())
    }

    /// Waits until all running agents are ready.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with the first that is not, and its log.
    pub fn wait_ready(&mut self) -> Result<(), LabError> {
        let agents = self.nodes.values_mut().filter_map(|n| n.agent.as_mut());
        for agent in agents {
            agent.wait_ready()?;
        }
        Ok(())
    }

    /// Writes the node file from all nodes' manifests.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn publish(&self) -> Result<(), LabError> {
        self.nodes_file
            .write(self.nodes.values().map(|entry| &entry.manifest))
    }

    /// Connects node `index`, adds it to the node file, and waits until its agent
    /// is ready. Other nodes may need longer: [`Cluster::wait_for_path`].
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn add_node(&mut self, index: u8) -> Result<(), LabError> {
        self.plug(index)?;
        self.publish()?;
        self.start_agent(index)?;
        self.wait_ready()
    }

    /// Replaces the machine of node `index` by a new one with the same name and
    /// address, and another MAC. The node file does not change.
    ///
    /// # Errors
    /// As [`Cluster::start`], or there is no such node.
    pub fn replace_machine(&mut self, index: u8) -> Result<(), LabError> {
        self.entry(index)?;
        drop(self.nodes.remove(&index));
        self.plug(index)?;
        self.start_agent(index)?;
        self.wait_ready()
    }

    /// Removes node `index` from the node file and from the underlay.
    ///
    /// # Errors
    /// [`LabError::File`], or there is no such node.
    pub fn remove_node(&mut self, index: u8) -> Result<(), LabError> {
        self.entry(index)?;
        let entry = self.nodes.remove(&index);
        self.publish()?;
        drop(entry);
        Ok(())
    }

    /// A new pod on node `index`, attached by `cnitool`.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the plugin's error.
    pub fn pod(&mut self, index: u8, name: &str) -> Result<ClusterPod, LabError> {
        let lab = self.lab().clone();
        let node = &self.entry(index)?.node;
        let pod = Pod::new(&lab, name)?;
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}");
        let result = CniTool::new(node, NETWORK).args(&args).add(&pod)?;
        let address = result.address().ok_or_else(|| LabError::Output {
            command: "cnitool add".to_owned(),
            expected: "a result with an address",
            output: result.document.to_string(),
        })?;
        Ok(ClusterPod {
            pod,
            result,
            address,
        })
    }

    /// DEL by `cnitool` for a pod of node `index`; its namespace is deleted too.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the plugin's error.
    pub fn delete_pod(&mut self, index: u8, pod: ClusterPod) -> Result<(), LabError> {
        let node = &self.entry(index)?.node;
        CniTool::new(node, NETWORK).del(&pod.pod)
    }

    /// Waits until a ping from a namespace is answered.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] after 30 s with ping's last report.
    pub fn wait_for_path(from: &Netns, to: IpAddr) -> Result<(), LabError> {
        let options = PingOptions {
            count: 1,
            wait: Duration::from_millis(200),
            ..PingOptions::default()
        };
        let what = format!("an answer from {to} to {}", from.name());
        wait_until(&what, Duration::from_secs(30), || {
            match ping(from, to, &options) {
                Ok(report) if report.lost() == 0 && report.sent > 0 => Ok(()),
                Ok(report) => Err(report.to_string()),
                Err(error) => Err(error.chain()),
            }
        })
    }

    /// Node `index`.
    ///
    /// # Errors
    /// [`LabError::Name`] if there is none.
    pub fn entry(&mut self, index: u8) -> Result<&mut ClusterNode, LabError> {
        self.nodes.get_mut(&index).ok_or_else(|| LabError::Name {
            name: format!("node{index}"),
            why: "the cluster has no such node",
        })
    }

    /// The nodes by their numbers.
    #[must_use]
    pub fn nodes(&self) -> &BTreeMap<u8, ClusterNode> {
        &self.nodes
    }

    /// The file that all agents watch.
    #[must_use]
    pub fn nodes_file(&self) -> &NodesFile {
        &self.nodes_file
    }

    /// The underlay.
    #[must_use]
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// The lab.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        self.underlay.lab()
    }
}

impl std::ops::Index<u8> for Cluster {
    type Output = ClusterNode;

    /// Node `index`; panics if there is none, which keeps tests short.
    fn index(&self, index: u8) -> &ClusterNode {
        &self.nodes[&index]
    }
}

impl ClusterPod {
    /// Its namespace.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        self.pod.netns()
    }

    /// The pod.
    #[must_use]
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The result of ADD.
    #[must_use]
    pub fn result(&self) -> &AddResult {
        &self.result
    }
}
