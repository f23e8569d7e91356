//! A cluster: from nothing to Ready nodes, and nodes that come and go.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::control::ControlPlane;
use super::disk::write_program;
use super::kubectl::{Kubectl, condition};
use super::machine::Machine;
use super::network;
use super::pki::Pki;
use super::programs::KubernetesPrograms;
use super::site::Site;
use super::spec::{CONTROL, Network, NodeSpec, ProxyMode, Spec};
use crate::cgroups::Cgroups;
use crate::error::LabError;
use crate::lab::Lab;
use crate::underlay::Underlay;

/// For nodes to turn Ready, on a machine that builds beside it.
const READY_LIMIT: Duration = Duration::from_secs(180);

/// Where progress goes, a line at a time.
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
    /// network, registered. `say` is told of each stage and of how long it took.
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
        cluster.boot()?;
        cluster.connect()?;
        Ok(cluster)
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
        Ok(Self {
            control: ControlPlane::new(&site, netns, NodeSpec::control()),
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

    /// Runs kube-proxy in another mode on all nodes, or ends it, with nothing of
    /// its rules left.
    ///
    /// # Errors
    /// It does not start, or cannot take its rules away.
    pub fn set_proxy(&mut self, mode: ProxyMode) -> Result<(), LabError> {
        self.site.set_proxy(mode);
        for machine in self.nodes() {
            machine.change_proxy()?;
        }
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

    /// Adds a node and waits until it is registered. With tweed or without a
    /// network, whether it turns Ready is not waited for.
    ///
    /// # Errors
    /// Something of its name is there, or a component does not start.
    pub fn add_node(&mut self, node: NodeSpec) -> Result<&Machine, LabError> {
        let name = node.name.clone();
        let machine = Machine::create(&self.site, node, &NodeSpec::control())?;
        machine.boot()?;
        self.machines.insert(name.clone(), machine);
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
        let machine = self.take(name)?.reboot()?;
        self.machines.insert(name.to_owned(), machine);
        if self.site.spec.network == Network::Reference {
            self.add_reference(self.node(name)?)?;
        }
        self.node(name)
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

    fn no_such_node(&self, name: &str) -> LabError {
        LabError::NoSuchNode {
            name: name.to_owned(),
            known: self.machines.keys().cloned().collect(),
        }
    }

    /// Starts the control plane and all nodes beside each other.
    fn boot(&self) -> Result<(), LabError> {
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
    fn connect(&self) -> Result<(), LabError> {
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

    fn add_reference(&self, machine: &Machine) -> Result<(), LabError> {
        let all: Vec<&Machine> = self.nodes().collect();
        network::add_reference(&self.site, &self.kubectl, machine, &all)
    }

    /// Waits until each of the cluster's machines has a Node that is as asked.
    fn wait_nodes(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<(), LabError> {
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

/// The manifest, beside cargo's folder in the source.
fn tweed_manifest(lab: &Lab) -> PathBuf {
    lab.programs().target().with_file_name("install/tweed.yaml")
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
