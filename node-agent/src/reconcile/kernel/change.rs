//! One write to the kernel, and the order of writes.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use nix::errno::Errno;
use tweed_core::mac::Mac;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_netlink::Error;
use tweed_netlink::route::{self, Route};
use tweed_planner::overlay::desired::{ROUTE_PROTOCOL, RouteKey};

use super::key::{AddressKey, FdbKey, NeighbourKey};
use crate::reconcile::outcome::ObjectKind;

/// Maximum number of routes that a message names.
const MAX_NAMED: usize = 3;

/// One write. The kernel's acknowledgement makes it part of the mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Changes a link in place: sets it up, its MTU or its MAC.
    SetLink {
        /// Interface index.
        index: u32,
        /// Whether to set it up. No link is ever set down.
        up: bool,
        /// New MTU in bytes.
        mtu: Option<u32>,
        /// New MAC.
        mac: Option<Mac>,
    },
    /// Puts a link into a group.
    SetLinkGroup {
        /// Interface index.
        index: u32,
        /// The new group.
        group: u32,
    },
    /// Renames a link.
    RenameLink {
        /// Interface index.
        index: u32,
        /// The new name.
        name: String,
    },
    /// Removes a link from the bridge, bond or VRF that it is a port of.
    ReleaseLink {
        /// Interface index.
        index: u32,
    },
    /// Gives a link back the carrier that a program has taken away (`protodown`).
    GiveCarrier {
        /// Interface index.
        index: u32,
    },
    /// Deletes a link.
    RemoveLink {
        /// Interface index.
        index: u32,
    },
    /// Deletes leaving links at once, in one of the kernel's grace periods.
    RemoveLeavingLinks {
        /// The group, used for nothing else, in which they are deleted.
        group: u32,
        /// Their interface indices.
        links: Vec<u32>,
    },
    /// Adds an address to a device.
    AddAddress(AddressKey),
    /// Removes an address from a device.
    RemoveAddress(AddressKey),
    /// Deletes the route that is equal to this one in every attribute.
    RemoveRoute(Route),
    /// Deletes all FDB entries of a MAC.
    RemoveFdb(FdbKey),
    /// Deletes a neighbour.
    RemoveNeighbour(NeighbourKey),
    /// Adds a neighbour, or gives the one that is there this MAC.
    SetNeighbour {
        /// Device and IP address.
        key: NeighbourKey,
        /// The MAC.
        mac: Mac,
    },
    /// Adds an FDB entry, or gives the one that is there this destination.
    SetFdb {
        /// Device and MAC.
        key: FdbKey,
        /// Outer destination.
        remote: IpAddr,
    },
    /// Adds a route; the kernel refuses it if there is any with its key.
    AddRoute(Route),
    /// Replaces a route of tweed by another with its key, and touches no other of that
    /// key.
    ReplaceRoute {
        /// The route that is there. Of the thousands of changes of a start hardly any has two
        /// routes, so none needs room for both.
        old: Box<Route>,
        /// The route that replaces it.
        new: Route,
    },
}

impl Change {
    /// What is written, and its place in the order of writes: lower ranks are
    /// written first. A packet
    /// takes a route, then needs the neighbour's MAC, then the FDB entry of that
    /// MAC. So a route is added last and removed first: as long as it is there,
    /// what it needs is there.
    ///
    /// Links and addresses come first, since everything else depends on them. A
    /// new address is added before an old one is removed, because a device that
    /// loses its last IPv4 address loses its routes and neighbours too
    /// (`fib_disable_ip` in `net/ipv4/fib_frontend.c`). Routes, FDB entries and
    /// neighbours are removed before others are added, so that no old one is in
    /// the way of a new one.
    fn kind_and_rank(&self) -> (ObjectKind, u8) {
        match self {
            Self::RemoveLink { .. } | Self::RemoveLeavingLinks { .. } => (ObjectKind::Link, 0),
            Self::RenameLink { .. } | Self::ReleaseLink { .. } => (ObjectKind::Link, 1),
            Self::SetLink { .. } | Self::SetLinkGroup { .. } => (ObjectKind::Link, 1),
            Self::GiveCarrier { .. } => (ObjectKind::Link, 1),
            Self::AddAddress(_) => (ObjectKind::Address, 2),
            Self::RemoveAddress(_) => (ObjectKind::Address, 3),
            Self::RemoveRoute(_) => (ObjectKind::Route, 4),
            Self::RemoveFdb(_) => (ObjectKind::Fdb, 5),
            Self::RemoveNeighbour(_) => (ObjectKind::Neighbour, 6),
            Self::SetNeighbour { .. } => (ObjectKind::Neighbour, 7),
            Self::SetFdb { .. } => (ObjectKind::Fdb, 8),
            Self::AddRoute(_) | Self::ReplaceRoute { .. } => (ObjectKind::Route, 9),
        }
    }

