//! What a container runtime does: ADD until it succeeds, DEL until it succeeds, GC.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnetwork::IpNetwork;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tweed_lab::{AddResult, LabError, PluginCall, PluginOutput, Pod, wait_until};

use super::{Call, Held, World};
use crate::policy::{APPS, NAMESPACES};

/// Maximum time until a call that was stopped has ended: less than a runtime waits for a
/// plugin, more than the plugin waits for a lock.
const HELD_LIMIT: Duration = Duration::from_secs(60);

/// A pod that should be attached.
#[derive(Debug)]
pub struct ChaosPod {
    /// Its name, and its container's.
    pub name: String,
    /// The node that it is on.
    pub node: u8,
    /// Its Kubernetes namespace.
    pub namespace: &'static str,
    /// Its label `app`.
    pub app: &'static str,
    /// Its network namespace.
    pub pod: Pod,
    /// What ADD said; `None` while it is not attached, or while nobody knows: the next
    /// thing that the runtime does is a DEL.
    pub attached: Option<Attached>,
}

/// What ADD said.
#[derive(Debug, Clone)]
pub struct Attached {
    /// Name of the link's host end.
    pub link: String,
    /// MAC of the pod's end.
    pub mac: String,
    /// MTU in the config of the ADD.
    pub mtu: u64,
    /// The pod's addresses.
    pub addresses: Vec<IpAddr>,
    /// The whole result, which a CHECK is given.
    pub result: Value,
}

/// What a runtime knows after a call.
#[derive(Debug)]
pub enum Known {
    /// It was killed, or it failed, or a DEL succeeded: the pod is not attached, or
    /// nobody knows.
    Detached,
    /// An ADD succeeded.
    Attached(Attached),
    /// An ADD was refused because the pod is attached, or it was no call that changes
    /// anything.
    Unchanged,
}

/// The error code of a defect of the plugin itself.
const DEFECT: u64 = 999;

/// Number of pods that may be there beyond those that there should be.
const SPARE_PODS: usize = 5;

impl Attached {
    /// Reads the result of an ADD with this config.
    pub fn read(output: &PluginOutput, config: &Value) -> Result<Self, String> {
        if output.code != Some(0) {
            return Err(format!("{}{}", output.stdout, output.stderr));
        }
        let result = AddResult::parse(&output.stdout).map_err(|e| e.chain())?;
        let inside = result.interfaces.iter().find(|i| i.sandbox.is_some());
        Ok(Self {
            link: result.host_link().to_owned(),
            mac: inside.map(|i| i.mac.clone()).unwrap_or_default(),
            mtu: config["mtu"].as_u64().unwrap_or_default(),
            addresses: result.ips.iter().map(|ip| ip.address.ip()).collect(),
            result: result.document,
        })
    }
}

