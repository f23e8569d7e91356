//! Nodes whose agents read one node file: the starting point of most tests.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitStatus;
use std::time::Duration;

use crate::agent::{Agent, AgentOptions};
use crate::error::LabError;
use crate::lab::Lab;
use crate::manifest::{NodeManifest, NodesFile};
use crate::netns::Netns;
use crate::node::Node;
use crate::objects::Objects;
use crate::ping::{PingOptions, ping};
use crate::run::wait_until;
use crate::underlay::Underlay;

/// Nodes by their number, each with an agent that reads the same node file.
#[derive(Debug)]
pub struct Cluster {
    nodes: BTreeMap<u8, ClusterNode>,
    nodes_file: NodesFile,
    objects: Objects,
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
        cluster.start_all()?;
        Ok(cluster)
    }

    /// As [`Cluster::start`], with pods that have an address of both families.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_dual_stack(count: u8) -> Result<Self, LabError> {
        Self::start_with_ipv6(count, |cidrs, ipv6| cidrs.push(ipv6))
    }

    /// As [`Cluster::start`], with pods that have an address of IPv6 alone.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_ipv6(count: u8) -> Result<Self, LabError> {
        Self::start_with_ipv6(count, |cidrs, ipv6| *cidrs = vec![ipv6])
    }

    /// Each node gets its pod CIDR of IPv6 by `enter`.
    fn start_with_ipv6(
        count: u8,
        enter: impl Fn(&mut Vec<String>, String),
    ) -> Result<Self, LabError> {
        let mut cluster = Self::empty(&Lab::new()?, |options| options)?;
        for index in 1..=count {
            cluster.plug(index)?;
            let ipv6 = format!("fd00:10:244:{index}::/64");
            enter(&mut cluster.entry(index)?.manifest.pod_cidrs, ipv6);
        }
        cluster.start_all()?;
        Ok(cluster)
    }

    /// Publishes the nodes that are plugged, starts their agents and waits for them.
    fn start_all(&mut self) -> Result<(), LabError> {
        self.publish()?;
        let indexes: Vec<u8> = self.nodes.keys().copied().collect();
        for index in indexes {
            self.start_agent(index)?;
        }
        self.wait_ready()
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
            objects: Objects::default(),
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

    /// Ends the agent of node `index` by SIGTERM, if it has one.
    ///
    /// # Errors
    /// As [`Agent::stop`], or there is no such node.
    pub fn stop_agent(&mut self, index: u8) -> Result<Option<ExitStatus>, LabError> {
        let agent = self.entry(index)?.agent.take();
        agent.map(Agent::stop).transpose()
    }

    /// Ends the agent of node `index` by SIGKILL, if it has one.
    ///
    /// # Errors
    /// As [`Cluster::stop_agent`].
    pub fn kill_agent(&mut self, index: u8) -> Result<(), LabError> {
        let agent = self.entry(index)?.agent.take();
        agent.map(Agent::kill9).transpose().map(drop)
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

    /// Writes the node file from all nodes' manifests and the other objects.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn publish(&self) -> Result<(), LabError> {
        let nodes = self.nodes.values().map(|entry| &entry.manifest);
        self.nodes_file.write_with(nodes, &self.objects)
    }

    /// The objects beside the Nodes; [`Cluster::publish`] writes them.
    pub fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    /// Adds or replaces an object beside the Nodes and writes the file. Agents read it
    /// half a second to a second later.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn apply(&mut self, key: &str, manifest: impl Into<String>) -> Result<(), LabError> {
        self.objects.set(key, manifest);
        self.publish()
    }

    /// Removes an object that [`Cluster::apply`] has added, and writes the file.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn delete(&mut self, key: &str) -> Result<(), LabError> {
        self.objects.remove(key);
        self.publish()
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
