//! The cluster under test: nodes, pods, what has to be undone, and what should be there.

mod call;
mod machine;
mod runtime;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tweed_lab::{
    Agent, Cluster, ClusterNode, Lab, LabError, NodeManifest, NodesFile, Objects, PodManifest,
    Snapshot, labels,
};

use crate::checks::PORT;
use crate::plan::{NodePlan, Plan, PodPlan};
use crate::policy::{NetworkPolicy, Policies};
use crate::random::pick;
use crate::services::{Candidate, Place, Service, Services};

pub use call::{Call, Held};
pub use machine::foreign_objects;
pub use runtime::{Attached, ChaosPod, Known, panicked, run_on, unclean};

/// A fault that somebody other than tweed has to mend, and how.
type Undo = Box<dyn FnOnce(&mut World) -> Result<(), LabError>>;

/// A cluster, and everything that was done to it.
pub struct World {
    /// The nodes and their agents.
    pub cluster: Cluster,
    /// The pods that should be attached.
    pub pods: Vec<ChaosPod>,
    /// Calls that were stopped, and continue at the end of the burst.
    pub held: Vec<Held>,
    /// Nodes on which the plugin finds the run folder read-only.
    pub read_only: BTreeSet<u8>,
    /// Policies, and the labels of namespaces.
    pub policies: Policies,
    /// Services; their endpoints are pods.
    pub services: Services,
    /// Whether nothing was done since everything was whole.
    pub is_untouched: bool,
    /// Number of pods that there should be.
    pod_count: usize,
    /// Number of pods created so far: no two have the same name.
    serial: usize,
    undo: Vec<Undo>,
    /// Foreign objects of each node, as they were before tweed came.
    foreign: Vec<(u8, Snapshot)>,
    /// What failed although it never may, found while acting.
    pub findings: Vec<String>,
    /// What an action did in detail, since [`World::take_notes`].
    notes: Vec<String>,
}

/// Time after which agents have read the node file, which they do only when it has not
/// changed for half a second to a second.
const READ_BY_THEN: Duration = Duration::from_millis(1250);

/// What an action works on: chosen by numbers among what there is.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Number of the node.
    pub node: u8,
    /// Index of a pod of that node, if it has one that is attached.
    pub pod: Option<usize>,
    /// For other choices.
    pub number: u64,
}

impl World {
    /// Nodes 1 to `nodes` with ready agents, two policies, two Services, and `pods` pods that are
    /// attached later.
    ///
    /// # Errors
    /// What the system refuses, or an agent that does not become ready.
    pub fn start(nodes: u8, pods: usize) -> Result<Self, LabError> {
        let lab = Lab::new()?;
        let mut world = Self {
            cluster: Cluster::empty(&lab, |options| options.arg("--services").arg("on"))?,
            pods: Vec::new(),
            held: Vec::new(),
            read_only: BTreeSet::new(),
            policies: Policies::new(),
            services: Services::default(),
            is_untouched: false,
            pod_count: pods,
            serial: 0,
            undo: Vec::new(),
            foreign: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
        };
        for (slot, number) in [(0, 3), (1, 5)] {
            let policy = NetworkPolicy::drawn(number);
            world.policies.namespaced.insert(slot, policy);
        }
        for (slot, number) in [(0, 1), (1, 2)] {
            world.services.all.insert(slot, Service::drawn(number));
        }
        for index in 1..=nodes {
            world.plug(index)?;
        }
        world.remember_foreign(&(1..=nodes).collect::<Vec<_>>())?;
        world.publish()?;
        for index in 1..=nodes {
            world.cluster.start_agent(index)?;
        }
        world.cluster.wait_ready()?;
        Ok(world)
    }

