//! A node: a namespace connected to the switch, and its programs' folders.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::agent::{Agent, AgentOptions};
use crate::error::LabError;
use crate::lab::Lab;
use crate::manifest::NodeManifest;
use crate::netns::Netns;
use crate::signals::block_if_shutting_down;
use crate::underlay::{ROUTER, Underlay};

/// Name and addresses of a new node.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// The node's name, at most 15 bytes: its port on the switch has it too.
    pub name: String,
    /// Its address on the underlay, in 192.0.2.0/24.
    pub address: Ipv4Addr,
    /// The pod CIDR in its manifest.
    pub pod_cidr: String,
    /// MTU of its `eth0` and its port.
    pub mtu: u32,
}

impl NodeSpec {
    /// `node<index>`: 192.0.2.(10 + index), pods in 10.244.index.0/24, MTU 1500.
    #[must_use]
    pub fn numbered(index: u8) -> Self {
        Self {
            name: format!("node{index}"),
            address: Ipv4Addr::new(192, 0, 2, 10_u8.saturating_add(index)),
            pod_cidr: format!("10.244.{index}.0/24"),
            mtu: 1500,
        }
    }
}

/// A node; removed on drop.
#[derive(Debug)]
pub struct Node {
    underlay: Underlay,
    netns: Netns,
    folder: PathBuf,
    name: String,
    /// Its port on the switch: the name that it was created with.
    port: String,
    address: Ipv4Addr,
    pod_cidr: String,
}

impl Node {
    /// Connects a new node to the switch. It has strict `rp_filter`, no
    /// forwarding, and a default route to the host outside.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn new(underlay: &Underlay, spec: NodeSpec) -> Result<Self, LabError> {
        let lab = underlay.lab();
        let NodeSpec {
            name,
            address,
            pod_cidr,
            mtu,
        } = spec;
        let netns = underlay.plug(&name, address, mtu)?;
        let folder = lab.folder().join(&name);
        for part in ["cni/net.d", "cni/cache", "run"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(|e| LabError::file("create", &path, e))?;
        }
        Ok(Self {
            underlay: underlay.clone(),
            netns,
            folder,
            port: name.clone(),
            name,
            address,
            pod_cidr,
        })
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the underlay.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The pod CIDR in its manifest.
    #[must_use]
    pub fn pod_cidr(&self) -> &str {
        &self.pod_cidr
    }

    /// Its network namespace.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The lab that owns it.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        self.underlay.lab()
    }

    /// The underlay that it is connected to.
    #[must_use]
    pub fn underlay(&self) -> &Underlay {
        &self.underlay
    }

    /// Its manifest, for a [`NodesFile`](crate::NodesFile).
    #[must_use]
    pub fn manifest(&self) -> NodeManifest {
        NodeManifest::new(&self.name, self.address, &self.pod_cidr)
    }

    /// The folder of its state: logs, and the folders of the methods below.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Replaces `/run/tweed`: the address store, `ready`, `agent.json`.
    #[must_use]
    pub fn run_dir(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// Replaces `/sys/fs/bpf/tweed`: each node is a machine with a bpffs of its own.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub fn bpf_dir(&self) -> Result<PathBuf, LabError> {
        let bpffs = self.lab().bpffs(&format!("bpf-{}", self.name()))?;
        Ok(bpffs.join("tweed"))
    }

    /// Replaces `/etc/cni/net.d`.
    #[must_use]
    pub fn cni_conf_dir(&self) -> PathBuf {
        self.folder.join("cni/net.d")
    }

    /// Replaces `/var/lib/cni`, where `cnitool` keeps its results.
    #[must_use]
    pub fn cni_cache_dir(&self) -> PathBuf {
        self.folder.join("cni/cache")
    }

    /// Replaces `/opt/cni/bin`.
    #[must_use]
    pub fn cni_bin_dir(&self) -> PathBuf {
        self.lab().plugin_folder()
    }

    /// Writes a CNI config, as `<file>` in the node's config folder.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub fn write_cni_config(&self, file: &str, text: &str) -> Result<(), LabError> {
        let path = self.cni_conf_dir().join(file);
        fs::write(&path, text).map_err(|e| LabError::file("write", &path, e))
    }

    /// Starts `tweed-agent` in this node.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub fn start_agent(&self, options: &AgentOptions) -> Result<Agent, LabError> {
        Agent::start(self, options)
    }

    /// Gives the node another name, for agents that are started from now on and for
    /// its manifest. Its folder and its port on the switch keep the first one.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Gives the node another address on the underlay. Manifests that agents have
    /// read do not change.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn change_address(&mut self, address: Ipv4Addr) -> Result<(), LabError> {
        self.underlay.allow(&self.port, address)?;
        self.netns.ip([
            format!("addr del {}/24 dev eth0", self.address),
            format!("addr add {address}/24 dev eth0"),
            // The kernel removed it with the only address of the router's subnet.
            format!("route replace default via {ROUTER}"),
        ])?;
        self.underlay.disallow(&self.port, self.address)?;
        self.address = address;
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.lab().is_kept() {
            return;
        }
        block_if_shutting_down();
        self.underlay.unplug(&self.port, self.address);
        // If it fails, the lab's teardown removes it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
