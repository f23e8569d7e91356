//! A cluster: creating it, opening one that exists, and access to its parts.

mod change;
mod startup;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::control::{ControlPlane, Host};
use crate::disk::write_program;
use crate::inotify;
use crate::kubectl::Kubectl;
use crate::machine::Machine;
use crate::pki::Pki;
use crate::programs::KubernetesPrograms;
use crate::spec::{CONTROL, Network, NodeSpec, Spec};
use tweed_lab::Cgroups;
use tweed_lab::Lab;
use tweed_lab::LabError;
use tweed_lab::Underlay;

/// Number of lines of each command's output that are printed when a cluster does
/// not start.
const FAILURE_REPORT_LINES: usize = 15;

/// Prints progress: one line, or the report of a failure, which has many lines.
pub type ProgressFn = Box<dyn Fn(&str) + Send + Sync>;

/// A running cluster; removed on drop, unless it was kept or opened.
pub struct Cluster {
    context: Arc<Context>,
    control: ControlPlane,
    machines: BTreeMap<String, Machine>,
    kubectl: Kubectl,
    progress: ProgressFn,
    start: Instant,
}

/// The file that [`Cluster::open`] reads.
#[derive(Serialize, Deserialize)]
struct Record {
    spec: Spec,
    nodes: Vec<NodeSpec>,
}

impl Cluster {
    /// Creates a cluster and waits until its nodes are Ready or, without a network,
    /// registered. It prints each step and the time by `progress`, and a report
    /// before it removes a cluster that does not start.
    ///
    /// # Errors
    /// A missing program, an existing lab of that name, or a component that does
    /// not start; the error has the end of its log.
    pub fn up(name: &str, mut spec: Spec, progress: ProgressFn) -> Result<Self, LabError> {
        let start = Instant::now();
        let lab = Lab::named(name)?;
        let image = spec.image_of_tweed(lab.programs().target());
        if spec.network == Network::Tweed && !spec.images.contains(&image) {
            spec.images.push(image);
        }
        check_images(&spec)?;
        let nodes = spec.nodes()?;
        inotify::check_cluster(nodes.len())?;
        let api = NodeSpec::control();
        let state = lab.tmpfs("state")?;
        let context = Arc::new(Context {
            underlay: Underlay::new(&lab)?,
            programs: KubernetesPrograms::find(lab.programs(), spec.kubernetes.as_deref())?,
            pki: Pki::create(&state.join("pki"), api.address)?,
            cgroups: Cgroups::mounted()?,
            proxy: Mutex::new(spec.proxy),
            spec,
            state,
            lab,
        });
        let machines = nodes
            .into_iter()
            .map(|node| Machine::create(&context, node, &api))
            .map(|made| made.map(|machine| (machine.name().to_owned(), machine)))
            .collect::<Result<_, _>>()?;
        let cluster = Self::assemble(context, machines, progress, start)?;
        cluster.write_record()?;
        cluster.write_scripts()?;
        cluster.log("namespaces, certificates and configs are created");
        match cluster.boot().and_then(|()| cluster.connect()) {
            Ok(()) => Ok(cluster),
            Err(error) => {
                cluster.log(&cluster.report().text(FAILURE_REPORT_LINES));
                Err(error)
            }
        }
    }

    /// A cluster that another program has created and kept. It stays on drop.
    ///
    /// # Errors
    /// [`LabError::Absent`] if there is none.
    pub fn open(name: &str, progress: ProgressFn) -> Result<Self, LabError> {
        let start = Instant::now();
        let lab = Lab::open(name)?;
        let path = record_of(lab.folder());
        let text = fs::read(&path).map_err(|e| LabError::file("read", &path, e))?;
        let record: Record =
            serde_json::from_slice(&text).map_err(|e| LabError::file("read", &path, e.into()))?;
        let state = lab.folder().join("state");
        let context = Arc::new(Context {
            underlay: Underlay::existing(&lab),
            programs: KubernetesPrograms::find(lab.programs(), record.spec.kubernetes.as_deref())?,
            pki: Pki::existing(&state.join("pki")),
            cgroups: Cgroups::mounted()?,
            proxy: Mutex::new(record.spec.proxy),
            spec: record.spec,
            state,
            lab,
        });
        let machines = record
            .nodes
            .into_iter()
            .map(|node| (node.name.clone(), Machine::existing(&context, node)))
            .collect();
        Self::assemble(context, machines, progress, start)
    }

