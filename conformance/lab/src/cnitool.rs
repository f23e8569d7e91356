//! The reference program `cnitool`, run in a node as a runtime calls plugins.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::Deserialize;
use serde_json::Value;

use crate::error::LabError;
use crate::node::Node;
use crate::pod::Pod;
use crate::run::run;

/// Mounts the node's own folder on `/var/lib/cni`: `cnitool` keeps results there,
/// and its `gc` calls DEL for all of them. `ip netns exec` has created the mount
/// namespace. A tmpfs is mounted on `/var/lib` first because the folder `cni` may
/// not exist.
const WITH_CACHE: &str = "mount -t tmpfs lab /var/lib && mkdir /var/lib/cni && \
                          mount --bind \"$0\" /var/lib/cni && exec \"$@\"";

/// The result of a successful ADD.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddResult {
    /// The version of the result.
    pub cni_version: String,
    /// The interfaces, host ends first in tweed's.
    #[serde(default)]
    pub interfaces: Vec<AddedInterface>,
    /// The addresses.
    #[serde(default)]
    pub ips: Vec<AddedIp>,
    /// The whole document.
    #[serde(skip)]
    pub document: Value,
}

/// An interface of an [`AddResult`].
#[derive(Debug, Clone, Deserialize)]
pub struct AddedInterface {
    /// Its name.
    pub name: String,
    /// Its MAC.
    #[serde(default)]
    pub mac: String,
    /// Path of the pod's namespace; `None` for the host end.
    #[serde(default)]
    pub sandbox: Option<String>,
}

/// An address of an [`AddResult`].
#[derive(Debug, Clone, Deserialize)]
pub struct AddedIp {
    /// The address with its prefix length.
    pub address: IpNetwork,
    /// The gateway.
    pub gateway: Option<IpAddr>,
    /// Index into the interfaces.
    pub interface: Option<usize>,
}

impl AddResult {
    /// Reads the document that ADD printed.
    ///
    /// # Errors
    /// [`LabError::Output`] if it is no result.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let read = || -> Result<Self, serde_json::Error> {
            let document: Value = serde_json::from_str(text)?;
            let mut result = Self::deserialize(&document)?;
            result.document = document;
            Ok(result)
        };
        read().map_err(|error| LabError::Output {
            command: "cnitool add".to_owned(),
            expected: "a CNI result",
            output: format!("{error}: {text}"),
        })
    }

    /// The name of the host end of the pod's link; empty if the result has none.
    #[must_use]
    pub fn host_link(&self) -> &str {
        let host = self.interfaces.iter().find(|i| i.sandbox.is_none());
        host.map_or("", |interface| interface.name.as_str())
    }

    /// The first address.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.ips.first().map(|ip| ip.address.ip())
    }
}

/// Calls of `cnitool` for one network on one node.
#[derive(Debug, Clone)]
pub struct CniTool<'a> {
    node: &'a Node,
    network: String,
    env: BTreeMap<&'static str, String>,
}

impl<'a> CniTool<'a> {
    /// For the network of this name in the node's config folder.
    #[must_use]
    pub fn new(node: &'a Node, network: &str) -> Self {
        let env = BTreeMap::from([
            ("CNI_PATH", node.cni_bin_dir().display().to_string()),
            ("NETCONFPATH", node.cni_conf_dir().display().to_string()),
        ]);
        Self {
            node,
            network: network.to_owned(),
            env,
        }
    }

    /// The interface's name inside the pod, instead of `eth0`.
    #[must_use]
    pub fn ifname(mut self, name: &str) -> Self {
        self.env.insert("CNI_IFNAME", name.to_owned());
        self
    }

    /// `CNI_ARGS`, as in `K8S_POD_NAME=web;IP=10.244.1.9`.
    #[must_use]
    pub fn args(mut self, args: &str) -> Self {
        self.env.insert("CNI_ARGS", args.to_owned());
        self
    }

    /// `CAP_ARGS`: the runtime's arguments for capabilities.
    #[must_use]
    pub fn capabilities(mut self, arguments: &Value) -> Self {
        self.env.insert("CAP_ARGS", arguments.to_string());
        self
    }

    /// ADD.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the plugin's error; [`LabError::Output`].
    pub fn add(&self, pod: &Pod) -> Result<AddResult, LabError> {
        AddResult::parse(&self.call("add", &pod.path())?)
    }

    /// DEL.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the plugin's error.
    pub fn del(&self, pod: &Pod) -> Result<(), LabError> {
        self.call("del", &pod.path()).map(drop)
    }

    /// CHECK.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the plugin's error.
    pub fn check(&self, pod: &Pod) -> Result<(), LabError> {
        self.call("check", &pod.path()).map(drop)
    }

    /// STATUS.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the plugin's error.
    pub fn status(&self) -> Result<(), LabError> {
        self.call("status", "/none").map(drop)
    }

    /// DEL for every result in the node's cache, then GC with a list of `null`: none.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the plugin's error.
    pub fn gc(&self) -> Result<(), LabError> {
        self.call("gc", "/none").map(drop)
    }

    /// Any verb with any namespace path; returns stdout.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the plugin's error.
    pub fn call(&self, verb: &str, netns: &str) -> Result<String, LabError> {
        let cnitool = self.node.lab().programs().tool("cnitool")?;
        let mut command = self.node.netns().command("sh");
        command
            .args(["-c", WITH_CACHE])
            .arg(self.node.cni_cache_dir())
            .arg(cnitool)
            .args([verb, &self.network, netns])
            .envs(&self.env);
        run(&mut command)
    }
}
