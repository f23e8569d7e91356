//! The sets and maps of policy: their declarations, and their elements out of the
//! planner's [`Desired`] and [`Delta`]. Pure.
//!
//! None has a declared `size`, so the kernel makes them hash tables that grow and shrink
//! by themselves (`rhash`). A declared size would give a fixed table, full at its size
//! (`ENFILE`), and a set's size can only be changed by replacing the set with all its
//! elements while it is in use. A lookup costs about the same in both.

use std::net::IpAddr;

use tweed_core::family::Family;
use tweed_netlink::owned::judged_set;
use tweed_planner::policy::desired::{DIRECTIONS, Delta, Desired, Direction, PortRange};

use crate::element::{Change, Element, Field, Key};
use crate::encode::{address, change, digit, elements, span, twice};
use crate::provider::Provider;
use crate::table::{DataType, KeptBy, Set};
use crate::value::{Type, Value};
use crate::words::FAMILIES;

/// A set or map that the planner provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicySet {
    LocalCidrs(Family),
    Judged(Family),
    Policed(Direction, Family),
    Selves(Family),
    Identities(Family),
    Networks(Family),
    Pairs(Direction, Family),
    Open,
    Exact,
    RangeProfiles,
    Ranges,
}

/// All of them, in the order in which the table declares them.
pub(super) fn all() -> impl Iterator<Item = PolicySet> {
    let of_family = |family| {
        [PolicySet::LocalCidrs(family), PolicySet::Judged(family)]
            .into_iter()
            .chain(DIRECTIONS.map(|direction| PolicySet::Policed(direction, family)))
            .chain([
                PolicySet::Selves(family),
                PolicySet::Identities(family),
                PolicySet::Networks(family),
            ])
            .chain(DIRECTIONS.map(|direction| PolicySet::Pairs(direction, family)))
    };
    let of_families = FAMILIES.into_iter().flat_map(of_family);
    of_families.chain(of_profiles())
}

/// Those that say what a profile allows, by its number.
pub(super) fn of_profiles() -> impl Iterator<Item = PolicySet> {
    use PolicySet::{Exact, Open, RangeProfiles, Ranges};
    [Open, Exact, RangeProfiles, Ranges].into_iter()
}

/// How a direction is called in names.
pub(super) fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "in",
        Direction::Out => "out",
    }
}

impl PolicySet {
    /// The name in the kernel.
    pub(super) fn name(self) -> String {
        match self {
            Self::LocalCidrs(family) => format!("local_cidrs{}", digit(family)),
            Self::Judged(family) => judged_set(family).to_owned(),
            Self::Policed(direction, family) => {
                format!("policy_{}{}", word(direction), digit(family))
            }
            Self::Selves(family) => format!("policy_self{}", digit(family)),
            Self::Identities(family) => format!("policy_ids{}", digit(family)),
            Self::Networks(family) => format!("policy_nets{}", digit(family)),
            Self::Pairs(direction, family) => {
                format!("policy_pairs_{}{}", word(direction), digit(family))
            }
            Self::Open => "policy_open".to_owned(),
            Self::Exact => "policy_exact".to_owned(),
            Self::RangeProfiles => "policy_range_profiles".to_owned(),
            Self::Ranges => "policy_ranges".to_owned(),
        }
    }

    /// How the table declares it.
    pub(super) fn declaration(self) -> Set {
        let address = |family| match family {
            Family::V4 => Type::Ipv4,
            Family::V6 => Type::Ipv6,
        };
        let key = match self {
            Self::LocalCidrs(family)
            | Self::Judged(family)
            | Self::Policed(_, family)
            | Self::Identities(family)
            | Self::Networks(family) => vec![address(family)],
            Self::Selves(family) => vec![address(family); 2],
            Self::Pairs(_, family) => vec![address(family), Type::Class],
            Self::Open => vec![Type::Class],
            Self::Exact => vec![Type::Class, Type::Protocol, Type::Port],
            Self::RangeProfiles => vec![Type::Class, Type::Protocol],
            Self::Ranges => vec![Type::Class, Type::Port],
        };
        let is_map = matches!(
            self,
            Self::Identities(_) | Self::Networks(_) | Self::Pairs(..) | Self::RangeProfiles
        );
        Set {
            name: self.name(),
            key,
            data: is_map.then(|| DataType::Values(vec![Type::Class])),
            interval: matches!(self, Self::LocalCidrs(_) | Self::Networks(_) | Self::Ranges),
            kept_by: KeptBy::Provider,
        }
    }