    fn assemble(
        context: Arc<Context>,
        machines: BTreeMap<String, Machine>,
        progress: ProgressFn,
        start: Instant,
    ) -> Result<Self, LabError> {
        let netns = Path::new("/run/netns").join(format!("{}-{CONTROL}", context.lab.name()));
        let kubectl = Kubectl::new(
            &netns,
            context.programs.program("kubectl")?,
            context.pki.path("admin.kubeconfig"),
            context.state.join("kubectl-cache"),
        );
        let host = Host {
            lab: context.lab.clone(),
            programs: context.programs.clone(),
            pki: context.pki.clone(),
            netns,
            folder: context.state.join("control-plane"),
            dual_stack: context.spec.dual_stack,
        };
        Ok(Self {
            control: ControlPlane::new(host, NodeSpec::control()),
            context,
            machines,
            kubectl,
            progress,
            start,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.context.lab.name()
    }

    /// The lab that owns the cluster, to create more namespaces and processes.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.context.lab
    }

    /// The underlay of its nodes, with the host outside.
    #[must_use]
    pub fn underlay(&self) -> &Underlay {
        &self.context.underlay
    }

    /// The spec that it was created from.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.context.spec
    }

    /// kubectl with the rights of an administrator.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// The folder of the scripts `kubectl`, and `node`, which runs a program in a
    /// node.
    #[must_use]
    pub fn scripts(&self) -> PathBuf {
        scripts_of(&self.context.lab)
    }

    /// Its nodes, sorted by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values()
    }

    /// Its nodes except [`CONTROL`], sorted by name.
    pub fn workers(&self) -> impl Iterator<Item = &Machine> {
        self.nodes().filter(|node| !node.spec().is_control())
    }

    /// A node by its name.
    ///
    /// # Errors
    /// [`LabError::NoSuchNode`].
    pub fn node(&self, name: &str) -> Result<&Machine, LabError> {
        self.machines
            .get(name)
            .ok_or_else(|| self.no_such_node(name))
    }

    /// Prints a message with the time since the start.
    pub fn log(&self, message: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        (self.progress)(&format!("[{seconds:6.1} s] {message}"));
    }

    /// Path of a program that `conformance/setup.sh e2e` has built, as `agnhost`.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`].
    pub fn program(&self, name: &str) -> Result<PathBuf, LabError> {
        self.context.programs.program(name)
    }

    /// The API server's audit log, which has the requests of tweed's agents, one JSON
    /// object a line.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.control.audit_log()
    }

    /// Keeps the cluster when this program ends.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn keep(&self) -> Result<(), LabError> {
        self.context.lab.keep()
    }

    /// The folder of the control plane's logs, `<component>.log`.
    pub(super) fn control_folder(&self) -> &Path {
        self.control.folder()
    }

    fn no_such_node(&self, name: &str) -> LabError {
        LabError::NoSuchNode {
            name: name.to_owned(),
            known: self.machines.keys().cloned().collect(),
        }
    }

    fn write_record(&self) -> Result<(), LabError> {
        let mut spec = self.context.spec.clone();
        spec.proxy = self.context.proxy();
        let record = Record {
            spec,
            nodes: self.nodes().map(|node| node.spec().clone()).collect(),
        };
        let path = record_of(self.context.lab.folder());
        fs::write(&path, serde_json::json!(record).to_string())
            .map_err(|e| LabError::file("write", &path, e))
    }

    fn write_scripts(&self) -> Result<(), LabError> {
        let folder = self.scripts();
        self.context.lab.add_external_folder(&folder)?;
        write_program(&folder.join("kubectl"), &self.kubectl.script())?;
        let state = self.context.state.display();
        write_program(
            &folder.join("node"),
            &format!(
                "#!/bin/sh\n\
                 # Runs a program in a node of this cluster: node NAME PROGRAM ARGUMENT...\n\
                 sudo=$([ \"$(id -u)\" -eq 0 ] || echo sudo)\n\
                 node=$1\n\
                 shift\n\
                 exec $sudo '{state}'/\"$node\"/enter \"$@\"\n"
            ),
        )
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("context", &self.context)
            .field("machines", &self.machines)
            .finish_non_exhaustive()
    }
}

/// The folder of the scripts of a lab's cluster.
fn scripts_of(lab: &Lab) -> PathBuf {
    lab.programs().target().join("cluster").join(lab.name())
}

fn record_of(folder: &Path) -> PathBuf {
    folder.join("cluster.json")
}

fn check_images(spec: &Spec) -> Result<(), LabError> {
    match spec.images.iter().find(|archive| !archive.is_file()) {
        None => Ok(()),
        Some(missing) => Err(LabError::MissingProgram {
            program: missing.display().to_string(),
            folder: PathBuf::from("."),
            cure: "run `make image`, or `make release` for the folder of a release",
        }),
    }
}
