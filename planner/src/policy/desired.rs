//! What the sets and maps of policy should hold, as the rules of `inet tweed-policy` read them.
//!
//! A *local* address is one of a pod of this node. To judge a new flow in one
//! direction (`in`: a local pod is its destination; `out`: its source) the rules
//!
//! 1. drop it if an address of [`Desired::local_cidrs`] is not in [`Desired::judged`];
//! 2. let it pass if the local address is not in [`Desired::policed`];
//! 3. look up the identity of the other address: [`SELF`] if both are the same address
//!    and it is in [`Desired::selves`]; else [`Desired::identities`]; else
//!    [`Desired::networks`]; else 0;
//! 4. look up the profile of the local address and that identity in [`Desired::pairs`];
//!    where there is none the number of the identity stays, which no profile has;
//! 5. let it pass if the profile is in [`Desired::open`], or the profile with the
//!    packet's protocol and destination port in [`Desired::exact`];
//! 6. look up the range profile of the profile and the protocol in
//!    [`Desired::range_profiles`]; as before, where there is none the number stays; let it
//!    pass if that is in [`Desired::ranges`] with the port;
//! 7. else drop it.
//!
//! What a packet of a protocol without ports has in place of a port means something else,
//! and the protocols are many. A profile that allows them is itself in [`Desired::ranges`]
//! with every port, and has a range profile for each protocol with ports, so that only the
//! others keep its number. The protocol has no part in the keys of the ranges: nft asks the
//! kernel to change the byte order of such a part, and Linux 7.2 refuses that for one byte.
//!
//! The numbers of identities, profiles and range profiles are from disjoint ranges, so that
//! a number that a lookup leaves as it is matches nothing afterwards.
//!
//! Every set is of both families; the kernel has one for each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tweed_component::schema::Sets;
use tweed_component::{schema, sets};

pub use crate::addresses::Span;
pub use crate::numbers::Number;

/// The identity of an address that nothing is known of.
pub const UNKNOWN: Number = 0;
/// The identity of a pod for itself.
pub const SELF: Number = 1;
/// The first identity that is given out.
pub const FIRST_IDENTITY: Number = 2;
/// The first profile that is given out.
pub const FIRST_PROFILE: Number = 0x1000_0000;
/// The first range profile that is given out.
pub const FIRST_RANGE_PROFILE: Number = 0x2000_0000;

/// The direction of a flow as a local pod sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To the pod: ingress.
    In,
    /// From the pod: egress.
    Out,
}

/// Both directions.
pub const DIRECTIONS: [Direction; 2] = [Direction::In, Direction::Out];

/// One value for each direction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PerDirection<T> {
    /// [`Direction::In`].
    pub ingress: T,
    /// [`Direction::Out`].
    pub egress: T,
}

impl<T> PerDirection<T> {
    /// The value of a direction.
    pub fn get(&self, direction: Direction) -> &T {
        match direction {
            Direction::In => &self.ingress,
            Direction::Out => &self.egress,
        }
    }

    /// The same to be changed.
    pub fn get_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::In => &mut self.ingress,
            Direction::Out => &mut self.egress,
        }
    }
}

/// Ports of one range profile, or every port of a profile that allows the protocols
/// without ports. Both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    /// The range profile, or the profile.
    pub profile: Number,
    /// The lowest port.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

sets!([T: Sets] PerDirection<T>, PerDirection<T::Delta>, ingress: T, egress: T);

schema! {
    /// The elements of all sets and maps of policy.
    pub struct Desired {
        /// The pod CIDRs of this node. Spans never overlap.
        pub local_cidrs: BTreeSet<Span>,
        /// Local addresses that have been judged, and this node's own addresses within its
        /// pod CIDRs. All others of its pod CIDRs are isolated.
        pub judged: BTreeSet<IpAddr>,
        /// Local addresses that are subject to a policy of that direction.
        pub policed: PerDirection<BTreeSet<IpAddr>>,
        /// Local addresses for which a flow of the pod to itself (through a Service) has
        /// the identity [`SELF`].
        pub selves: BTreeSet<IpAddr>,
        /// The identities of single addresses: pods and Nodes.
        pub identities: BTreeMap<IpAddr, Number>,
        /// The identities of networks. Spans never overlap.
        pub networks: BTreeMap<Span, Number>,
        /// A local address and the identity of the other: the profile.
        pub pairs: PerDirection<BTreeMap<(IpAddr, Number), Number>>,
        /// Profiles that allow every protocol and port.
        pub open: BTreeSet<Number>,
        /// Profiles, protocols and ports that are allowed.
        pub exact: BTreeSet<(Number, u8, u16)>,
        /// The range profiles of profiles and protocols.
        pub range_profiles: BTreeMap<(Number, u8), Number>,
        /// Ranges that are allowed. Those of one number never overlap.
        pub ranges: BTreeSet<PortRange>,
    } with {
        /// Whether any policy exists in the cluster: without one there are no rules of
        /// policy at all, and everything else here is empty.
        pub active: bool,
    }

    /// The change from one [`Desired`] to another, where both are active.
    pub struct Delta with {
        /// Whether a flow that was allowed may no longer be: flows are then judged anew.
        pub takes_away: bool,
    }
}

/// What policy should have, with the change that led to it.
pub(super) type Tables = crate::tables::Tables<Desired>;