    /// What is written.
    pub fn kind(&self) -> ObjectKind {
        self.kind_and_rank().0
    }

    /// Indices of the links that it is about; none for a route that leaves by none.
    pub fn links(&self) -> Vec<u32> {
        match self {
            Self::SetLink { index, .. }
            | Self::SetLinkGroup { index, .. }
            | Self::RenameLink { index, .. }
            | Self::ReleaseLink { index }
            | Self::GiveCarrier { index }
            | Self::RemoveLink { index } => vec![*index],
            Self::RemoveLeavingLinks { links, .. } => links.clone(),
            Self::AddAddress(key) | Self::RemoveAddress(key) => vec![key.device],
            Self::RemoveFdb(key) | Self::SetFdb { key, .. } => vec![key.device],
            Self::RemoveNeighbour(key) | Self::SetNeighbour { key, .. } => vec![key.device],
            Self::RemoveRoute(route) | Self::AddRoute(route) => route.out.into_iter().collect(),
            Self::ReplaceRoute { old, new } => old.out.into_iter().chain(new.out).collect(),
        }
    }

    /// What it means that the kernel refuses this change with `error`.
    pub fn refusal(&self, error: &Error) -> Problem {
        match self {
            Self::AddRoute(route) | Self::ReplaceRoute { new: route, .. } if error.is_present() => {
                let destination = route.destination;
                Problem::new(
                    ProblemKind::RouteTaken,
                    destination.to_string(),
                    "somebody else has a route to this destination, and tweed does not replace it",
                )
                .with_cure(format!(
                    "`{}` shows it: once it is removed, tweed adds its own",
                    show(destination)
                ))
            }
            Self::RenameLink { name, .. } if error.errno() == Some(Errno::EBUSY) => {
                let link = &error.object;
                let message = format!(
                    "somebody has renamed {name} to {link}, and this kernel renames no link that is up"
                );
                let problem = Problem::new(ProblemKind::WriteRefused, link, message);
                problem.with_effect(Effect::Warning).with_cure(format!(
                    "run `ip link set {link} down && ip link set {link} name {name}`: tweed then \
                     sets it up again"
                ))
            }
            _ => Problem::new(ProblemKind::WriteRefused, &error.object, error.to_string()),
        }
    }

    /// Whether it removes something: then it is no failure if that is gone
    /// already.
    pub fn is_removal(&self) -> bool {
        matches!(
            self,
            Self::RemoveLink { .. }
                | Self::RemoveLeavingLinks { .. }
                | Self::RemoveAddress(_)
                | Self::RemoveRoute(_)
                | Self::RemoveFdb(_)
                | Self::RemoveNeighbour(_)
        )
    }
}

/// That routes of others stand beside tweed's: packets may take them.
pub fn route_beside(key: &RouteKey, foreign: &[&Route]) -> Problem {
    let destination = key.destination;
    let routes: Vec<String> = (foreign.iter().take(MAX_NAMED))
        .map(|route| match route.protocol {
            route::UNSPECIFIED => format!("`{route}`"),
            protocol => format!("`{route}` of protocol {protocol}"),
        })
        .collect();
    Problem::new(
        ProblemKind::RouteTaken,
        destination.to_string(),
        format!(
            "somebody else has a route to this destination beside tweed's, and packets may take it: {}",
            routes.join(", ")
        ),
    )
    .with_cure(format!(
        "`{}` shows all of them: remove what is not of protocol {ROUTE_PROTOCOL}",
        show(destination)
    ))
}

/// That a route of somebody else, to a destination inside `range`, takes the packets of some
/// of its pods.
pub fn route_inside(range: IpNetwork, route: &Route) -> Problem {
    let destination = route.destination;
    Problem::new(
        ProblemKind::RouteTaken,
        destination.to_string(),
        format!(
            "somebody else has a longer route inside the pod CIDR {range}, which takes the packets \
             to these pods: `{route}` of protocol {}",
            route.protocol
        ),
    )
    .with_cure(format!(
        "remove it, if nothing else needs it: `{}` shows it",
        show(destination)
    ))
}

/// The command that shows all routes to `destination`.
fn show(destination: IpNetwork) -> String {
    let family = if destination.is_ipv4() { 4 } else { 6 };
    format!("ip -{family} route show exact {destination}")
}

/// Sorts changes into the order in which they have to be written.
pub fn order(changes: &mut [Change]) {
    changes.sort_by_key(|change| change.kind_and_rank().1);
}
