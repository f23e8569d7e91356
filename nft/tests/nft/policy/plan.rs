//! What a planner would desire, made by hand.

use std::net::IpAddr;

use tweed_planner::policy::desired::{Desired, FIRST_RANGE_PROFILE, Number, PortRange};
use tweed_planner::policy::verdicts::{Direction, FIRST_IDENTITY, FIRST_PROFILE, Span, Verdicts};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
const SCTP: u8 = 132;

/// The identity number `n`.
pub const fn identity(n: Number) -> Number {
    FIRST_IDENTITY + n
}

/// The profile number `n`.
pub const fn profile(n: Number) -> Number {
    FIRST_PROFILE + n
}

/// The range profile number `n`.
pub const fn range_profile(n: Number) -> Number {
    FIRST_RANGE_PROFILE + n
}

fn span(first: &str, last: &str) -> Span {
    let [first, last] = [first, last].map(|address| address.parse().unwrap());
    Span { first, last }
}

/// A desired state that is built step by step.
#[derive(Debug, Clone, Default)]
pub struct Plan(pub Desired);

impl Plan {
    /// A policy exists, and these addresses have been enforced.
    pub fn new(enforced: &[IpAddr]) -> Self {
        let verdicts = Verdicts {
            active: true,
            local_cidrs: [
                span("10.244.1.0", "10.244.1.255"),
                span("fd00:0:0:1::", "fd00:0:0:1:ffff:ffff:ffff:ffff"),
            ]
            .into(),
            enforced: enforced.iter().copied().collect(),
            ..Verdicts::default()
        };
        Self(Desired {
            verdicts,
            ..Desired::default()
        })
    }

    /// These addresses are subject to policy.
    pub fn policed(mut self, direction: Direction, addresses: &[IpAddr]) -> Self {
        self.0.verdicts.policed.get_mut(direction).extend(addresses);
        self
    }

    pub fn identity(mut self, addresses: &[IpAddr], identity: Number) -> Self {
        let entries = addresses.iter().map(|address| (*address, identity));
        self.0.verdicts.identities.extend(entries);
        self
    }

    pub fn network(mut self, first: &str, last: &str, identity: Number) -> Self {
        self.0.verdicts.networks.insert(span(first, last), identity);
        self
    }

    pub fn pair(
        mut self,
        direction: Direction,
        addresses: &[IpAddr],
        identity: Number,
        profile: Number,
    ) -> Self {
        let entries = addresses
            .iter()
            .map(|address| ((*address, identity), profile));
        self.0.verdicts.pairs.get_mut(direction).extend(entries);
        self
    }

    pub fn open(mut self, profile: Number) -> Self {
        self.0.ports.open.insert(profile);
        self
    }

    pub fn exact(mut self, profile: Number, protocol: u8, port: u16) -> Self {
        self.0.ports.exact.insert((profile, protocol, port));
        self
    }

    pub fn range(
        mut self,
        profile: Number,
        range_profile: Number,
        protocol: u8,
        first: u16,
        last: u16,
    ) -> Self {
        let key = (profile, protocol);
        self.0.ports.range_profiles.insert(key, range_profile);
        self.0.ports.ranges.insert(PortRange {
            profile: range_profile,
            first,
            last,
        });
        self
    }

    /// Allows the protocols without ports. Those with ports keep their ranges; `nothing` is
    /// the range profile of those that have none.
    pub fn others(mut self, profile: Number, nothing: Number) -> Self {
        for protocol in [TCP, UDP, SCTP] {
            let key = (profile, protocol);
            self.0.ports.range_profiles.entry(key).or_insert(nothing);
        }
        self.0.ports.ranges.insert(PortRange {
            profile,
            first: 0,
            last: u16::MAX,
        });
        self
    }
}
