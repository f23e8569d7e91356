//! What policies mean for the pods of this node, whoever writes it down: typed, and without
//! a set of nftables.
//!
//! A *local* address is one of a pod of this node. A new flow in one direction (`in`: a local
//! pod is its destination; `out`: its source) is enforced so:
//!
//! 1. it is dropped if an address of [`Verdicts::local_cidrs`] is not in [`Verdicts::enforced`];
//! 2. it passes if the local address is not in [`Verdicts::policed`];
//! 3. the identity of the other address is [`SELF`] if both are the same address and it is in
//!    [`Verdicts::selves`]; else that of [`Verdicts::identities`]; else that of
//!    [`Verdicts::networks`]; else [`UNKNOWN`];
//! 4. the local address and that identity have a profile in [`Verdicts::pairs`], or none;
//! 5. it passes if [`Verdicts::profiles`] says that this profile allows its protocol and
//!    destination port, and is dropped otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_component::schema::Sets;
use tweed_component::{schema, sets};
use tweed_core::family::Family;

use crate::addresses;

pub use super::ports::PortSet;
pub use crate::addresses::Span;
pub use crate::numbers::Number;

/// The identity of an address that nothing is known of.
pub const UNKNOWN: Number = 0;
/// The identity of a pod for itself.
pub const SELF: Number = 1;
/// The first identity that is given out.
pub const FIRST_IDENTITY: Number = 2;
/// The first profile that is given out: no identity has its number.
pub const FIRST_PROFILE: Number = 0x1000_0000;

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

sets!([T: Sets] PerDirection<T>, PerDirection<T::Delta>, ingress: T, egress: T);

schema! {
    /// What decides about the flows of local pods.
    pub struct Verdicts {
        /// The pod CIDRs of this node. Spans never overlap.
        pub local_cidrs: BTreeSet<Span>,
        /// Local addresses that have been enforced, and this node's own addresses within its
        /// pod CIDRs. All others of its pod CIDRs are isolated.
        pub enforced: BTreeSet<IpAddr>,
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
        /// What each profile allows. One that no pair has any more is not here for long.
        pub profiles: BTreeMap<Number, Arc<PortSet>>,
    } with {
        /// Whether any policy exists in the cluster: without one nobody is enforced, and
        /// everything else here is empty.
        pub active: bool,
    }

    /// The change from one [`Verdicts`] to another, where both are active.
    pub struct VerdictsDelta with {
        /// Whether a flow that was allowed may no longer be: flows are then evaluated anew.
        pub takes_away: bool,
    }
}

/// The verdicts while they are changed.
pub(super) type Changing<'a> = crate::tables::Changing<'a, Verdicts>;

impl Verdicts {
    /// The identity that an address has for a local one.
    #[must_use]
    pub fn identity(&self, local: IpAddr, other: IpAddr) -> Number {
        if local == other && self.selves.contains(&local) {
            return SELF;
        }
        self.identity_of(other)
    }

    /// The identity of an address for all others.
    pub(super) fn identity_of(&self, address: IpAddr) -> Number {
        let known = self.identities.get(&address).copied();
        known.unwrap_or_else(|| network_at(&self.networks, address))
    }

    /// What a local address is allowed with an identity; none for nothing.
    pub(super) fn allowed(
        &self,
        direction: Direction,
        local: IpAddr,
        identity: Number,
    ) -> Option<&PortSet> {
        let profile = self.pairs.get(direction).get(&(local, identity))?;
        self.profiles.get(profile).map(|ports| &**ports)
    }

    /// Whether a new flow between a local address and another one passes, in the direction of
    /// the local one.
    #[must_use]
    pub fn allows(
        &self,
        (local, other): (IpAddr, IpAddr),
        direction: Direction,
        (protocol, port): (u8, u16),
    ) -> bool {
        if !self.enforced.contains(&local) {
            return false;
        }
        let allowed = self.allowed(direction, local, self.identity(local, other));
        !self.policed.get(direction).contains(&local)
            || allowed.is_some_and(|ports| ports.contains(protocol, port))
    }
}

/// The identity of the network that an address is in.
pub(super) fn network_at(networks: &BTreeMap<Span, Number>, address: IpAddr) -> Number {
    let end = Span {
        first: address,
        last: addresses::address(Family::of(address), addresses::highest(Family::of(address))),
    };
    match networks.range(..=end).next_back() {
        Some((span, number)) if span.first <= address && address <= span.last => *number,
        _ => UNKNOWN,
    }
}
