//! The sets and maps of Services that the planner provides. Pure.

use tweed_core::family::Family;
use tweed_netlink::nf::verdict::Verdict;
use tweed_planner::services::desired::{
    Desired, Endpoint, FIRST_AFFINITY, Frontend, Group, Holds, Masquerade, NodePort, Number, Part,
    Scope, Span, Target,
};

use super::is_other;
use super::rules::{DROP, OF_PARTS, REJECT, affinity_chain, draw_chain, split_chain};
use crate::element::{Data, Field, Key};
use crate::schema::{
    ADDRESS, Keys, NUMBER, PlannedSet, Row, SPAN, Schema, TWICE, VERDICT, Values, class, number,
    row,
};
use crate::table::KeptBy;
use crate::value::{Type, Value};

/// All rows, in the order of a first load: what a flow finds leads to nothing that is not there
/// yet, and nothing is refused before all that passes is known.
static ROWS: [&Row<Desired>; 28] = [
    &LOCAL_CIDRS,
    &row!("service_pods" => pod_networks, SPAN),
    &row!("service_hairpin" => hairpin, TWICE),
    &row!("service_tcp_endpoints" => tcp_endpoints, ENDPOINT),
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
        Key::of([
            Value::Address(at.address),
            Value::Protocol(at.protocol),
            Value::Port(at.port),
        ])
    },
};

const ENDPOINT: Keys<Endpoint> = Keys {
    types: &[Type::Ipv4, Type::Port],
    interval: false,
    family: Some(|at| Family::of(at.address)),
    key: |at| Key::of([Value::Address(at.address), Value::Port(at.port)]),
};

pub(super) const NODE_PORT: Keys<NodePort> = Keys {
    types: &[Type::Protocol, Type::Port],
    interval: false,
    family: Some(|at| at.family),
    key: |at| Key::of([Value::Protocol(at.protocol), Value::Port(at.port)]),
};

pub(super) const SLOT: Keys<(Number, u8)> = Keys {
    types: &[Type::Class, Type::Index],
    interval: false,
    family: None,
    key: |(group, index)| Key::of([Value::Class(*group), Value::Index((*index).into())]),
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
