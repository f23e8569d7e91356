//! Whether the other nodes are reached: what to ask which of them next, and what follows
//! from their answers. Pure: no socket, and the clock is an argument.
//!
//! ```text
//! Network, Nodes ─▶ peers ─▶ Prober ◀── answers, what was heard
//!                              │
//!                              ├─ turn       the next probes
//!                              ├─ status     a row for each way to a node
//!                              └─ problems   what is wrong
//! ```
//!
//! Each way to a node ([`Peer`]) is asked in turn ([`prober`]). A turn sends one to four
//! packets and ends [`TIMEOUT`] later; [`path`] says what follows from which of them were
//! answered, [`sizes`] what large packets tell. Both ends of a way that is silent tell each
//! other by [`message`] what they hear, over the nodes' own addresses.

pub mod message;
mod path;
pub mod peers;
pub mod prober;
mod problems;
mod sizes;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tweed_component::peers::Way;
use tweed_core::family::Family;

pub use message::Message;
pub use prober::Prober;

/// How long an answer is waited for.
pub const TIMEOUT: Duration = Duration::from_secs(1);
/// The least time from one packet to the next, on the average.
pub const SPACING: Duration = Duration::from_millis(100);
/// UDP port at which agents answer each other.
pub const PORT: u16 = 9118;
/// TCP port that shows that a node is there, open or not: the kubelet's.
pub const KUBELET_PORT: u16 = 10250;

/// A way to another node: that of one family of its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The Node's name.
    pub node: String,
    /// The first address of its pod CIDR, which the node itself has.
    pub address: IpAddr,
    /// The node's own address, to which the packets of this way are sent.
    pub underlay: IpAddr,
    /// How packets get there.
    pub way: Way,
    /// Whether the node has no other way of the underlay's family: others are asked less.
    pub is_main: bool,
    /// Whether the Node is Ready.
    pub is_ready: bool,
}

/// What this node has itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Own {
    /// The first address of its pod CIDR of each family.
    pub addresses: BTreeMap<Family, IpAddr>,
    /// Its address on the underlay of each family.
    pub underlay: BTreeMap<Family, IpAddr>,
    /// The MTU of pods, in bytes.
    pub mtu: u32,
    /// UDP port of the tunnel; 0 where there is none.
    pub vxlan_port: u16,
}

/// By what a node is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// An ICMP echo.
    Icmp,
    /// A datagram to [`PORT`].
    Udp,
    /// A connection to [`KUBELET_PORT`].
    Tcp,
}

/// A packet to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// By which its answer is known.
    pub id: u64,
    /// What it is.
    pub means: Means,
    /// Its source; none for the kernel's choice.
    pub from: Option<IpAddr>,
    /// Where it is sent to.
    pub to: IpAddr,
    /// The size of the whole IP packet, in bytes.
    pub size: u32,
    /// The own address on the way that is looked at, for whoever answers.
    pub asks_about: IpAddr,
}

/// The size of the headers of an IP packet with an ICMP echo or a datagram to `ip`.
pub const fn headers(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(_) => 20 + 8,
        IpAddr::V6(_) => 40 + 8,
    }
}

#[cfg(test)]
mod tests;
