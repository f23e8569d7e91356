//! The sets and maps of Services that the planner provides. Pure.

use tweed_core::family::Family;
use tweed_netlink::nf::verdict::Verdict;
use tweed_planner::services::desired::{
    Desired, Endpoint, FIRST_AFFINITY, Frontend, GROUP_DISTANCE, Group, Holds, Masquerade,
    NodePort, Number, Part, Scope, Span, Target,
};

use super::is_other;
use super::rules::{affinity_chain, draw_chain, split_chain};
use crate::element::{Data, Field};
use crate::schema::{
    ADDRESS, Keys, NUMBER, PlannedSet, Row, SPAN, Schema, TWICE, VERDICT, Values, class, number,
    row,
};
use crate::table::{DataType, KeptBy, Set};
use crate::value::{Type, Value};
use crate::words::digit;

/// The lowest bits of a number that leads on, in which rules look up where to. Below the
/// number of a group without affinity or a part they have how many slots it has; below one
/// with affinity nothing.
pub(super) const LEADS: Number = GROUP_DISTANCE - 1;
/// The bit of [`LEADS`] by which the slots hold parts of the group.
pub(super) const OF_PARTS: Number = 0x80;
/// The numbers that refusals have in place of a group's: no group and no limit has them.
pub(super) const REJECT: Number = 0x6fff_fff0;
/// See [`REJECT`].
pub(super) const DROP: Number = 0x6fff_fff1;

/// Maximum number of clients that are remembered, of each family: some 70 MB of the
/// kernel's memory. A client beyond them gets another endpoint with each connection.
const CLIENTS: u32 = 500_000;

/// All rows, in the order of a first load: what a flow finds leads to nothing that is not there
/// yet, and nothing is refused before all that passes is known.
static ROWS: [&Row<Desired>; 27] = [
    &LOCAL_CIDRS,
    &row!("service_pods" => pod_networks, SPAN),
    &row!("service_hairpin" => hairpin, TWICE),
    &ENDPOINTS,
    &SLOTS,
    &row!("service_members_cluster" => members.cluster, NUMBER),
    &row!("service_members_local" => members.local, NUMBER),
    &MEMBER_SLOTS,
    &PARTS,
    &row!("service_affinity_groups" => groups, NUMBER, AFFINITY_GROUP),
    &TIMEOUTS,
    &OPEN_TO_NODE,
    &ALLOWED,
    &LIMITS,
    &row!("service_node_port_exceptions" => node_port_exceptions, ADDRESS),
    &row!("service_node_port_networks" => node_port_networks, SPAN),
    &row!("service_addresses_masqueraded" => addresses.masquerade, FRONTEND, masqueraded()),
    &row!("service_addresses_kept" => addresses.masquerade, FRONTEND, kept()),
    &row!("service_targets_outside" => addresses.outside, FRONTEND, target()),
    &TARGETS,
    &row!("service_node_ports_masqueraded" => node_ports.masquerade, NODE_PORT, masqueraded()),
    &row!("service_node_ports_kept" => node_ports.masquerade, NODE_PORT, kept()),
    &row!("service_node_port_targets_outside" => node_ports.outside, NODE_PORT, target()),
    &NODE_PORT_TARGETS,
    &row!("service_foreign" => foreign, ADDRESS),
    &row!("service_cluster_ips" => cluster_ips, ADDRESS),
    &row!("service_networks" => service_networks, SPAN),
];

// Those of which the agent reads what they hold, or decides when they are written.
pub(super) static LOCAL_CIDRS: Row<Desired> = row!("local_cidrs" => local_cidrs, SPAN);
pub(super) static ENDPOINTS: Row<Desired> =
    row!("service_endpoints" => endpoints, NUMBER, endpoint());
pub(super) static SLOTS: Row<Desired> = row!("service_slots" => slots, SLOT, endpoint());
pub(super) static MEMBER_SLOTS: Row<Desired> =
    row!("service_member_slots" => member_slots, SLOT, number());
pub(super) static PARTS: Row<Desired> = row!("service_parts" => parts, SLOT, PART);
/// The groups whose clients are remembered for another time than the default.
pub(super) static TIMEOUTS: Row<Desired> = row!("service_timeouts" => affinities, NUMBER, TIMEOUT);
pub(super) static OPEN_TO_NODE: Row<Desired> = row!("service_open_to_node" => open_to_node, NUMBER);
pub(super) static ALLOWED: Row<Desired> = row!("service_allowed" => allowed, LIMITED);
pub(super) static LIMITS: Row<Desired> = row!("service_limits" => limits, FRONTEND, number());
pub(super) static TARGETS: Row<Desired> =
    row!("service_targets" => addresses.targets, FRONTEND, target());
pub(super) static NODE_PORT_TARGETS: Row<Desired> =
    row!("service_node_port_targets" => node_ports.targets, NODE_PORT, target());

impl Schema for Desired {
    const KEPT_BY: KeptBy = KeptBy::Provider;

    /// Those of both families beside each other.
    fn sets() -> impl Iterator<Item = PlannedSet<Self>> {
        ROWS.into_iter().flat_map(Row::sets)
    }
}

