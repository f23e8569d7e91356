//! Changes of a running cluster: adding, rebooting and removing nodes, stopping and
//! starting parts of the control plane, changing the mode of kube-proxy.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::Cluster;
use crate::config::Controllers;
use crate::inotify;
use crate::machine::Machine;
use crate::spec::{CONTROL, Network, NodeSpec, ProxyMode};
use tweed_lab::LabError;

impl Cluster {
    /// Restarts kube-proxy in another mode on all nodes at once, or stops it. The
    /// rules of the old mode are removed. What tweed does is decided by the next
    /// [`Cluster::install_tweed`].
    ///
    /// # Errors
    /// It does not start, or cannot remove its rules.
    pub fn set_proxy(&mut self, mode: ProxyMode) -> Result<(), LabError> {
        self.context.set_proxy(mode);
        std::thread::scope(|scope| {
            let nodes: Vec<_> = self
                .nodes()
                .map(|machine| scope.spawn(|| machine.change_proxy()))
                .collect();
            nodes.into_iter().try_for_each(|changing| {
                changing
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        self.write_record()
    }

    /// What serves Services.
    #[must_use]
    pub fn proxy(&self) -> ProxyMode {
        self.context.proxy()
    }

    /// Stops the API server; the rest of the control plane keeps running.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] if it does not end.
    pub fn stop_api_server(&self) -> Result<(), LabError> {
        self.control.stop_api_server(Signal::SIGKILL)
    }

    /// Starts the API server again and waits until it answers.
    ///
    /// # Errors
    /// [`LabError::Ended`] or [`LabError::TimedOut`] with the end of its log.
    pub fn start_api_server(&self) -> Result<(), LabError> {
        self.control.start_api_server(&self.kubectl)
    }

    /// Restarts the controller manager with or without allocation of pod CIDRs to
    /// new Nodes. A new cluster has it.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] if it does not end; it does not start.
    pub fn allocate_pod_cidrs(&self, allocates: bool) -> Result<(), LabError> {
        self.control.restart_controller_manager(&Controllers {
            allocates,
            ..Controllers::default()
        })
    }

    /// Restarts the controller manager with this time without a word of a kubelet after
    /// which its Node is no longer Ready; `None` is that of a new cluster, Kubernetes'
    /// default.
    ///
    /// # Errors
    /// As [`Cluster::allocate_pod_cidrs`].
    pub fn set_node_grace(&self, node_grace: Option<Duration>) -> Result<(), LabError> {
        self.control.restart_controller_manager(&Controllers {
            node_grace,
            ..Controllers::default()
        })
    }

    /// Adds a node and waits until it is registered, but not until it is Ready.
    ///
    /// # Errors
    /// [`LabError::Inotify`]; its name is in use, or a component does not start.
    pub fn add_node(&mut self, node: NodeSpec) -> Result<&Machine, LabError> {
        inotify::check_node()?;
        let name = node.name.clone();
        let machine = Machine::create(&self.context, node, &NodeSpec::control())?;
        self.boot_one(machine)?;
        self.write_record()?;
        self.wait_nodes("to be registered", |_| true)?;
        if self.context.spec.network == Network::Reference {
            self.add_reference(self.node(&name)?)?;
        }
        self.node(&name)
    }

    /// Destroys a node's machine with its disk, without a shutdown. The Node object
    /// stays until it is deleted.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`]; the control-plane node cannot be destroyed.
    pub fn destroy_machine(&mut self, name: &str) -> Result<(), LabError> {
        self.remove_machine(name)?.remove()?;
        self.write_record()
    }

    /// Powers a node off without a shutdown and boots it again, with an empty `/run`,
    /// a new network namespace and a new boot ID. kubelet runs when this returns.
    ///
    /// # Errors
    /// As [`Cluster::destroy_machine`]; a component does not start.
    pub fn reboot(&mut self, name: &str) -> Result<&Machine, LabError> {
        let machine = self.remove_machine(name)?.power_off()?;
        self.boot_one(machine)?;
        if self.context.spec.network == Network::Reference {
            self.add_reference(self.node(name)?)?;
        }
        self.node(name)
    }

    /// Boots a machine. It is part of the cluster even if it does not boot, so that it
    /// can be inspected and removed.
    fn boot_one(&mut self, machine: Machine) -> Result<(), LabError> {
        let name = machine.name().to_owned();
        self.machines.insert(name.clone(), machine);
        self.node(&name)?.boot()
    }

    fn remove_machine(&mut self, name: &str) -> Result<Machine, LabError> {
        if name == CONTROL {
            return Err(LabError::Name {
                name: name.to_owned(),
                why: "the control plane runs on that node",
            });
        }
        let unknown = self.no_such_node(name);
        self.machines.remove(name).ok_or(unknown)
    }
}
