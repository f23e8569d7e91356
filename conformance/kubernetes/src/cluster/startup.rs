//! Starting a cluster whose namespaces and files exist, until its nodes are Ready.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Cluster;
use crate::kubectl::condition;
use crate::machine::Machine;
use crate::network;
use crate::spec::{CONTROL, Network, ProxyMode};
use tweed_lab::{LabError, all_have_fast_path};

/// Maximum time until all nodes are Ready; long enough for a machine that compiles
/// at the same time.
const READY_LIMIT: Duration = Duration::from_secs(180);

impl Cluster {
    /// Installs tweed by the command that users run on a cluster with this kind of proxy,
    /// and waits until all nodes are Ready. Returns the time that it took.
    ///
    /// # Errors
    /// kubectl's error; [`LabError::TimedOut`].
    pub fn install_tweed(&self) -> Result<Duration, LabError> {
        let start = Instant::now();
        let source = self.context.lab.programs().source();
        self.apply_tweed(self.proxy(), &source)?;
        self.wait_nodes_ready()?;
        Ok(start.elapsed())
    }

    /// Applies the manifest of the tweed in this source folder, for a cluster with this proxy.
    /// With `TWEED_LAB_FAST_PATH` it is a user's overlay that has the fast path too: every
    /// scenario is then one of that.
    ///
    /// # Errors
    /// kubectl's error.
    pub fn apply_tweed(&self, proxy: ProxyMode, source: &Path) -> Result<(), LabError> {
        let (option, path) = if all_have_fast_path() {
            ("--kustomize", self.overlay_of_fast_path(proxy, source)?)
        } else {
            self.spec().manifest_of_tweed(proxy, source)
        };
        let words = ["apply".as_ref(), option.as_ref(), path.as_os_str()];
        self.kubectl.run(words).map(drop)
    }

    /// The folder of a user's overlay that has the fast path.
    fn overlay_of_fast_path(&self, proxy: ProxyMode, source: &Path) -> Result<PathBuf, LabError> {
        let base = match proxy.manifest() {
            ("--kustomize", overlay) => overlay,
            _ => "install/kustomize/base",
        };
        let folder = self.context.lab.folder().join("with-fast-path");
        let failed = |error| LabError::file("write", &folder, error);
        fs::create_dir_all(&folder).map_err(failed)?;
        // kustomize refuses absolute paths.
        let link = folder.join("install");
        // It may be that of another version.
        let _ = fs::remove_file(&link);
        symlink(source.join("install"), &link).map_err(failed)?;
        let text = format!(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n\
             resources: [{base}]\ncomponents: [install/kustomize/with-fast-path]\n"
        );
        fs::write(folder.join("kustomization.yaml"), text).map_err(failed)?;
        Ok(folder)
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

    /// Starts the control plane and all nodes in parallel.
    pub(super) fn boot(&self) -> Result<(), LabError> {
        std::thread::scope(|scope| {
            let nodes: Vec<_> = self
                .nodes()
                .map(|machine| (machine, scope.spawn(|| machine.boot())))
                .collect();
            self.control.start(&self.kubectl)?;
            self.log("the control plane answers");
            for (machine, booting) in nodes {
                match booting.join() {
                    Ok(booted) => booted?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
                self.log(&format!("{} runs, with its images", machine.name()));
            }
            Ok(())
        })
    }

    /// Waits until the nodes are registered, and installs their network.
    pub(super) fn connect(&self) -> Result<(), LabError> {
        self.wait_nodes("to be registered", |_| true)?;
        // kubelet is not allowed to set this label itself.
        let label = "node-role.kubernetes.io/control-plane=";
        self.kubectl
            .sh(&format!("label node {CONTROL} {label} --overwrite"))?;
        self.log("all nodes are registered");
        match self.context.spec.network {
            Network::None => return Ok(()),
            Network::Tweed => drop(self.install_tweed()?),
            Network::Reference => {
                for machine in self.nodes() {
                    self.add_reference(machine)?;
                }
                self.wait_nodes_ready()?;
            }
        }
        self.log("all nodes are Ready");
        Ok(())
    }

    pub(super) fn add_reference(&self, machine: &Machine) -> Result<(), LabError> {
        let all: Vec<&Machine> = self.nodes().collect();
        network::add_reference(&self.context, &self.kubectl, machine, &all)
    }

    /// Waits until each machine of the cluster has a Node for which `is_so` is true.
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
