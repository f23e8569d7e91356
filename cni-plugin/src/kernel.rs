//! The edge to the kernel: what the verbs ask of it, and nothing they decide.
//!
//! The one implementation is [`LinuxKernel`]; tests wrap it to make a step fail.

mod finisher;
mod linux;

use std::net::IpAddr;
use std::path::Path;

use tweed_cni::{CniError, Code};
use tweed_netlink::address::Address;
use tweed_netlink::link::Link;
use tweed_netlink::neighbour::Neighbour;
use tweed_netlink::route::Route;
use tweed_netlink::{Cause, Error};

pub use finisher::run_if_asked as finish_if_asked;
pub use linux::LinuxKernel;

use crate::plan::Step;

/// A step that the kernel did not carry out.
#[derive(Debug)]
pub struct Failed {
    /// Which of the steps that were handed over.
    pub step: usize,
    /// The kernel's answer.
    pub error: Error,
}

/// Why a path is no pod's network namespace.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// It cannot be opened or looked at.
    #[error(transparent)]
    Unusable(#[from] Error),
    /// It is something else.
    #[error("{0} is not a network namespace")]
    NotANetns(String),
    /// It is the namespace of the host itself.
    #[error("{0} is the host's own network namespace: a pod with host networking needs no CNI")]
    TheHosts(String),
}

impl From<NetnsError> for CniError {
    fn from(error: NetnsError) -> Self {
        Self::new(Code::InvalidNetns, format!("CNI_NETNS: {error}"))
    }
}

/// All that CHECK compares: what is there now.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The host's end.
    pub host: Option<Link>,
    /// Routes of the host out of its end.
    pub host_routes: Vec<Route>,
    /// Neighbours on the host's end.
    pub host_neighbours: Vec<Neighbour>,
    /// The pod's end.
    pub pod: Option<Link>,
    /// Addresses of the pod's end.
    pub pod_addresses: Vec<Address>,
    /// Routes of the pod out of its end.
    pub pod_routes: Vec<Route>,
    /// Neighbours on the pod's end.
    pub pod_neighbours: Vec<Neighbour>,
}

/// What a link on its way out is known by, besides its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its alias.
    pub alias: &'a str,
}

/// What the verbs need of the kernel. The host is the namespace of the calling
/// thread, the pod that of the last [`Kernel::open_pod`].
pub trait Kernel {
    /// Opens the pod's network namespace.
    ///
    /// # Errors
    /// [`NetnsError`]; nothing is changed.
    fn open_pod(&mut self, path: &Path) -> Result<(), NetnsError>;

    /// Carries out steps in their order up to the first that fails; some after
    /// that one may have been carried out too. Gives what was let pass, in
    /// words for the log.
    ///
    /// # Errors
    /// The step, and why.
    fn apply(&mut self, steps: &[Step]) -> Result<Vec<String>, Failed>;

    /// A link of the host, by name.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn host_link(&mut self, name: &str) -> Result<Option<Link>, Error>;

    /// All links of the host.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn host_links(&mut self) -> Result<Vec<Link>, Error>;

    /// Deletes a link of the host, and waits for the kernel to have done it; one
    /// that is gone is success.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn delete_host_link(&mut self, link: &Link) -> Result<(), Error>;

    /// Puts a link of the host out of use: down, which takes its routes and
    /// neighbours along, and out of the way, as `aside`. One that is gone is
    /// success. Quick: [`Kernel::finish_leaving`] does what takes long.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn put_aside(&mut self, link: &Link, aside: &Aside<'_>) -> Result<(), Error>;

    /// Sees to it that links on their way out are deleted: by a process behind
    /// the caller's back where there can be one, else here. Such processes know
    /// of each other by a file in `folder`.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn finish_leaving(&mut self, folder: &Path) -> Result<(), Error>;

    /// Whether the pod has a link of this name.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn pod_has_link(&mut self, name: &str) -> Result<bool, Error>;

    /// The host's routes to exactly this address, each with the name of its link.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn host_routes_to(&mut self, ip: IpAddr) -> Result<Vec<(Route, Option<Link>)>, Error>;

    /// What is there of a pair of links.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn observe(&mut self, host: &str, pod: &str) -> Result<Observed, Error>;
}

/// A failure of the kernel as the runtime gets it.
#[must_use]
pub fn refused(error: Error) -> CniError {
    let code = match &error.cause {
        Cause::TimedOut | Cause::Interrupted(_) => Code::TryAgainLater,
        Cause::Kernel { .. } | Cause::Io(_) | Cause::Undecodable(_) => Code::KernelRefused,
    };
    CniError::new(code, error.to_string())
}
