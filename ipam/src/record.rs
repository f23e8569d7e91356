//! A record of an attachment in the store: the frozen format.
//!
//! A record is one JSON document. Version N reads N−1 and the other way round:
//! a reader ignores keys that it does not know, a later version only adds keys
//! that have a default.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use tweed_cni::Route;
use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName, PodName};
use tweed_core::mac::Mac;

/// The version that this build writes.
pub const FORMAT_VERSION: u32 = 1;

/// Who owns the attachment's link and routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Owner {
    /// The `tweed` plugin: the agent keeps the route and the neighbour, and
    /// frees the record when the link is gone.
    Tweed,
    /// Another main plugin, which got the address from the `tweed-ipam`
    /// program: only DEL and GC free it.
    Other,
}

/// A process, distinguishable from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// The process's number.
    pub pid: u32,
    /// When it started, in clock ticks since boot: field 22 of
    /// `/proc/<pid>/stat`, proc(5).
    pub start_time: u64,
    /// The PID namespace in which `pid` counts: the inode of
    /// `/proc/self/ns/pid`, pid_namespaces(7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<u64>,
}

/// The state of the attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum State {
    /// An ADD is in progress. Void as soon as its process has ended, which the lock on the
    /// record's file shows: see [`Record::held`].
    Adding {
        /// The process that adds.
        by: Process,
    },
    /// ADD has succeeded.
    Live,
    /// A DEL is in progress or was interrupted; the next one completes it.
    Deleting,
}

/// What an ADD did, for CHECK: the config may say something else by then, and the
/// results of older versions of the protocol do not have all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// Source addresses of the host's routes to the pod, at most one per family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_source: Vec<IpAddr>,
    /// Routes inside the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// IPv6 settings of the host's end that keep the kernel's default, as they could
    /// not be written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unwritten: Vec<String>,
}

/// What the store keeps of one attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// [`FORMAT_VERSION`] of the program that wrote it.
    pub version: u32,
    /// The network's name.
    pub network: NetworkName,
    /// The container.
    pub container_id: ContainerId,
    /// The interface inside the container.
    pub ifname: IfName,
    /// Path of the container's network namespace, as the runtime named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// The pod's addresses with the prefix length of their subnet
    /// (`10.244.1.5/24`), whoever gave them.
    pub addresses: Vec<IpNetwork>,
    /// The IPAM plugin that gave the addresses, where it is not this store: only that
    /// plugin can free them, so the record is left to DEL and GC, which call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam: Option<String>,
    /// Who owns the link.
    pub owner: Owner,
    /// Name of the link's host end; absent where another plugin makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// MAC of the host end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_mac: Option<Mac>,
    /// MAC of the pod end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_mac: Option<Mac>,
    /// The network namespace that the host end is in: [`tweed_core::netns::own`]. In
    /// another one a missing link proves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_netns: Option<u64>,
    /// MTU of both ends, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The pod, where the runtime names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodName>,
    /// The UID by which the kubelet knows the pod. Absent where the runtime gives none,
    /// and in records that 0.1 wrote before it had this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// What the ADD did. Absent until it is done, and in records that 0.1 wrote before
    /// it had this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// The boot in which it was written: `/proc/sys/kernel/random/boot_id`. A
    /// record of another boot is void.
    pub boot_id: String,
    /// Whether it is being added, live, or being deleted.
    pub state: State,
    /// That the process which adds or deletes holds an exclusive flock(2) on the record's
    /// file while it works: then a process that gets a lock on that file knows that the
    /// former has ended, whatever PID namespaces they are in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

impl Record {
    /// That of an ADD which begins, with the required fields only. Its addresses and the boot
    /// ID are the store's to fill in.
    pub fn adding(attachment: Attachment, owner: Owner, by: Process) -> Self {
        Self {
            version: FORMAT_VERSION,
            network: attachment.network,
            container_id: attachment.container_id,
            ifname: attachment.ifname,
            netns: None,
            addresses: Vec::new(),
            ipam: None,
            owner,
            link: None,
            host_mac: None,
            pod_mac: None,
            host_netns: None,
            mtu: None,
            pod: None,
            pod_uid: None,
            made: None,
            boot_id: String::new(),
            state: State::Adding { by },
            held: true,
        }
    }

    /// The record's key.
    pub fn attachment(&self) -> Attachment {
        Attachment {
            network: self.network.clone(),
            container_id: self.container_id.clone(),
            ifname: self.ifname.clone(),
        }
    }
}
