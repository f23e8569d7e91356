//! A node: namespaces of its own, and in them containerd, kubelet and
//! kube-proxy.
//!
//! Its network namespace is plugged into the underlay. Process 1
//! (`node-init.sh`) has mount, uts, ipc, pid and cgroup namespaces beside it;
//! with that process ends everything in the node. What is on the node's disk
//! is a folder of the cluster's tmpfs.

mod component;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::daemon::Daemon;
use crate::disk::{self, Disk};
use crate::site::Site;
use crate::spec::NodeSpec;
use tweed_lab::LabError;
use tweed_lab::Netns;
use tweed_lab::{run, wait_until};

pub use component::Component;

/// For a program to come up, on a machine that builds beside it.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A node of a cluster.
#[derive(Debug)]
pub struct Machine {
    site: Arc<Site>,
    spec: NodeSpec,
    netns: Netns,
    disk: Disk,
    init: Daemon,
}

impl Machine {
    /// Plugs a new node into the underlay and writes its files; nothing runs
    /// in it before [`Machine::boot`].
    pub(crate) fn create(
        site: &Arc<Site>,
        spec: NodeSpec,
        api: &NodeSpec,
    ) -> Result<Self, LabError> {
        let netns = site.underlay.plug(&spec.name, spec.address, 1500)?;
        let machine = Self::with_netns(site, spec, netns);
        machine.disk.write(site, &machine.spec, api)?;
        Ok(machine)
    }

    /// A node that another program has made.
    pub(crate) fn existing(site: &Arc<Site>, spec: NodeSpec) -> Self {
        let netns = Netns::existing(&site.lab, &spec.name);
        Self::with_netns(site, spec, netns)
    }

    fn with_netns(site: &Arc<Site>, spec: NodeSpec, netns: Netns) -> Self {
        let disk = Disk::new(&site.state.join(&spec.name));
        Self {
            site: Arc::clone(site),
            netns,
            init: Daemon::new(disk.folder(), "node-init"),
            disk,
            spec,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its name and address.
    #[must_use]
    pub fn spec(&self) -> &NodeSpec {
        &self.spec
    }

    /// Its network namespace. A reboot makes another one.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Where its logs are: `<component>.log`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.disk.folder()
    }

    /// Where one of the folders that are the node's own, as `/etc/cni/net.d`,
    /// lies outside.
    #[must_use]
    pub fn own(&self, path: &str) -> PathBuf {
        self.disk.own(path)
    }

    /// A command that will run inside, in all of the node's namespaces and in
    /// its cgroup. A program of the machine is found by its path.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(self.enter_script());
        command.arg(program);
        command
    }