    /// The node and the pod that these numbers choose.
    pub fn target(&self, choices: [u64; 3]) -> Target {
        let [node, pod, number] = choices;
        let nodes: Vec<u8> = self.cluster.nodes().keys().copied().collect();
        let node = nodes.get(pick(node, nodes.len())).copied().unwrap_or(1);
        let own: Vec<usize> = (0..self.pods.len())
            .filter(|index| self.pods[*index].node == node && self.pods[*index].attached.is_some())
            .collect();
        let pod = own.get(pick(pod, own.len())).copied();
        Target { node, pod, number }
    }

    /// A node of the cluster.
    ///
    /// # Errors
    /// There is none of this number.
    pub fn node(&mut self, index: u8) -> Result<&mut ClusterNode, LabError> {
        self.cluster.entry(index)
    }

    /// Runs lines of `ip`, `bridge`, `nft` or `sysctl KEY=VALUE` in a node. Lines that
    /// fail are no error, and are noted: what they are to change may have been changed before.
    pub fn in_node(&mut self, index: u8, lines: &[String]) {
        let Ok(entry) = self.cluster.entry(index) else {
            return;
        };
        let netns = entry.node.netns();
        let mut failed = Vec::new();
        for line in lines {
            let setting = line.strip_prefix("sysctl ").and_then(|l| l.split_once('='));
            let done = match setting {
                Some((key, value)) => netns.set_sysctl(key, value),
                None => netns.sh(line).map(drop),
            };
            if done.is_err() {
                failed.push(format!("(failed: {line})"));
            }
        }
        failed.iter().for_each(|line| self.note(line));
    }

    /// Notes what an action does in detail, for the log.
    pub fn note(&mut self, detail: &str) {
        if self.notes.last().is_none_or(|last| last != detail) {
            self.notes.push(detail.to_owned());
        }
    }

    /// The notes since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes a pod away without a DEL, and its namespace.
    pub fn forget(&mut self, pod: usize) {
        self.pods.swap_remove(pod);
    }

    /// The last lines of each agent's log, for a report.
    pub fn logs(&mut self) -> String {
        let nodes: Vec<u8> = self.cluster.nodes().keys().copied().collect();
        let mut text = String::new();
        for index in nodes {
            if let Ok(Some(agent)) = self.node(index).map(|node| node.agent.as_mut()) {
                let lines = agent.process().last_lines(12);
                text.push_str(&format!("--- agent of node{index}:\n{lines}\n"));
            }
        }
        text
    }

    /// Remembers how to undo a fault at the end of the burst.
    pub fn undo_later(&mut self, undo: impl FnOnce(&mut Self) -> Result<(), LabError> + 'static) {
        self.undo.push(Box::new(undo));
    }

    /// As [`World::undo_later`], by lines for [`World::in_node`].
    pub fn undo_lines(&mut self, index: u8, lines: Vec<String>) {
        self.undo_later(move |world| {
            world.in_node(index, &lines);
            Ok(())
        });
    }