impl World {
    /// The config that the agent of a node has written, for the plugin alone.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn config(&mut self, index: u8) -> Result<Value, String> {
        let folder = self.node(index).map_err(|e| e.chain())?.node.cni_conf_dir();
        let path = folder.join("10-tweed.conflist");
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let list: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let mut config = list["plugins"][0].clone();
        config["name"] = list["name"].clone();
        config["cniVersion"] = json!("1.1.0");
        Ok(config)
    }

    /// A verb for pod `pod`, with the node's config of this moment.
    ///
    /// # Errors
    /// There is no config.
    pub fn call(&mut self, verb: &'static str, pod: usize) -> Result<Call, String> {
        let node = self.pods[pod].node;
        let mut config = self.config(node)?;
        if let ("CHECK", Some(attached)) = (verb, &self.pods[pod].attached) {
            config["prevResult"] = attached.result.clone();
        }
        Ok(Call {
            verb,
            container: self.pods[pod].name.clone(),
            namespace: self.pods[pod].namespace,
            netns: self.pods[pod].pod.path(),
            config,
            read_only: self.read_only_folder(node)?,
        })
    }

    /// The run folder of a node, if the plugin is to find it read-only.
    fn read_only_folder(&mut self, index: u8) -> Result<Option<PathBuf>, String> {
        if !self.read_only.contains(&index) {
            return Ok(None);
        }
        let folder = self.node(index).map_err(|e| e.chain())?.node.run_dir();
        // It is a link to a disk.
        let folder = std::fs::canonicalize(&folder);
        folder.map(Some).map_err(|e| e.to_string())
    }

    /// GC of a node, in which all pods that should be attached are listed.
    ///
    /// # Errors
    /// There is no config.
    pub fn gc(&mut self, index: u8) -> Result<Call, String> {
        let mut config = self.config(index)?;
        let pods = self.pods.iter().filter(|pod| pod.node == index);
        config["cni.dev/valid-attachments"] = pods
            .map(|pod| json!({ "containerID": pod.name, "ifname": "eth0" }))
            .collect();
        Ok(Call {
            verb: "GC",
            container: String::new(),
            namespace: "",
            netns: String::new(),
            config,
            read_only: self.read_only_folder(index)?,
        })
    }

    /// A pod on a node; it is not attached yet.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn create_pod(&mut self, node: u8) -> Result<(), LabError> {
        self.serial += 1;
        let name = format!("pod{}", self.serial);
        let pod = Pod::new(self.cluster.lab(), &name)?;
        self.pods.push(ChaosPod {
            namespace: NAMESPACES[self.serial % NAMESPACES.len()],
            app: APPS[self.serial / NAMESPACES.len() % APPS.len()],
            name,
            node,
            pod,
            attached: None,
        });
        // A kubelet calls the runtime for a pod that the API has.
        self.publish()
    }

    /// Whether one more pod may be created.
    pub fn has_room(&self) -> bool {
        self.pods.len() < self.pod_count + SPARE_PODS
    }

    /// What the runtime knows about a pod after a call for it.
    pub fn note_outcome(&mut self, pod: usize, outcome: Known) {
        match outcome {
            Known::Attached(attached) => self.pods[pod].attached = Some(attached),
            Known::Detached => self.pods[pod].attached = None,
            Known::Unchanged => {}
        }
    }

    /// One round of the runtime: creates missing pods where there are fewest, and brings
    /// those that are not attached, or have an address that is not their node's, back by
    /// DEL and ADD.
    ///
    /// # Errors
    /// The first call that failed; a runtime tries again.
    pub fn attach_all(&mut self) -> Result<(), String> {
        while self.pods.len() < self.pod_count {
            let count = |index: &u8| self.pods.iter().filter(|p| p.node == *index).count();
            let Some(node) = self.cluster.nodes().keys().copied().min_by_key(count) else {
                return Err("there is no node".to_owned());
            };
            self.create_pod(node).map_err(|e| e.chain())?;
        }
        for pod in 0..self.pods.len() {
            if !self.has_valid_address(pod) {
                self.reattach(pod)?;
            }
        }
        Ok(())
    }

    fn has_valid_address(&self, pod: usize) -> bool {
        let pod = &self.pods[pod];
        let Some(entry) = self.cluster.nodes().get(&pod.node) else {
            return false;
        };
        let cidrs: Vec<IpNetwork> = entry
            .manifest
            .pod_cidrs
            .iter()
            .filter_map(|c| c.parse().ok())
            .collect();
        pod.attached.as_ref().is_some_and(|attached| {
            attached
                .addresses
                .iter()
                .all(|address| cidrs.iter().any(|cidr| cidr.contains(*address)))
        })
    }

    fn reattach(&mut self, pod: usize) -> Result<(), String> {
        self.pods[pod].attached = None;
        let name = self.pods[pod].name.clone();
        for verb in ["DEL", "ADD"] {
            let call = self.call(verb, pod)?;
            let output = self.run(&call, self.pods[pod].node)?;
            if output.code != Some(0) {
                return Err(format!(
                    "{verb} of {name}: {}{}",
                    output.stdout, output.stderr
                ));
            }
            if verb == "ADD" {
                self.pods[pod].attached = Some(Attached::read(&output, &call.config)?);
            }
        }
        Ok(())
    }

    /// Runs a call to its end.
    ///
    /// # Errors
    /// It cannot be run at all.
    pub fn run(&mut self, call: &Call, node: u8) -> Result<PluginOutput, String> {
        let entry = self.node(node).map_err(|e| e.chain())?;
        let output = run_on(&entry.node, call).map_err(|e| e.chain())?;
        self.findings.extend(unclean(call, &output));
        Ok(output)
    }

    /// Calls that were stopped continue to their end: all at once, as one may hold the
    /// lock that another waits for.
    ///
    /// A DEL that was stopped before it did anything detaches what a later ADD of the
    /// same container has attached: nothing tells the plugin that it is the older call.
    /// An ADD that continues has to be refused, and must leave the later one's
    /// attachment as it is.
    pub fn finish_held(&mut self) {
        self.held
            .iter()
            .for_each(|held| held.running.signal(Signal::SIGCONT));
        for Held { call, mut running } in self.held.drain(..) {
            let ended = wait_until("a stopped call to end", HELD_LIMIT, || {
                match running.exit_status() {
                    Ok(Some(_)) => Ok(()),
                    _ => Err("it runs".to_owned()),
                }
            });
            if let Err(error) = ended {
                self.findings.push(error.chain());
            }
            if call.verb == "DEL" {
                let pods = self.pods.iter_mut();
                pods.filter(|pod| pod.name == call.container)
                    .for_each(|pod| pod.attached = None);
            }
        }
    }

    /// Addresses that two attached pods have.
    pub fn shared_addresses(&self) -> Vec<IpAddr> {
        let mut seen = BTreeSet::new();
        let attached = self.pods.iter().filter_map(|pod| pod.attached.as_ref());
        let all = attached.flat_map(|attached| attached.addresses.iter().copied());
        all.filter(|address| !seen.insert(*address)).collect()
    }
}

/// Runs a call to its end on this node.
///
/// # Errors
/// It cannot be run at all.
pub fn run_on(node: &tweed_lab::Node, call: &Call) -> Result<PluginOutput, LabError> {
    let mut command = PluginCall::new(call.verb).config(&call.config);
    if !call.container.is_empty() {
        command = command
            .container(&call.container)
            .ifname("eth0")
            .netns(&call.netns)
            .env("CNI_ARGS", &call.args());
    }
    if let Some(folder) = &call.read_only {
        command = command.read_only(folder);
    }
    command.run(node, "tweed")
}

/// What is wrong with the end of a call that nobody killed: it has to succeed, or to
/// print an error document that is not that of a defect.
pub fn unclean(call: &Call, output: &PluginOutput) -> Option<String> {
    let is_clean = match output.code {
        Some(0) => call.verb != "ADD" || AddResult::parse(&output.stdout).is_ok(),
        Some(_) => output.error_code().is_some_and(|code| code != DEFECT),
        None => false,
    };
    let Call {
        verb, container, ..
    } = call;
    (!is_clean).then(|| format!("{verb} of {container:?} ended without an answer: {output:?}"))
}

/// What is wrong when the thread that made these calls has panicked, of which it has
/// printed the reason itself: how they ended is not known.
pub fn panicked<'a>(calls: impl IntoIterator<Item = &'a Call>) -> String {
    let names: Vec<String> = calls
        .into_iter()
        .map(|call| format!("{} of {:?}", call.verb, call.container))
        .collect();
    format!("the driver panicked in {}", names.join(", "))
}
