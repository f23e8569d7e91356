//! A veth pair for each attachment: one end in the pod, the other on the host with
//! a route to each of the pod's addresses.
//!
//! ```text
//! pair ─▶ plan        which steps make an attachment, in which order (pure)
//!      ─▶ Kernel      carries the steps out, and observes ─▶ linux
//!      ─▶ ownership   which links belong to which attachment (pure)
//!      ─▶ check       what differs from what ADD has made (pure)
//!         cleanup     deletes links in the background of a DEL
//! ```
//!
//! [`Kernel`] is what [`Veth`] asks of the kernel, without any decision of its own.
//! Its one implementation is [`LinuxKernel`]; tests wrap it to make a step fail.

mod check;
mod cleanup;
mod linux;
mod ownership;
mod pair;
pub mod plan;

use std::{net::IpAddr, path::Path};

use ipnetwork::IpNetwork;
use tweed_cni::{CniError, Code};
use tweed_core::family::Family;
use tweed_netlink::{
    Cause, Error, address::Address, link::Link, neighbour::Neighbour, route::Route,
};

pub use cleanup::run_if_requested as run_cleanup_if_requested;
pub use linux::LinuxKernel;

use plan::Step;

/// A step that the kernel did not carry out.
#[derive(Debug)]
pub struct Failed {
    /// Index into the steps that were handed over.
    pub step: usize,
    /// The kernel's answer.
    pub error: Error,
}

/// What came of steps that were carried out, beside their effect.
#[derive(Debug, Default)]
pub struct Applied {
    /// Warnings for the log.
    pub warnings: Vec<String>,
    /// Destinations of the implied default routes that were left out.
    pub left_out: Vec<IpNetwork>,
    /// Settings of the host's end that keep the kernel's default.
    pub unwritten: Vec<&'static str>,
}

impl Applied {
    /// Notes that default routes were left out because of the link `other`.
    fn leave_out(&mut self, implied: &[&Route], other: &str) {
        for route in implied {
            let destination = route.destination;
            self.left_out.push(destination);
            self.warnings.push(format!(
                "no default route {destination}: the container has another network already, by \
                 {other}; name the routes of this one in ipam.routes, or set \"defaultRoute\": true"
            ));
        }
    }
}

/// The actual state of a pair of links, as CHECK compares it.
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
    /// Routes of the pod out of its end, in every table.
    pub pod_routes: Vec<Route>,
    /// Neighbours on the pod's end.
    pub pod_neighbours: Vec<Neighbour>,
}

/// The datapath that connects each pod by a pair of links.
#[derive(Debug)]
pub struct Veth<K> {
    kernel: K,
}

impl<K: Kernel> Veth<K> {
    /// Tests pass another kernel.
    pub fn new(kernel: K) -> Self {
        Self { kernel }
    }
}

/// What is needed of the kernel. The host is the namespace of the calling
/// thread, the pod that of the last [`Kernel::open_pod`].
pub trait Kernel {
    /// Opens the pod's network namespace.
    ///
    /// # Errors
    /// Code 8, if the path is no pod's network namespace; nothing is changed.
    fn open_pod(&mut self, path: &Path) -> Result<(), CniError>;

    /// Carries out steps in their order up to the first that fails; some after
    /// that one may have been carried out too.
    ///
    /// # Errors
    /// The step, and why.
    fn apply(&mut self, steps: &[Step]) -> Result<Applied, Failed>;

    /// Switches the host's forwarding on for a family, and returns whether it was off.
    ///
    /// # Errors
    /// When a sysctl cannot be written.
    fn enable_forwarding(&mut self, family: Family) -> Result<bool, Error>;

    /// Takes from an address what policies have let the pod do that had it before, its open flows
    /// included. Without such an address in the table this is a success.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn forget_enforcement(&mut self, address: IpAddr) -> Result<(), Error>;

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

    /// Deletes a link of the host, and waits until the kernel has done it. A link
    /// that does not exist is a success.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn delete_host_link(&mut self, link: &Link) -> Result<(), Error>;

    /// Puts a link of the host out of use: sets it down, by which the kernel
    /// removes its routes and neighbours, and gives it a new name and alias, so that its old name
    /// is free. A link that does not exist is a success. This is quick;
    /// [`Kernel::delete_leaving_later`] does the slow part.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn mark_leaving(&mut self, link: &Link, name: &str, alias: &str) -> Result<(), Error>;

    /// Gives the pod's end of `host`, a link of the host, a new name too, so that the
    /// pod's `ifname` is free at once for whoever attaches the pod next. Another link
    /// of that name is left alone.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn rename_pod_end(&mut self, ifname: &str, host: &Link, name: &str) -> Result<(), Error>;

    /// Deletes all links that are marked as leaving, and waits until that is done.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn delete_leaving(&mut self) -> Result<(), Error>;

    /// Ensures that links that are marked as leaving are deleted: by a process in
    /// the background where one can be started, otherwise at once. A lock in
    /// `folder` ensures that there is one such process at a time.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn delete_leaving_later(&mut self, folder: &Path) -> Result<(), Error>;

    /// Whether the pod has a link of this name.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn pod_has_link(&mut self, name: &str) -> Result<bool, Error>;

    /// The host's routes to exactly this address, each with its link.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn host_routes_to(&mut self, ip: IpAddr) -> Result<Vec<(Route, Option<Link>)>, Error>;

    /// The actual state of a pair of links, by their names.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn observe(&mut self, host: &str, pod: &str) -> Result<Observed, Error>;
}

/// A failure of the kernel as the runtime gets it.
fn refused(error: Error) -> CniError {
    let code = match &error.cause {
        Cause::TimedOut | Cause::Interrupted(_) => Code::TryAgainLater,
        Cause::Kernel { .. } | Cause::Io(_) | Cause::Undecodable(_) => Code::KernelRefused,
    };
    CniError::new(code, error.to_string())
}