    /// The end of a burst: undoes what tweed cannot mend, the last fault first, lets
    /// stopped programs continue, and starts agents that have ended.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn end_burst(&mut self) -> Result<(), LabError> {
        while let Some(undo) = self.undo.pop() {
            undo(self)?;
        }
        self.finish_held();
        let nodes: Vec<u8> = self.cluster.nodes().keys().copied().collect();
        for index in nodes {
            let agent = self.node(index)?.agent.as_mut();
            let is_running = match agent.map(Agent::process) {
                Some(process) => {
                    process.signal(nix::sys::signal::Signal::SIGCONT);
                    process.exit_status()?.is_none()
                }
                None => false,
            };
            if !is_running {
                self.cluster.start_agent(index)?;
            }
        }
        self.publish()
    }

    /// Writes the node file: Nodes, Namespaces, pods and policies.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn publish(&mut self) -> Result<(), LabError> {
        *self.cluster.objects() = self.objects();
        self.cluster.publish()
    }

    /// As [`World::publish`], if an object beside the Nodes has changed since then: a
    /// pod that was attached has addresses. Not before agents had time to read the file as
    /// it is, whoever has written it: a pod whose Node has another pod CIDR gets a new
    /// address from the former one at each look, until the agent has read of the change.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn publish_changes(&mut self) -> Result<(), LabError> {
        let objects = self.objects();
        if *self.cluster.objects() == objects || !self.is_read() {
            return Ok(());
        }
        self.publish()
    }

    /// Whether agents had time to read the node file since it was written.
    fn is_read(&self) -> bool {
        let written = fs::metadata(self.nodes_file().path()).and_then(|file| file.modified());
        let age = written.ok().and_then(|written| written.elapsed().ok());
        age.is_none_or(|age| age >= READ_BY_THEN)
    }

    /// Writes these Nodes into the file, beside the other objects.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn write_nodes<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = &'a NodeManifest>,
    ) -> Result<(), LabError> {
        self.nodes_file().write_with(nodes, self.cluster.objects())
    }

    fn objects(&self) -> Objects {
        let mut objects = Objects::default();
        self.policies.write(&mut objects);
        self.services.write(&mut objects, &self.places(), PORT);
        for pod in &self.pods {
            let manifest = PodManifest {
                namespace: pod.namespace.to_owned(),
                name: pod.name.clone(),
                labels: labels(&format!("app={}", pod.app)),
                node: self.node_name(pod.node),
                addresses: pod
                    .attached
                    .iter()
                    .flat_map(|attached| attached.addresses.clone())
                    .collect(),
                ..PodManifest::default()
            };
            let key = format!("pod/{}", pod.name);
            objects.set(&key, manifest.to_json().to_string());
        }
        objects
    }

    /// The pods that may be endpoints.
    fn places(&self) -> Vec<Place<'_>> {
        let attached = self.pods.iter().filter_map(|pod| {
            Some(Place {
                candidate: Candidate {
                    node: pod.node,
                    name: &pod.name,
                    app: pod.app,
                },
                node: self.node_name(pod.node),
                addresses: &pod.attached.as_ref()?.addresses,
            })
        });
        attached.collect()
    }

    /// The name that a node has in the node file.
    fn node_name(&self, index: u8) -> String {
        let entry = self.cluster.nodes().get(&index);
        entry.map_or_else(String::new, |entry| entry.manifest.name.clone())
    }

    /// The state that the nodes should be in, from what was published and attached.
    pub fn plan(&self) -> Plan {
        let nodes = self.cluster.nodes().iter().map(|(index, entry)| {
            let of_node = self.pods.iter().filter(|pod| pod.node == *index);
            let pods = of_node.filter_map(|pod| {
                let attached = pod.attached.as_ref()?;
                Some(PodPlan {
                    link: attached.link.clone(),
                    mac: attached.mac.clone(),
                    addresses: attached.addresses.clone(),
                    mtu: attached.mtu,
                })
            });
            NodePlan {
                index: *index,
                name: entry.manifest.name.clone(),
                address: entry.node.address(),
                cidrs: entry
                    .manifest
                    .pod_cidrs
                    .iter()
                    .filter_map(|c| c.parse().ok())
                    .collect(),
                pods: pods.collect(),
            }
        });
        Plan {
            nodes: nodes.collect(),
        }
    }

    /// The file that the agents read.
    pub fn nodes_file(&self) -> NodesFile {
        self.cluster.nodes_file().clone()
    }

    /// The foreign objects of a node as they were before tweed came.
    pub fn foreign_before(&self, index: u8) -> Option<&Snapshot> {
        self.foreign
            .iter()
            .find(|(own, _)| *own == index)
            .map(|(_, before)| before)
    }

    /// The folder of the store of a node.
    ///
    /// # Errors
    /// There is no node of this number.
    pub fn store(&mut self, index: u8) -> Result<PathBuf, LabError> {
        Ok(self.node(index)?.node.run_dir().join("ipam/tweed"))
    }

    /// The process of a node's agent, if it has one.
    pub fn agent_pid(&mut self, index: u8) -> Option<u32> {
        self.node(index).ok()?.agent.as_ref().map(Agent::pid)
    }
}
