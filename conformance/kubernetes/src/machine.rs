//! A node: a set of namespaces in which containerd, kubelet and kube-proxy run.
//!
//! Its network namespace is connected to the underlay. Process 1 (`node-init.sh`)
//! also has its own mount, uts, ipc, pid and cgroup namespaces; when it ends, every
//! process in the node ends. The node's disk is a folder on the cluster's tmpfs.

mod component;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::context::Context;
use crate::daemon::Daemon;
use crate::disk::{self, Disk};
use crate::spec::NodeSpec;
use tweed_lab::LabError;
use tweed_lab::{Netns, Underlay};
use tweed_lab::{run, wait_until};

pub use component::Component;

/// Maximum time until a program has started; long enough for a machine that compiles
/// at the same time.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A node of a cluster.
#[derive(Debug)]
pub struct Machine {
    context: Arc<Context>,
    spec: NodeSpec,
    netns: Netns,
    disk: Disk,
    init: Daemon,
}

impl Machine {
    /// Connects a new node to the underlay and writes its files. [`Machine::boot`]
    /// starts it.
    pub(crate) fn create(
        context: &Arc<Context>,
        spec: NodeSpec,
        api: &NodeSpec,
    ) -> Result<Self, LabError> {
        let netns = context.underlay.plug(&spec.name, spec.address, 1500)?;
        let machine = Self::with_netns(context, spec, netns);
        machine.disk.write(context, &machine.spec, api)?;
        Ok(machine)
    }

    /// A node that another program has created.
    pub(crate) fn existing(context: &Arc<Context>, spec: NodeSpec) -> Self {
        let netns = Netns::existing(&context.lab, &spec.name);
        Self::with_netns(context, spec, netns)
    }

    fn with_netns(context: &Arc<Context>, spec: NodeSpec, netns: Netns) -> Self {
        let disk = Disk::new(&context.state.join(&spec.name));
        Self {
            context: Arc::clone(context),
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

    /// Its network namespace; a reboot replaces it.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The folder of its logs, `<component>.log`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.disk.folder()
    }

    /// The path on the machine of one of the folders that the node has for itself,
    /// such as `/etc/cni/net.d`.
    #[must_use]
    pub fn host_path(&self, path: &str) -> PathBuf {
        self.disk.host_path(path)
    }

    /// A command that runs in all of the node's namespaces and in its cgroup. The
    /// node sees the machine's programs under the same paths.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(self.enter_script());
        command.arg(program);
        command
    }

    /// Runs a program inside, named by the first word, and returns its stdout.
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
    /// [`LabError::Failed`] with its error.
    pub fn ctr(&self, words: &[&str]) -> Result<String, LabError> {
        let ctr = self.context.programs.program("ctr")?;
        run(self
            .command(ctr)
            .args(["--namespace", "k8s.io"])
            .args(words))
    }

    /// Imports an archive of images, so that pods can use them.
    ///
    /// # Errors
    /// [`LabError::Failed`] with containerd's error.
    pub fn import_image(&self, archive: &Path) -> Result<(), LabError> {
        self.ctr(&["images", "import", &archive.display().to_string()])
            .map(drop)
    }

    /// The boot ID that programs in the node see.
    ///
    /// # Errors
    /// The node does not run.
    pub fn boot_id(&self) -> Result<String, LabError> {
        let id = self.sh("cat /proc/sys/kernel/random/boot_id")?;
        Ok(id.trim().to_owned())
    }

    /// Starts process 1 and all components, and imports the images of a new node.
    pub(crate) fn boot(&self) -> Result<(), LabError> {
        self.start_init()?;
        if self.disk.has_boot_id() {
            let ctr = self.context.programs.program("ctr")?;
            let spec = run(self.command(ctr).args(["oci", "spec"]))?;
            self.disk.write_base_spec(&spec)?;
        }
        self.start(Component::Containerd)?;
        // After a reboot the images are still there.
        if !self.disk.has_boot_id() {
            let default_images = self.context.programs.images()?;
            for archive in default_images.iter().chain(&self.context.spec.images) {
                self.import_image(archive)?;
            }
        }
        self.start(Component::Kubelet)?;
        self.start(Component::KubeProxy)
    }

    /// Powers the node off without a shutdown, and returns it ready to be booted: with
    /// an empty `/run`, a new network namespace with the same MAC, and a new boot ID.
    pub(crate) fn power_off(self) -> Result<Self, LabError> {
        let Self {
            context,
            spec,
            netns,
            disk,
            init,
        } = self;
        let mac = Underlay::mac(&netns)?;
        halt(&context, &spec, netns, &init)?;
        disk.set_boot_id()?;
        let underlay = &context.underlay;
        let netns = underlay.plug_again(&spec.name, spec.address, 1500, &mac)?;
        let machine = Self::with_netns(&context, spec, netns);
        machine.disk.write_config(&context, &machine.spec)?;
        Ok(machine)
    }

    /// Removes the node with its disk.
    pub(crate) fn remove(self) -> Result<(), LabError> {
        let Self {
            context,
            spec,
            netns,
            disk,
            init,
        } = self;
        halt(&context, &spec, netns, &init)?;
        disk.remove()
    }

    fn group(&self) -> String {
        group(&self.context, &self.spec)
    }

    fn enter_script(&self) -> PathBuf {
        self.folder().join("enter")
    }

    fn start_init(&self) -> Result<(), LabError> {
        let group = self.group();
        self.context
            .lab
            .journalled("cgroups", &group, || self.context.cgroups.create(&group))?;
        let pid = self.folder().join("pid");
        fs::write(&pid, "").map_err(|e| LabError::file("write", &pid, e))?;
        // Only the child joins the cgroup, and `unshare` stays outside: a cgroup of
        // version 2 with groups below it must not have processes of its own.
        let join = format!(
            "{}exec unshare --cgroup \"$@\"",
            join(&self.context.cgroups.files_of_first_process(&group))
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
        self.init.start(&self.context.lab, &mut command)?;
        let what = format!("the mounts of {}", self.name());
        wait_until(&what, START_LIMIT, || {
            if !self.init.is_running() {
                return Ok(Err(LabError::Ended {
                    program: format!("process 1 of {}", self.name()),
                    log_tail: self.init.log_tail(),
                }));
            }
            let text = fs::read_to_string(&pid).unwrap_or_default();
            match text.strip_suffix('\n') {
                Some(pid) => Ok(Ok(pid.to_owned())),
                None => Err(self.init.log_tail()),
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
            join(&self.context.cgroups.files_of_later_processes(&self.group())),
        );
        disk::write_program(&self.enter_script(), &text)
    }
}

/// Kills everything in a node, and removes its namespaces, its port and its cgroup.
/// Its disk stays.
fn halt(context: &Context, spec: &NodeSpec, netns: Netns, init: &Daemon) -> Result<(), LabError> {
    // When `unshare` ends, process 1 ends, and with it all others.
    init.stop(Signal::SIGKILL)?;
    let group = group(context, spec);
    context.cgroups.remove(&group)?;
    context.lab.remove_journal_entry("cgroups", &group);
    netns.delete();
    context.underlay.unplug(&spec.name, spec.address);
    Ok(())
}

/// The cgroup's name.
fn group(context: &Context, spec: &NodeSpec) -> String {
    format!("tweed-{}-{}", context.lab.name(), spec.name)
}

/// Shell commands with which a shell joins the cgroups of these files.
fn join(files: &[PathBuf]) -> String {
    files
        .iter()
        .map(|file| format!("echo $$ >'{}'\n", file.display()))
        .collect()
}
