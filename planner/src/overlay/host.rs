//! What this machine has, as far as the plan needs it. The agent reads it from
//! the kernel and the planner compares it as a whole, so that a new plan is made
//! only if something of it has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// The machine's own network, without the links that tweed made (the VXLAN
/// device, pod links): the result of a plan must not be an input of the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// Interfaces by index.
    pub interfaces: BTreeMap<u32, Interface>,
    /// Connected routes of the main table.
    pub connected: BTreeSet<ConnectedRoute>,
}

/// An interface that tweed did not make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// In bytes.
    pub mtu: u32,
    /// Switched on and with a carrier (`IFF_UP` and `IFF_LOWER_UP`).
    pub up: bool,
    /// In the kernel's order.
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

/// Whether an address can be the underlay's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressState {
    /// It is permanent and no duplicate.
    Usable,
    /// Duplicate address detection has not ended, or has found a duplicate
    /// (`IFA_F_TENTATIVE`, `IFA_F_DADFAILED`).
    Tentative,
    /// A privacy address, which the kernel removes after some time
    /// (`IFA_F_TEMPORARY`).
    Temporary,
}

/// A route that the kernel made for an address of an interface (protocol
/// `kernel`, no gateway): its destinations are on the same link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectedRoute {
    /// Destination.
    pub destination: IpNetwork,
    /// Index of the interface.
    pub interface: u32,
}

impl HostFacts {
    /// The interface that has `ip`, with its index and the address's state. Of
    /// several it is one where the address is usable, then the one with the
    /// lowest index.
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

    /// Whether `ip` is in a connected route of the interface with this index.
    pub fn on_link(&self, index: u32, ip: IpAddr) -> bool {
        self.connected
            .iter()
            .any(|route| route.interface == index && route.destination.contains(ip))
    }
}
