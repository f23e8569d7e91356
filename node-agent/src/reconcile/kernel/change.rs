//! One write to the kernel, and the order of writes.

use std::net::IpAddr;

use tweed_core::mac::Mac;
use tweed_netlink::route::Route;

use super::mirror::{AddressKey, FdbKey, NeighbourKey};

/// One write. The kernel's acknowledgement makes it part of the mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Changes a link in place: switches it on, sets MTU or MAC.
    SetLink {
        /// Interface index.
        index: u32,
        /// Whether to switch it on. Nothing is ever switched off.
        up: bool,
        /// Bytes.
        mtu: Option<u32>,
        /// Link-layer address.
        mac: Option<Mac>,
    },
    /// Gives a link another name.
    RenameLink {
        /// Interface index.
        index: u32,
        /// The new name.
        name: String,
    },
    /// Takes a link out of the bridge, bond or VRF that it is a port of.
    ReleaseLink {
        /// Interface index.
        index: u32,
    },
    /// Deletes a link.
    RemoveLink {
        /// Interface index.
        index: u32,
    },
    /// Deletes all links of a group, in one of the kernel's grace periods.
    RemoveGroup {
        /// Its number.
        group: u32,
        /// Interface indices of the links that it has.
        links: Vec<u32>,
    },
    /// Gives a device an address.
    AddAddress(AddressKey),
    /// Takes an address from a device.
    RemoveAddress(AddressKey),
    /// Deletes this very route.
    RemoveRoute(Route),
    /// Deletes the FDB entries of a MAC.
    RemoveFdb(FdbKey),
    /// Deletes a neighbour.
    RemoveNeighbour(NeighbourKey),
    /// Writes a neighbour, over one of another MAC.
    SetNeighbour {
        /// Device and address.
        key: NeighbourKey,
        /// The MAC.
        mac: Mac,
    },
    /// Writes an FDB entry, over one that leads elsewhere.
    SetFdb {
        /// Device and MAC.
        key: FdbKey,
        /// Outer destination.
        remote: IpAddr,
    },
    /// Adds a route; refused by the kernel if there is any with its key.
    AddRoute(Route),
    /// Puts a route in place of another of ours.
    ReplaceRoute {
        /// What is there.
        old: Route,
        /// What shall be.
        new: Route,
    },
}

/// What a change is about: the word in metrics and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A link: the VXLAN device, or a pod's host end.
    Link,
    /// An address of the VXLAN device.
    Address,
    /// A route.
    Route,
    /// A neighbour.
    Neighbour,
    /// An FDB entry.
    Fdb,
    /// A sysctl.
    Sysctl,
    /// The table `inet tweed`.
    Nftables,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Link,
        Self::Address,
        Self::Route,
        Self::Neighbour,
        Self::Fdb,
        Self::Sysctl,
        Self::Nftables,
    ];

    /// The kind as one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Address => "address",
            Self::Route => "route",
            Self::Neighbour => "neighbour",
            Self::Fdb => "fdb",
            Self::Sysctl => "sysctl",
            Self::Nftables => "nftables",
        }
    }
}

impl Change {
    /// What it is about.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::SetLink { .. }
            | Self::RenameLink { .. }
            | Self::ReleaseLink { .. }
            | Self::RemoveLink { .. }
            | Self::RemoveGroup { .. } => Kind::Link,
            Self::AddAddress(_) | Self::RemoveAddress(_) => Kind::Address,
            Self::AddRoute(_) | Self::ReplaceRoute { .. } | Self::RemoveRoute(_) => Kind::Route,
            Self::SetNeighbour { .. } | Self::RemoveNeighbour(_) => Kind::Neighbour,
            Self::SetFdb { .. } | Self::RemoveFdb(_) => Kind::Fdb,
        }
    }

    /// Its place in a batch. A packet takes a route, then needs the neighbour's
    /// MAC, then the FDB entry of that MAC. So a route is the last to come and
    /// the first to go: as long as it is there, what it leads to is there.
    ///
    /// Links and addresses come first, since all the rest stands on them. A new
    /// address comes before an old one goes, because a device that loses its
    /// last IPv4 address loses its routes and neighbours too (`fib_disable_ip`
    /// in `net/ipv4/fib_frontend.c`). Routes, FDB entries and neighbours that
    /// are to go do so before others come, so that what comes finds its place
    /// free.
    #[must_use]
    pub fn rank(&self) -> u8 {
        match self {
            Self::RemoveLink { .. } | Self::RemoveGroup { .. } => 0,
            Self::RenameLink { .. } | Self::ReleaseLink { .. } | Self::SetLink { .. } => 1,
            Self::AddAddress(_) => 2,
            Self::RemoveAddress(_) => 3,
            Self::RemoveRoute(_) => 4,
            Self::RemoveFdb(_) => 5,
            Self::RemoveNeighbour(_) => 6,
            Self::SetNeighbour { .. } => 7,
            Self::SetFdb { .. } => 8,
            Self::AddRoute(_) | Self::ReplaceRoute { .. } => 9,
        }
    }

    /// Whether what it removes being gone already is as good.
    #[must_use]
    pub fn is_removal(&self) -> bool {
        matches!(
            self,
            Self::RemoveLink { .. }
                | Self::RemoveGroup { .. }
                | Self::RemoveAddress(_)
                | Self::RemoveRoute(_)
                | Self::RemoveFdb(_)
                | Self::RemoveNeighbour(_)
        )
    }
}

/// Puts changes in the order in which they have to be written.
pub fn order(changes: &mut [Change]) {
    changes.sort_by_key(Change::rank);
}
