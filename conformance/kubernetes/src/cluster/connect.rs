//! From namespaces to Ready nodes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Cluster;
use crate::kubectl::condition;
use crate::machine::Machine;
use crate::network;
use crate::spec::{CONTROL, Network};
use tweed_lab::Lab;
use tweed_lab::LabError;

/// For nodes to turn Ready, on a machine that builds beside it.
const READY_LIMIT: Duration = Duration::from_secs(180);

impl Cluster {
    /// Installs tweed by the one command that a user types, and waits until
    /// all nodes are Ready. Gives the time that it took.
    ///
    /// # Errors
    /// What kubectl says; [`LabError::TimedOut`].
    pub fn install_tweed(&self) -> Result<Duration, LabError> {
        let start = Instant::now();
        let manifest = tweed_manifest(&self.site.lab);
        self.kubectl.run([
            "apply".as_ref(),
            "--filename".as_ref(),
            manifest.as_os_str(),
        ])?;
        self.wait_nodes_ready()?;
        Ok(start.elapsed())
    }

    /// Waits until every node is Ready.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with the conditions of those that are not, or
    /// [`LabError::Ended`] as soon as a component has died.
    pub fn wait_nodes_ready(&self) -> Result<(), LabError> {
        self.wait_nodes("to be Ready", |node| {
            condition(node, "Ready") == Some("True")
        })
    }

    /// Starts the control plane and all nodes beside each other.
    pub(super) fn boot(&self) -> Result<(), LabError> {
        std::thread::scope(|scope| {
            let nodes: Vec<_> = self
                .nodes()
                .map(|machine| (machine, scope.spawn(|| machine.boot())))
                .collect();
            self.control.start(&self.kubectl)?;
            self.tell("the control plane answers");
            for (machine, booting) in nodes {
                match booting.join() {
                    Ok(booted) => booted?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
                self.tell(&format!("{} runs, with its images", machine.name()));
            }
            Ok(())
        })
    }

    /// Waits for the nodes to register, and gives them their network.
    pub(super) fn connect(&self) -> Result<(), LabError> {
        self.wait_nodes("to be registered", |_| true)?;
        // kubelet may not give itself this label.
        let label = "node-role.kubernetes.io/control-plane=";
        self.kubectl
            .sh(&format!("label node {CONTROL} {label} --overwrite"))?;
        self.tell("all nodes are registered");
        match self.site.spec.network {
            Network::None => return Ok(()),
            Network::Tweed => drop(self.install_tweed()?),
            Network::Reference => {
                for machine in self.nodes() {
                    self.add_reference(machine)?;
                }
                self.wait_nodes_ready()?;
            }
        }
        self.tell("all nodes are Ready");
        Ok(())
    }

    pub(super) fn add_reference(&self, machine: &Machine) -> Result<(), LabError> {
        let all: Vec<&Machine> = self.nodes().collect();
        network::add_reference(&self.site, &self.kubectl, machine, &all)
    }

    /// Waits until each of the cluster's machines has a Node that is as asked.
    pub(super) fn wait_nodes(
        &self,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Result<(), LabError> {
        let what = format!("the {} nodes {what}", self.machines.len());
        self.kubectl.wait_for(&what, READY_LIMIT, || {
            let checked = self
                .nodes()
                .map(Machine::check)
                .chain([self.control.check()])
                .collect::<Result<(), _>>();
            if let Err(ended) = checked {
                return Ok(Err(ended));
            }
            let nodes = self.kubectl.list("nodes").map_err(|e| e.chain())?;
            let missing: Vec<String> = self
                .machines
                .keys()
                .filter_map(|name| {
                    let found = nodes.iter().find(|node| node["metadata"]["name"] == **name);
                    match found {
                        Some(node) if is_so(node) => None,
                        Some(node) => Some(format!("{name}: {}", node["status"]["conditions"])),
                        None => Some(format!("{name} is not registered")),
                    }
                })
                .collect();
            if missing.is_empty() {
                return Ok(Ok(()));
            }
            Err(missing.join("; "))
        })?
    }
}

/// The manifest, beside cargo's folder in the source.
fn tweed_manifest(lab: &Lab) -> PathBuf {
    lab.programs().target().with_file_name("install/tweed.yaml")
}