    /// What it should hold, by ascending key.
    fn elements(self, desired: &Desired) -> Box<dyn Iterator<Item = Element> + '_> {
        match self {
            Self::LocalCidrs(family) => elements(&desired.local_cidrs, family, span),
            Self::Judged(family) => elements(&desired.judged, family, address),
            Self::Policed(direction, family) => {
                elements(desired.policed.get(direction), family, address)
            }
            Self::Selves(family) => elements(&desired.selves, family, twice),
            Self::Identities(family) => elements(&desired.identities, family, address),
            Self::Networks(family) => elements(&desired.networks, family, span),
            Self::Pairs(direction, family) => elements(desired.pairs.get(direction), family, pair),
            Self::Open => elements(&desired.open, None, number),
            Self::Exact => elements(&desired.exact, None, exact),
            Self::RangeProfiles => elements(&desired.range_profiles, None, of_protocol),
            Self::Ranges => elements(&desired.ranges, None, range),
        }
    }

    /// What `delta` changes of it.
    fn change(self, delta: &Delta) -> Change {
        let delta = match self {
            Self::LocalCidrs(family) => change(&delta.local_cidrs, family, span),
            Self::Judged(family) => change(&delta.judged, family, address),
            Self::Policed(direction, family) => {
                change(delta.policed.get(direction), family, address)
            }
            Self::Selves(family) => change(&delta.selves, family, twice),
            Self::Identities(family) => change(&delta.identities, family, address),
            Self::Networks(family) => change(&delta.networks, family, span),
            Self::Pairs(direction, family) => change(delta.pairs.get(direction), family, pair),
            Self::Open => change(&delta.open, None, number),
            Self::Exact => change(&delta.exact, None, exact),
            Self::RangeProfiles => change(&delta.range_profiles, None, of_protocol),
            Self::Ranges => change(&delta.ranges, None, range),
        };
        let set = self.name();
        Change { set, delta }
    }
}

/// What `delta` changes of all sets; sets that stay are left out.
pub(super) fn changes(delta: &Delta) -> Vec<Change> {
    all()
        .map(|set| set.change(delta))
        .filter(|change| !change.delta.is_empty())
        .collect()
}

impl Provider for Desired {
    fn elements<'a>(&'a self, set: &str) -> Box<dyn Iterator<Item = Element> + 'a> {
        match all().find(|known| known.name() == set) {
            Some(known) => known.elements(self),
            None => Box::new(std::iter::empty()),
        }
    }
}

fn pair((address, identity): &(IpAddr, u32)) -> (Option<Family>, Key) {
    let fields: [Field; 2] = [(*address).into(), Value::Class(*identity).into()];
    (Some(Family::of(*address)), fields.into_iter().collect())
}

fn number(number: &u32) -> (Option<Family>, Key) {
    (None, Field::from(Value::Class(*number)).into())
}

fn exact((profile, protocol, port): &(u32, u8, u16)) -> (Option<Family>, Key) {
    let fields = [
        Value::Class(*profile),
        Value::Protocol(*protocol),
        Value::Port(*port),
    ];
    (None, fields.into_iter().map(Field::from).collect())
}

fn of_protocol((profile, protocol): &(u32, u8)) -> (Option<Family>, Key) {
    let fields = [Value::Class(*profile), Value::Protocol(*protocol)];
    (None, fields.into_iter().map(Field::from).collect())
}

fn range(range: &PortRange) -> (Option<Family>, Key) {
    let ports = Field {
        first: Value::Port(range.first),
        last: Value::Port(range.last),
    };
    let fields = [Value::Class(range.profile).into(), ports];
    (None, fields.into_iter().collect())
}
