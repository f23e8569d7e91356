//! What this machine has, as far as the plan needs it: observed by the kernel
//! side, compared as a whole, so that a plan is made again only when something
//! in here has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// The machine's own network, without the links that tweed made (the VXLAN
/// device, pod links): what follows from the plan must not feed it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// Interfaces by index.
    pub interfaces: BTreeMap<u32, Interface>,
    /// Connected routes of the main table.
    pub connected: BTreeSet<ConnectedRoute>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub mtu: u32,
    /// Switched on and with a carrier (`IFF_UP` and `IFF_LOWER_UP`).
    pub up: bool,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<HostAddress>,
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAddress {
    /// The address with the prefix length of its subnet.
    pub network: IpNetwork,
    /// Whether it may be the source of packets that others answer.
    pub state: AddressState,
}

/// Whether an address can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressState {
    /// It can.
    Usable,
    /// Duplicate address detection has not ended or has failed
    /// (`IFA_F_TENTATIVE`, `IFA_F_DADFAILED`).
    Tentative,
    /// A privacy address that goes away by itself (`IFA_F_TEMPORARY`).
    Temporary,
}

/// A route that the kernel made for an address of an interface (protocol
/// `kernel`, no gateway): whoever is in it is on the same link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectedRoute {
    /// Destination.
    pub destination: IpNetwork,
    /// Index of the interface.
    pub interface: u32,
}

impl HostFacts {
    /// The interface that has `ip`, with its index and the address's state. An
    /// address on two interfaces: the usable one, then the lower index.
    #[must_use]
    pub fn holder(&self, ip: IpAddr) -> Option<(u32, &Interface, AddressState)> {
        self.interfaces
            .iter()
            .flat_map(|(index, interface)| {
                interface
                    .addresses
                    .iter()
                    .filter(move |address| address.network.ip() == ip)
                    .map(move |address| (*index, interface, address.state))
            })
            .min_by_key(|(index, _, state)| (*state != AddressState::Usable, *index))
    }

    /// Whether `ip` lies in a connected route of the interface `index`.
    #[must_use]
    pub fn on_link(&self, index: u32, ip: IpAddr) -> bool {
        self.connected
            .iter()
            .any(|route| route.interface == index && route.destination.contains(ip))
    }
}