    /// Runs a program inside, named by the first word, and gives its stdout.
    ///
    /// # Errors
    /// [`LabError::Failed`] with what it printed if it did not exit with 0.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
    ) -> Result<String, LabError> {
        run(Command::new(self.enter_script()).args(words))
    }

    /// Runs a line of shell inside.
    ///
    /// # Errors
    /// As [`Machine::run`].
    pub fn sh(&self, line: &str) -> Result<String, LabError> {
        self.run(["sh", "-c", line])
    }

    /// Runs containerd's `ctr` in Kubernetes' namespace.
    ///
    /// # Errors
    /// [`LabError::Failed`] with its words.
    pub fn ctr(&self, words: &[&str]) -> Result<String, LabError> {
        let ctr = self.site.programs.program("ctr")?;
        run(self
            .command(ctr)
            .args(["--namespace", "k8s.io"])
            .args(words))
    }

    /// Imports an archive of images, so that pods can use them.
    ///
    /// # Errors
    /// [`LabError::Failed`] with containerd's words.
    pub fn import_image(&self, archive: &Path) -> Result<(), LabError> {
        let archive = archive.display().to_string();
        self.ctr(&["images", "import", &archive]).map(drop)
    }

    /// The boot ID that programs in the node see.
    ///
    /// # Errors
    /// The node does not run.
    pub fn boot_id(&self) -> Result<String, LabError> {
        let id = self.sh("cat /proc/sys/kernel/random/boot_id")?;
        Ok(id.trim().to_owned())
    }

    /// Starts process 1, containerd, and what else there is, and imports the
    /// images that a new node lacks.
    pub(crate) fn boot(&self) -> Result<(), LabError> {
        self.start_init()?;
        if self.disk.has_boot_id() {
            let ctr = self.site.programs.program("ctr")?;
            let spec = run(self.command(ctr).args(["oci", "spec"]))?;
            self.disk.write_base_spec(&spec)?;
        }
        self.start(Component::Containerd)?;
        // A reboot finds what is there.
        if !self.disk.has_boot_id() {
            let own = self.site.programs.images()?;
            for archive in own.iter().chain(&self.site.spec.images) {
                self.import_image(archive)?;
            }
        }
        self.start(Component::Kubelet)?;
        self.start(Component::KubeProxy)
    }

    /// Pulls the plug, and gives the node as it is to be booted again: `/run` is
    /// empty, the network namespace a new one, and the boot ID another.
    pub(crate) fn turn_off(self) -> Result<Self, LabError> {
        let Self {
            site,
            spec,
            netns,
            disk,
            init,
        } = self;
        halt(&site, &spec, netns, &init)?;
        disk.set_boot_id()?;
        let netns = site.underlay.plug(&spec.name, spec.address, 1500)?;
        let machine = Self::with_netns(&site, spec, netns);
        machine.disk.write_config(&site, &machine.spec)?;
        Ok(machine)
    }

    /// Takes the node away, with its disk.
    pub(crate) fn remove(self) -> Result<(), LabError> {
        let Self {
            site,
            spec,
            netns,
            disk,
            init,
        } = self;
        halt(&site, &spec, netns, &init)?;
        disk.remove()
    }

    fn group(&self) -> String {
        group(&self.site, &self.spec)
    }

    fn enter_script(&self) -> PathBuf {
        self.folder().join("enter")
    }

    fn start_init(&self) -> Result<(), LabError> {
        let group = self.group();
        self.site
            .lab
            .journalled("cgroups", &group, || self.site.cgroups.create(&group))?;
        let pid = self.folder().join("pid");
        fs::write(&pid, "").map_err(|e| LabError::file("write", &pid, e))?;
        // Only the child is in the cgroup: in one of version 2 nobody may be beside
        // the groups below it, and `unshare` itself stays where it is.
        let join = format!(
            "{}exec unshare --cgroup \"$@\"",
            join(&self.site.cgroups.first(&group))
        );
        let netns = format!("--net={}", self.netns.path().display());
        let mut command = Command::new("nsenter");
        command
            .args([&netns, "unshare", "--mount", "--propagation", "private"])
            .args(["--uts", "--ipc", "--pid", "--fork", "--kill-child"])
            .args(["sh", "-c", &join])
            .arg("node-init")
            .arg(self.folder().join("node-init.sh"))
            .arg(self.name())
            .arg(self.folder());
        self.init.start(&self.site.lab, &mut command)?;
        let what = format!("the mounts of {}", self.name());
        wait_until(&what, START_LIMIT, || {
            if !self.init.is_running() {
                return Ok(Err(LabError::Ended {
                    program: format!("process 1 of {}", self.name()),
                    last_words: self.init.last_words(),
                }));
            }
            let text = fs::read_to_string(&pid).unwrap_or_default();
            match text.strip_suffix('\n') {
                Some(pid) => Ok(Ok(pid.to_owned())),
                None => Err(self.init.last_words()),
            }
        })?
        .and_then(|pid| self.write_enter_script(&pid))
    }

    fn write_enter_script(&self, pid: &str) -> Result<(), LabError> {
        let text = format!(
            "#!/bin/sh\n\
             # Runs a program in all namespaces and the cgroup of {}.\n\
             {}exec nsenter --target {pid} --all -- \"$@\"\n",
            self.name(),
            join(&self.site.cgroups.later(&self.group())),
        );
        disk::write_program(&self.enter_script(), &text)
    }
}

/// Ends all that runs in a node, and takes its namespaces, its port and its
/// cgroup away. Its disk stays.
fn halt(site: &Site, spec: &NodeSpec, netns: Netns, init: &Daemon) -> Result<(), LabError> {
    // `unshare` takes process 1 with it, and that all others.
    init.stop(Signal::SIGKILL)?;
    let group = group(site, spec);
    site.cgroups.remove(&group)?;
    site.lab.forget("cgroups", &group);
    netns.delete();
    site.underlay.unplug(&spec.name, spec.address);
    Ok(())
}

/// The cgroup's name.
fn group(site: &Site, spec: &NodeSpec) -> String {
    format!("tweed-{}-{}", site.lab.name(), spec.name)
}

/// Shell that puts itself into cgroups, by their files.
fn join(files: &[PathBuf]) -> String {
    files
        .iter()
        .map(|file| format!("echo $$ >'{}'\n", file.display()))
        .collect()
}
