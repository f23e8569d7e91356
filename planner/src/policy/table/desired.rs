//! What the sets and maps of policy should hold, as the rules of `inet tweed-policy` read them.
//!
//! The rules evaluate a new flow as the head of `model/verdicts.rs` says; where a local address
//! and an identity have no profile, the number of the identity stays, which no profile has.
//! What a profile allows they look up so:
//!
//! 1. let the flow pass if the profile is in [`Ports::open`], or the profile with the packet's
//!    protocol and destination port in [`Ports::exact`];
//! 2. look up the range profile of the profile and the protocol in [`Ports::range_profiles`];
//!    where there is none the number stays; let the flow pass if that is in [`Ports::ranges`]
//!    with the port;
//! 3. else drop it.
//!
//! What a packet of a protocol without ports has in place of a port means something else,
//! and the protocols are many. A profile that allows them is itself in [`Ports::ranges`]
//! with every port, and has a range profile for each protocol with ports, so that only the
//! others keep its number. The protocol has no part in the keys of the ranges: nft asks the
//! kernel to change the byte order of such a part, and Linux 7.2 refuses that for one byte.
//!
//! The numbers of identities, profiles and range profiles are from disjoint ranges, so that
//! a number that a lookup leaves as it is matches nothing afterwards.
//!
//! Every set is of both families; the kernel has one for each.

use std::collections::{BTreeMap, BTreeSet};

use tweed_component::schema;
use tweed_component::schema::Sets as _;

use crate::policy::model::verdicts::Verdicts;

pub use crate::policy::model::verdicts::Number;

/// The first range profile that is given out.
pub const FIRST_RANGE_PROFILE: Number = 0x2000_0000;

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

schema! {
    /// What profiles allow, as elements.
    pub struct Ports {
        /// Profiles that allow every protocol and port.
        pub open: BTreeSet<Number>,
        /// Profiles, protocols and ports that are allowed, ranges of few ports one by one.
        pub exact: BTreeSet<(Number, u8, u16)>,
        /// The range profiles of profiles and protocols.
        pub range_profiles: BTreeMap<(Number, u8), Number>,
        /// Ranges that are allowed and have more than a few ports. Those of one number never overlap.
        pub ranges: BTreeSet<PortRange>,
    }

    /// The change of [`Ports`].
    pub struct PortsDelta
}

schema! {
    /// The elements of all sets and maps of policy.
    pub struct Desired {
        /// The verdicts; [`Verdicts::profiles`] has no set, as `ports` says the same.
        pub verdicts: Verdicts,
        /// What their profiles allow.
        pub ports: Ports,
    }

    /// The change from one [`Desired`] to another, where both are active.
    pub struct Delta
}

impl Desired {
    /// How many elements all sets and maps have.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.size() - self.verdicts.profiles.len()
    }
}
