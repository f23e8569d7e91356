//! A cluster: how it is made, found again, and looked at.

mod change;
mod connect;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::control::{ControlPlane, Host};
use crate::disk::write_program;
use crate::inotify;
use crate::kubectl::Kubectl;
use crate::machine::Machine;
use crate::pki::Pki;
use crate::programs::KubernetesPrograms;
use crate::site::Site;
use crate::spec::{CONTROL, Network, NodeSpec, Spec};
use tweed_lab::Cgroups;
use tweed_lab::Lab;
use tweed_lab::LabError;
use tweed_lab::Underlay;

/// Of each answer about a cluster that does not come up, so many lines are said.
const SAID_OF_FAILURE: usize = 15;

/// Where progress goes, a line at a time; what is to be seen of a failure, all
/// of it at once.
pub type Say = Box<dyn Fn(&str) + Send + Sync>;

/// A running cluster; taken away on drop, unless it is kept or was opened.
pub struct Cluster {
    site: Arc<Site>,
    control: ControlPlane,
    machines: BTreeMap<String, Machine>,
    kubectl: Kubectl,
    say: Say,
    start: Instant,
}

/// What [`Cluster::open`] needs to know.
#[derive(Serialize, Deserialize)]
struct Record {
    spec: Spec,
    nodes: Vec<NodeSpec>,
}

impl Cluster {
    /// Makes a cluster and waits until its nodes are Ready, or, without a
    /// network, registered. `say` is told of each stage and of how long it took;
    /// if one fails, of what is to be seen then, before all of it goes.
    ///
    /// # Errors
    /// A missing program, a lab of that name, or a component that does not
    /// start: the error has the end of its log.
    pub fn up(name: &str, mut spec: Spec, say: Say) -> Result<Self, LabError> {
        let start = Instant::now();
        let lab = Lab::named(name)?;
        let image = tweed_image(&lab);
        if spec.network == Network::Tweed && !spec.images.contains(&image) {
            spec.images.push(image);
        }
        check_images(&spec)?;
        let nodes = spec.nodes()?;
        inotify::check_cluster(nodes.len())?;
        let api = NodeSpec::control();
        let state = lab.tmpfs("state")?;
        let site = Arc::new(Site {
            underlay: Underlay::new(&lab)?,
            programs: KubernetesPrograms::find(lab.programs())?,
            pki: Pki::create(&state.join("pki"), api.address)?,
            cgroups: Cgroups::of_machine()?,
            proxy: Mutex::new(spec.proxy),
            spec,
            state,
            lab,
        });
        let machines = nodes
            .into_iter()
            .map(|node| Machine::create(&site, node, &api))
            .map(|made| made.map(|machine| (machine.name().to_owned(), machine)))
            .collect::<Result<_, _>>()?;
        let cluster = Self::assemble(site, machines, say, start)?;
        cluster.write_record()?;
        cluster.write_scripts()?;
        cluster.tell("namespaces, certificates and configs are there");
        match cluster.boot().and_then(|()| cluster.connect()) {
            Ok(()) => Ok(cluster),
            Err(error) => {
                cluster.tell(&cluster.report().text(SAID_OF_FAILURE));
                Err(error)
            }
        }
    }

    /// A cluster that another program has made and left up. It stays on drop.
    ///
    /// # Errors
    /// [`LabError::Absent`] if there is none.
    pub fn open(name: &str, say: Say) -> Result<Self, LabError> {
        let start = Instant::now();
        let lab = Lab::open(name)?;
        let path = record_of(lab.folder());
        let text = fs::read(&path).map_err(|e| LabError::file("read", &path, e))?;
        let record: Record =
            serde_json::from_slice(&text).map_err(|e| LabError::file("read", &path, e.into()))?;
        let state = lab.folder().join("state");
        let site = Arc::new(Site {
            underlay: Underlay::existing(&lab),
            programs: KubernetesPrograms::find(lab.programs())?,
            pki: Pki::existing(&state.join("pki")),
            cgroups: Cgroups::of_machine()?,
            proxy: Mutex::new(record.spec.proxy),
            spec: record.spec,
            state,
            lab,
        });
        let machines = record
            .nodes
            .into_iter()
            .map(|node| (node.name.clone(), Machine::existing(&site, node)))
            .collect();
        Self::assemble(site, machines, say, start)
    }