pub(super) const FRONTEND: Keys<Frontend> = Keys {
    types: &[Type::Ipv4, Type::Protocol, Type::Port],
    interval: false,
    family: Some(|at| Family::of(at.address)),
    key: |at| {
        let fields = [
            Value::Address(at.address),
            Value::Protocol(at.protocol),
            Value::Port(at.port),
        ];
        fields.into_iter().map(Field::from).collect()
    },
};

pub(super) const NODE_PORT: Keys<NodePort> = Keys {
    types: &[Type::Protocol, Type::Port],
    interval: false,
    family: Some(|at| at.family),
    key: |at| {
        let fields = [Value::Protocol(at.protocol), Value::Port(at.port)];
        fields.into_iter().map(Field::from).collect()
    },
};

pub(super) const SLOT: Keys<(Number, u8)> = Keys {
    types: &[Type::Class, Type::Index],
    interval: false,
    family: None,
    key: |(group, index)| {
        let fields = [Value::Class(*group), Value::Index((*index).into())];
        fields.into_iter().map(Field::from).collect()
    },
};

/// A limit and who passes it.
const LIMITED: Keys<(Number, Span)> = Keys {
    types: &[Type::Class, Type::Ipv4],
    interval: true,
    family: Some(|(_, sources)| Family::of(sources.first)),
    key: |(limit, sources)| {
        let sources = Field::span(sources.first, sources.last);
        [Value::Class(*limit).into(), sources].into_iter().collect()
    },
};

const fn target<K>() -> Values<K, Target> {
    Values {
        types: Some(&[Type::Class]),
        family: None,
        data: |_, target| {
            let number = match *target {
                Target::Group(group, shape) => group | leads(shape),
                Target::Affinity(group) => group,
                Target::Reject => REJECT,
                Target::Drop => DROP,
            };
            Some(class(number))
        },
    }
}

/// What stands below the number of a group without affinity.
fn leads(shape: Group) -> Number {
    let slots = Number::from(shape.slots);
    match shape.holds {
        Holds::Endpoints | Holds::Members => slots,
        Holds::Parts => slots | OF_PARTS,
    }
}

const fn endpoint<K>() -> Values<K, Endpoint> {
    Values {
        types: Some(&[Type::Ipv4, Type::NewPort]),
        family: Some(|endpoint| Family::of(endpoint.address)),
        data: |_, endpoint| {
            let values = [Value::Address(endpoint.address), Value::Port(endpoint.port)];
            Some(Some(Box::new(Data::Values(values.into()))))
        },
    }
}

const PART: Values<(Number, u8), Part> = Values {
    types: Some(&[Type::Class]),
    family: None,
    data: |_, part| Some(class(part.group | Number::from(part.slots))),
};

const AFFINITY_GROUP: Values<Number, Group> = Values {
    types: VERDICT,
    family: None,
    data: |group, shape| {
        let leads = match shape.holds {
            Holds::Endpoints | Holds::Members => Verdict::Goto(draw_chain(shape.slots)),
            Holds::Parts => Verdict::Jump(split_chain(shape.slots)),
        };
        (*group >= FIRST_AFFINITY).then(|| verdict(leads))
    },
};

const TIMEOUT: Values<Number, u32> = Values {
    types: VERDICT,
    family: None,
    data: |group, timeout| {
        let chain = affinity_chain(Scope::of(*group), *timeout);
        is_other(timeout).then(|| verdict(Verdict::Goto(chain)))
    },
};

fn verdict(verdict: Verdict) -> Option<Box<Data>> {
    Some(Box::new(Data::Verdict(verdict)))
}

/// Frontends of which all flows are masqueraded.
const fn masqueraded<K>() -> Values<K, Masquerade> {
    Values {
        types: None,
        family: None,
        data: |_, masquerade| (*masquerade == Masquerade::All).then_some(None),
    }
}

/// Frontends whose clients keep their addresses.
const fn kept<K>() -> Values<K, Masquerade> {
    Values {
        data: |_, masquerade| (*masquerade == Masquerade::OwnNode).then_some(None),
        ..masqueraded()
    }
}
/// The expression for what the clients of a family, by its digit, are known by: the first
/// fields of the key of [`clients`].
///
/// Of IPv6 these are the interface identifier and a hash of the prefix: nft 1.0.6 gives the
/// key of an `update` 16 bytes, of which the affinity key takes 4, and aborts or overwrites
/// what is beyond. Two clients with one interface identifier are taken for one with a
/// probability of 2⁻³²; they then share an endpoint, and nothing else. The seed is fixed so
/// that clients are still known after the rules were replaced.
pub(super) fn client(digit: char) -> &'static str {
    match digit {
        '4' => "ip saddr",
        _ => "@nh,128,64 . jhash @nh,64,64 mod 4294967295 seed 0x74776565",
    }
}

/// The map of the clients of Services with affinity, which packets fill: by client and
/// affinity key, the number of the endpoint that the client was given last.
pub(super) fn clients(family: Family) -> Set {
    let client = match family {
        Family::V4 => vec![Type::Ipv4],
        Family::V6 => vec![Type::Ipv6Interface, Type::Index],
    };
    Set {
        name: format!("service_clients{}", digit(family)),
        key: [client, vec![Type::Class]].concat(),
        data: Some(DataType::Values(vec![Type::Class])),
        interval: false,
        kept_by: KeptBy::Packets { size: CLIENTS },
    }
}
