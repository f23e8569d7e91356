//! What happens to a cluster that stands: nodes come and go, parts of the
//! control plane stop and start, kube-proxy changes its mode.

use nix::sys::signal::Signal;

use super::Cluster;
use crate::inotify;
use crate::machine::Machine;
use crate::spec::{CONTROL, Network, NodeSpec, ProxyMode};
use tweed_lab::LabError;

impl Cluster {
    /// Runs kube-proxy in another mode on all nodes at once, or ends it, with
    /// nothing of its rules left.
    ///
    /// # Errors
    /// It does not start, or cannot take its rules away.
    pub fn set_proxy(&mut self, mode: ProxyMode) -> Result<(), LabError> {
        self.site.set_proxy(mode);
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

    /// kube-proxy's mode now.
    #[must_use]
    pub fn proxy(&self) -> ProxyMode {
        self.site.proxy()
    }

    /// Stops the API server; all else of the control plane runs on.
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

    /// Whether Nodes without a pod CIDR get one, as they do at first. It restarts
    /// the controller manager.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] if it does not end; it does not start.
    pub fn allocate_pod_cidrs(&self, allocates: bool) -> Result<(), LabError> {
        self.control.restart_controller_manager(allocates)
    }

    /// Adds a node and waits until it is registered. With tweed or without a
    /// network, whether it turns Ready is not waited for.
    ///
    /// # Errors
    /// [`LabError::Inotify`]; something of its name is there, or a component
    /// does not start.
    pub fn add_node(&mut self, node: NodeSpec) -> Result<&Machine, LabError> {
        inotify::check_node()?;
        let name = node.name.clone();
        let machine = Machine::create(&self.site, node, &NodeSpec::control())?;
        self.boot_one(machine)?;
        self.write_record()?;
        self.wait_nodes("to be registered", |_| true)?;
        if self.site.spec.network == Network::Reference {
            self.add_reference(self.node(&name)?)?;
        }
        self.node(&name)
    }

    /// Takes a node's machine away, at once and with its disk, as if it had
    /// been thrown out. Its Node object stays until somebody deletes it.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`]; the control-plane node cannot go.
    pub fn take_node_away(&mut self, name: &str) -> Result<(), LabError> {
        self.take(name)?.remove()?;
        self.write_record()
    }

    /// Pulls a node's plug and boots it again: its `/run` is empty, its network
    /// namespace a new one, its boot ID another. kubelet runs when this
    /// returns.
    ///
    /// # Errors
    /// As [`Cluster::take_node_away`]; what does not start again.
    pub fn reboot(&mut self, name: &str) -> Result<&Machine, LabError> {
        let machine = self.take(name)?.turn_off()?;
        self.boot_one(machine)?;
        if self.site.spec.network == Network::Reference {
            self.add_reference(self.node(name)?)?;
        }
        self.node(name)
    }

    /// Boots a machine that is one of the cluster's from now on: one that does not
    /// come up can be looked at, and taken away, too.
    fn boot_one(&mut self, machine: Machine) -> Result<(), LabError> {
        let name = machine.name().to_owned();
        self.machines.insert(name.clone(), machine);
        self.node(&name)?.boot()
    }

    fn take(&mut self, name: &str) -> Result<Machine, LabError> {
        if name == CONTROL {
            return Err(LabError::Name {
                name: name.to_owned(),
                why: "the control plane runs on that node, and would go with it",
            });
        }
        let unknown = self.no_such_node(name);
        self.machines.remove(name).ok_or(unknown)
    }
}
