//! A record before its attachment has an address.

use ipnetwork::IpNetwork;
use tweed_core::attachment::{Attachment, PodName};
use tweed_core::mac::Mac;

use crate::record::{FORMAT_VERSION, Owner, Process, Record, State};

/// What an ADD knows of its attachment before it has an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    /// The attachment.
    pub attachment: Attachment,
    /// [`Record::ipam`].
    pub ipam: Option<String>,
    /// Who will own the link.
    pub owner: Owner,
    /// The process that adds: [`Process::current`].
    pub by: Process,
    /// [`Record::netns`].
    pub netns: Option<String>,
    /// [`Record::link`].
    pub link: Option<String>,
    /// [`Record::host_mac`].
    pub host_mac: Option<Mac>,
    /// [`Record::pod_mac`].
    pub pod_mac: Option<Mac>,
    /// [`Record::host_netns`].
    pub host_netns: Option<u64>,
    /// [`Record::mtu`], in bytes.
    pub mtu: Option<u32>,
    /// [`Record::pod`].
    pub pod: Option<PodName>,
    /// [`Record::pod_uid`].
    pub pod_uid: Option<String>,
}

impl Seed {
    /// A seed with the required fields only.
    #[must_use]
    pub fn new(attachment: Attachment, owner: Owner, by: Process) -> Self {
        Self {
            attachment,
            ipam: None,
            owner,
            by,
            netns: None,
            link: None,
            host_mac: None,
            pod_mac: None,
            host_netns: None,
            mtu: None,
            pod: None,
            pod_uid: None,
        }
    }

    pub(super) fn record(&self, addresses: Vec<IpNetwork>, boot_id: &str) -> Record {
        let attachment = self.attachment.clone();
        Record {
            version: FORMAT_VERSION,
            network: attachment.network,
            container_id: attachment.container_id,
            ifname: attachment.ifname,
            netns: self.netns.clone(),
            addresses,
            ipam: self.ipam.clone(),
            owner: self.owner.clone(),
            link: self.link.clone(),
            host_mac: self.host_mac,
            pod_mac: self.pod_mac,
            host_netns: self.host_netns,
            mtu: self.mtu,
            pod: self.pod.clone(),
            pod_uid: self.pod_uid.clone(),
            made: None,
            boot_id: boot_id.to_owned(),
            state: State::Adding { by: self.by },
            held: true,
        }
    }
}
