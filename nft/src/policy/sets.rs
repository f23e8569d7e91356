//! The sets and maps of policy that the planner provides. Pure.

use std::net::IpAddr;

use tweed_core::family::Family;
use tweed_netlink::owned::ENFORCED_SETS;
use tweed_planner::policy::desired::{Desired, Number, PortRange};
use tweed_planner::policy::verdicts::Direction;

use crate::element::{Field, Key};
use crate::schema::{ADDRESS, Keys, NUMBER, PlannedSet, Row, SPAN, Schema, TWICE, number, row};
use crate::table::KeptBy;
use crate::value::{Type, Value};

/// Those of addresses.
static OF_ADDRESSES: [Row<Desired>; 9] = [
    row!("local_cidrs" => verdicts.local_cidrs, SPAN),
    row!(ENFORCED_SETS => verdicts.enforced, ADDRESS),
    row!("policy_in" => verdicts.policed.ingress, ADDRESS),
    row!("policy_out" => verdicts.policed.egress, ADDRESS),
    row!("policy_self" => verdicts.selves, TWICE),
    row!("policy_ids" => verdicts.identities, ADDRESS, number()),
    row!("policy_nets" => verdicts.networks, SPAN, number()),
    row!("policy_pairs_in" => verdicts.pairs.ingress, PAIR, number()),
    row!("policy_pairs_out" => verdicts.pairs.egress, PAIR, number()),
];

/// Those that say what a profile allows, by its number.
static OF_PROFILES: [Row<Desired>; 4] = [
    row!("policy_open" => ports.open, NUMBER),
    row!("policy_exact" => ports.exact, EXACT),
    row!("policy_range_profiles" => ports.range_profiles, OF_PROTOCOL, number()),
    row!("policy_ranges" => ports.ranges, RANGE),
];

impl Schema for Desired {
    const KEPT_BY: KeptBy = KeptBy::Provider;

    fn sets() -> impl Iterator<Item = PlannedSet<Self>> {
        let of_family = |family| OF_ADDRESSES.iter().map(move |row| row.of(family));
        Family::BOTH
            .into_iter()
            .flat_map(of_family)
            .chain(of_profiles())
    }
}

/// The sets that say what a profile allows.
pub(super) fn of_profiles() -> impl Iterator<Item = PlannedSet<Desired>> {
    OF_PROFILES.iter().flat_map(Row::sets)
}

/// How a direction is called in names.
pub(super) fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "in",
        Direction::Out => "out",
    }
}

const PAIR: Keys<(IpAddr, Number)> = Keys {
    types: &[Type::Ipv4, Type::Class],
    interval: false,
    family: Some(|(address, _)| Family::of(*address)),
    key: |(address, identity)| Key::of([Value::Address(*address), Value::Class(*identity)]),
};

const EXACT: Keys<(Number, u8, u16)> = Keys {
    types: &[Type::Class, Type::Protocol, Type::Port],
    interval: false,
    family: None,
    key: |(profile, protocol, port)| {
        Key::of([
            Value::Class(*profile),
            Value::Protocol(*protocol),
            Value::Port(*port),
        ])
    },
};

const OF_PROTOCOL: Keys<(Number, u8)> = Keys {
    types: &[Type::Class, Type::Protocol],
    interval: false,
    family: None,
    key: |(profile, protocol)| Key::of([Value::Class(*profile), Value::Protocol(*protocol)]),
};

const RANGE: Keys<PortRange> = Keys {
    types: &[Type::Class, Type::Port],
    interval: true,
    family: None,
    key: |range| {
        let ports = Field::new(Value::Port(range.first), Value::Port(range.last));
        let fields = [Value::Class(range.profile).into(), ports];
        fields.into_iter().collect()
    },
};
