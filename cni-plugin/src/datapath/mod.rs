//! How a pod is connected to its node: a [`Datapath`], to which the verbs leave everything
//! that is particular to one. There is one: [`veth`]. The program's `main` chooses it.

pub mod veth;

use std::{collections::HashSet, net::IpAddr, path::Path};

use tweed_cni::{AddResult, CniError, Interface, Request, Route, Target};
use tweed_core::{attachment::Attachment, attachment::NetworkName, mac::Mac};
use tweed_ipam::record::Record;
use tweed_netlink::Error;

use crate::{config::Settings, not_done::NotDone};

/// What the verbs need of a datapath. The host is the namespace of the calling thread, the
/// pod that of the last [`Datapath::open_pod`].
pub trait Datapath {
    /// The actual state of an attachment, as [`Datapath::check`] compares it.
    type Observed;

    /// The gateway that a pod has for this address of its own.
    fn gateway_of(&self, address: IpAddr) -> IpAddr;

    /// Name and MAC of the link that an attachment has on the host; none where it has one
    /// in the pod only.
    fn host_end(&self, attachment: &Attachment) -> Option<(String, Mac)>;

    /// Checks what [`Datapath::attach`] would refuse of a config: the MTU, and routes that
    /// IPAM requests. `node` are the gateways of the pod's subnets.
    ///
    /// # Errors
    /// Code 7.
    fn accepts(&self, mtu: u32, routes: &[Route], node: &[IpAddr]) -> Result<(), CniError>;

    /// Opens the pod's network namespace.
    ///
    /// # Errors
    /// Code 8, if the path is no pod's network namespace; nothing is changed.
    fn open_pod(&mut self, netns: &Path) -> Result<(), CniError>;

    /// Connects the pod that is open. A failure may leave a part of the connection:
    /// [`NotDone::needs_undo`].
    ///
    /// # Errors
    /// Code 7 for what the config cannot have, 102 where the interface exists already, and
    /// the kernel's refusals.
    fn attach(&mut self, request: &Request<'_>, wanted: &Wanted<'_>) -> Result<Attached, NotDone>;

    /// Removes what an attachment has in the kernel, and waits until that is done. Nothing
    /// there is a success; what belongs to somebody else is left alone.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn detach(&mut self, request: &Request<'_>, attachment: &Attachment) -> Result<(), CniError>;

    /// As [`Datapath::detach`], of an attachment of which only the name of its link is known.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn detach_named(&mut self, link: &str) -> Result<(), CniError>;

    /// As [`Datapath::detach`], but what the attachment has is only put out of use, and its
    /// interface's name freed. Returns whether something is left to be deleted by
    /// [`Datapath::delete_leaving_later`].
    ///
    /// # Errors
    /// The kernel's refusal.
    fn mark_leaving(&mut self, request: &Request<'_>, target: &Target) -> Result<bool, CniError>;

    /// Deletes all that is marked as leaving, and waits until that is done.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn delete_leaving(&mut self) -> Result<(), CniError>;

    /// Ensures that all that is marked as leaving is deleted: in the background where that
    /// is possible, otherwise at once. `folder` is for what such processes share.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn delete_leaving_later(&mut self, folder: &Path) -> Result<(), CniError>;

    /// The actual state of an attachment.
    ///
    /// # Errors
    /// Code 8 as [`Datapath::open_pod`], or when the kernel cannot be asked.
    fn observe(&mut self, target: &Target) -> Result<Self::Observed, CniError>;

    /// All in which the actual state differs from the expected one, with these addresses.
    fn check(
        &self,
        expected: &Expected<'_>,
        addresses: &[IpAddr],
        observed: &Self::Observed,
    ) -> Vec<String>;

    /// Whether what the record's attachment had in this network namespace is provably gone.
    fn is_gone(&mut self, record: &Record) -> bool;

    /// Removes what attachments of the network have in the kernel, but for those whose
    /// links' names are in `kept`. `kept` is called after the kernel has been asked: an ADD
    /// writes its record before it creates anything. Returns what could not be removed.
    ///
    /// # Errors
    /// When the kernel cannot be asked, and the error of `kept`; nothing is removed then.
    fn sweep(
        &mut self,
        network: &NetworkName,
        kept: impl FnOnce() -> Result<HashSet<String>, CniError>,
    ) -> Result<Vec<CniError>, CniError>;

    /// Takes from an address what policies have let the pod do that had it before, its open flows
    /// included.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn forget_enforcement(&mut self, address: IpAddr) -> Result<(), Error>;
}

/// The connection that an ADD asks for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The pod.
    pub target: &'a Target,
    /// The keys of the config.
    pub settings: &'a Settings,
    /// MAC of the pod's end.
    pub pod_mac: Mac,
    /// The pod's addresses.
    pub addresses: &'a [IpAddr],
    /// Routes that IPAM requests for the pod.
    pub routes: &'a [Route],
    /// The gateways of the addresses' subnets, which mean the node.
    pub node: &'a [IpAddr],
}

/// A connection as it was made.
#[derive(Debug)]
pub struct Attached {
    /// The interfaces of the result. The last one is the pod's.
    pub interfaces: Vec<Interface>,
    /// The routes that the pod has.
    pub routes: Vec<Route>,
    /// Settings that could not be written.
    pub unwritten: Vec<String>,
}

/// What an attachment should be, beside its addresses.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// Network, container and interface.
    pub attachment: &'a Attachment,
    /// Path of the pod's network namespace.
    pub netns: &'a str,
    /// The MTU where the result names none, in bytes.
    pub mtu: u32,
    /// `hostSource` of the config.
    pub host_source: &'a [IpAddr],
    /// The result of ADD and of the plugins after it.
    pub result: &'a AddResult,
    /// What the store has of it.
    pub record: Option<&'a Record>,
}

impl<'a> Expected<'a> {
    /// The pod's interface in the result, with its index.
    pub fn pod_interface(&self) -> Option<(usize, &'a Interface)> {
        let name = self.attachment.ifname.as_str();
        let mut interfaces = self.result.interfaces.iter().enumerate();
        interfaces.find(|(_, end)| end.name == name && end.sandbox.as_deref() == Some(self.netns))
    }
}