    fn assemble(
        site: Arc<Site>,
        machines: BTreeMap<String, Machine>,
        say: Say,
        start: Instant,
    ) -> Result<Self, LabError> {
        let netns = Path::new("/run/netns").join(format!("{}-{CONTROL}", site.lab.name()));
        let kubectl = Kubectl::new(
            &netns,
            site.programs.program("kubectl")?,
            site.pki.path("admin.kubeconfig"),
            site.state.join("kubectl-cache"),
        );
        let host = Host {
            lab: site.lab.clone(),
            programs: site.programs.clone(),
            pki: site.pki.clone(),
            netns,
            folder: site.state.join("control-plane"),
        };
        Ok(Self {
            control: ControlPlane::new(host, NodeSpec::control()),
            site,
            machines,
            kubectl,
            say,
            start,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.site.lab.name()
    }

    /// The lab that all of it belongs to, for more namespaces and processes.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.site.lab
    }

    /// The network below, with the host outside.
    #[must_use]
    pub fn underlay(&self) -> &Underlay {
        &self.site.underlay
    }

    /// What it was to be.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.site.spec
    }

    /// kubectl as its administrator.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// The folder with scripts for people: `kubectl`, and `node`, which runs a
    /// program in a node.
    #[must_use]
    pub fn scripts(&self) -> PathBuf {
        scripts_of(&self.site.lab)
    }

    /// Its nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values()
    }

    /// Its nodes but [`CONTROL`], by name.
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

    /// Says something, with the time since the start.
    pub fn tell(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        (self.say)(&format!("[{seconds:6.1} s] {what}"));
    }

    /// Path of a program that `conformance/setup.sh e2e` has built, as `agnhost`.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`].
    pub fn program(&self, name: &str) -> Result<PathBuf, LabError> {
        self.site.programs.program(name)
    }

    /// Leaves the cluster up when this program ends.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn keep(&self) -> Result<(), LabError> {
        self.site.lab.keep()
    }

    /// Where the control plane's logs are: `<component>.log`.
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
        let mut spec = self.site.spec.clone();
        spec.proxy = self.site.proxy();
        let record = Record {
            spec,
            nodes: self.nodes().map(|node| node.spec().clone()).collect(),
        };
        let path = record_of(self.site.lab.folder());
        fs::write(&path, serde_json::json!(record).to_string())
            .map_err(|e| LabError::file("write", &path, e))
    }

    fn write_scripts(&self) -> Result<(), LabError> {
        let folder = self.scripts();
        self.site.lab.add_outside(&folder)?;
        write_program(&folder.join("kubectl"), &self.kubectl.script())?;
        let state = self.site.state.display();
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
            .field("site", &self.site)
            .field("machines", &self.machines)
            .finish_non_exhaustive()
    }
}

/// Where people find the scripts of a lab's cluster.
fn scripts_of(lab: &Lab) -> PathBuf {
    lab.programs().target().join("cluster").join(lab.name())
}

fn record_of(folder: &Path) -> PathBuf {
    folder.join("cluster.json")
}

/// The image that `make image` writes.
fn tweed_image(lab: &Lab) -> PathBuf {
    lab.programs().target().join("tweed-image.tar")
}

fn check_images(spec: &Spec) -> Result<(), LabError> {
    match spec.images.iter().find(|archive| !archive.is_file()) {
        None => Ok(()),
        Some(missing) => Err(LabError::MissingProgram {
            program: missing.display().to_string(),
            folder: PathBuf::from("."),
            cure: "run `make image`",
        }),
    }
}
