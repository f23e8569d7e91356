//! The sets and maps of Services: their names and declarations. Pure.
//!
//! As those of policy, none that the planner provides has a declared `size`.

use tweed_core::family::Family;
use tweed_planner::services::desired::{GROUP_DISTANCE, Masquerade, Number, SCOPES, Scope};

use crate::encode::digit;
use crate::table::{DataType, KeptBy, Set};
use crate::value::Type;
use crate::words::FAMILIES;

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

/// Where a frontend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// At the address of a Service.
    Address,
    /// At the addresses of this node.
    Node,
}

/// What is said of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    Target,
    TargetOutside,
    Masquerade(Masquerade),
}

/// What addresses or networks are listed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    NodePortNetworks,
    NodePortExceptions,
    ClusterIps,
    Networks,
    Foreign,
    Pods,
    /// The pod CIDRs of this node.
    LocalCidrs,
    Hairpin,
}

/// A set or map that the planner provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceSet {
    Frontends(At, Says, Family),
    Addresses(List, Family),
    AffinityGroups,
    /// The groups whose clients are remembered for another time than the default.
    Timeouts,
    Slots(Family),
    MemberSlots,
    Parts,
    Endpoints(Family),
    Members(Scope),
    Limits(Family),
    Allowed(Family),
    OpenToNode,
}

use ServiceSet::{Addresses, Frontends};

/// The sets of a family that have to be there before groups are.
fn before_groups(family: Family) -> [ServiceSet; 5] {
    [
        Addresses(List::LocalCidrs, family),
        Addresses(List::Pods, family),
        Addresses(List::Hairpin, family),
        ServiceSet::Endpoints(family),
        ServiceSet::Slots(family),
    ]
}

/// The sets of a family that lead to groups, and then those by which flows are refused.
fn after_groups(family: Family) -> [ServiceSet; 15] {
    [
        ServiceSet::Allowed(family),
        ServiceSet::Limits(family),
        Addresses(List::NodePortExceptions, family),
        Addresses(List::NodePortNetworks, family),
        Frontends(At::Address, Says::Masquerade(Masquerade::All), family),
        Frontends(At::Address, Says::Masquerade(Masquerade::OwnNode), family),
        Frontends(At::Address, Says::TargetOutside, family),
        Frontends(At::Address, Says::Target, family),
        Frontends(At::Node, Says::Masquerade(Masquerade::All), family),
        Frontends(At::Node, Says::Masquerade(Masquerade::OwnNode), family),
        Frontends(At::Node, Says::TargetOutside, family),
        Frontends(At::Node, Says::Target, family),
        Addresses(List::Foreign, family),
        Addresses(List::ClusterIps, family),
        Addresses(List::Networks, family),
    ]
}

/// The sets of both families, those of one purpose beside each other.
fn of_both<const N: usize>(
    of: impl Fn(Family) -> [ServiceSet; N],
) -> impl Iterator<Item = ServiceSet> {
    let [one, other] = FAMILIES.map(of);
    one.into_iter().zip(other).flat_map(<[ServiceSet; 2]>::from)
}

/// All of them, in the order of a first load: what a flow finds leads to nothing that is
/// not there yet, and nothing is refused before all that passes is known.
pub(super) fn all() -> impl Iterator<Item = ServiceSet> {
    of_both(before_groups)
        .chain(SCOPES.map(ServiceSet::Members))
        .chain([
            ServiceSet::MemberSlots,
            ServiceSet::Parts,
            ServiceSet::AffinityGroups,
            ServiceSet::Timeouts,
            ServiceSet::OpenToNode,
        ])
        .chain(of_both(after_groups))
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

fn address_type(family: Family) -> Type {
    match family {
        Family::V4 => Type::Ipv4,
        Family::V6 => Type::Ipv6,
    }
}

impl ServiceSet {
    /// The name in the kernel.
    pub(super) fn name(self) -> String {
        let (name, family) = match self {
            Self::Addresses(List::LocalCidrs, family) => {
                return format!("local_cidrs{}", digit(family));
            }
            Self::Frontends(at, says, family) => (frontends(at, says), Some(family)),
            Self::Addresses(list, family) => {
                let name = match list {
                    List::NodePortNetworks => "node_port_networks",
                    List::NodePortExceptions => "node_port_exceptions",
                    List::ClusterIps => "cluster_ips",
                    List::Networks => "networks",
                    List::Foreign => "foreign",
                    List::Pods | List::LocalCidrs => "pods",
                    List::Hairpin => "hairpin",
                };
                (name, Some(family))
            }
            Self::AffinityGroups => ("affinity_groups", None),
            Self::Timeouts => ("timeouts", None),
            Self::Slots(family) => ("slots", Some(family)),
            Self::MemberSlots => ("member_slots", None),
            Self::Parts => ("parts", None),
            Self::Endpoints(family) => ("endpoints", Some(family)),
            Self::Members(Scope::Cluster) => ("members_cluster", None),
            Self::Members(Scope::Local) => ("members_local", None),
            Self::Limits(family) => ("limits", Some(family)),
            Self::Allowed(family) => ("allowed", Some(family)),
            Self::OpenToNode => ("open_to_node", None),
        };
        let digit = family.map(|family| digit(family).to_string());
        format!("service_{name}{}", digit.unwrap_or_default())
    }

    /// How the table declares it.
    pub(super) fn declaration(self) -> Set {
        let key = match self {
            Self::Frontends(At::Node, ..) => vec![Type::Protocol, Type::Port],
            Self::Frontends(At::Address, _, family) | Self::Limits(family) => {
                vec![address_type(family), Type::Protocol, Type::Port]
            }
            Self::Addresses(List::Hairpin, family) => vec![address_type(family); 2],
            Self::Addresses(_, family) => vec![address_type(family)],
            Self::Allowed(family) => vec![Type::Class, address_type(family)],
            Self::Slots(_) | Self::MemberSlots | Self::Parts => vec![Type::Class, Type::Index],
            Self::AffinityGroups
            | Self::Timeouts
            | Self::Endpoints(_)
            | Self::Members(_)
            | Self::OpenToNode => vec![Type::Class],
        };
        let interval = match self {
            Self::Addresses(list, _) => {
                matches!(
                    list,
                    List::NodePortNetworks | List::Networks | List::Pods | List::LocalCidrs
                )
            }
            _ => matches!(self, Self::Allowed(_)),
        };
        Set {
            name: self.name(),
            key,
            data: self.data(),
            interval,
            kept_by: KeptBy::Provider,
        }
    }

    /// What it gives for a key, if it is a map.
    fn data(self) -> Option<DataType> {
        match self {
            Self::AffinityGroups | Self::Timeouts => Some(DataType::Verdict),
            Self::Slots(family) | Self::Endpoints(family) => {
                Some(DataType::Values(vec![address_type(family), Type::NewPort]))
            }
            Self::Frontends(_, Says::Target | Says::TargetOutside, _)
            | Self::Limits(_)
            | Self::MemberSlots
            | Self::Parts => Some(DataType::Values(vec![Type::Class])),
            Self::Frontends(_, Says::Masquerade(_), _)
            | Self::Addresses(..)
            | Self::Members(_)
            | Self::Allowed(_)
            | Self::OpenToNode => None,
        }
    }
}

fn frontends(at: At, says: Says) -> &'static str {
    match (at, says) {
        (At::Address, Says::Target) => "targets",
        (At::Address, Says::TargetOutside) => "targets_outside",
        (At::Address, Says::Masquerade(Masquerade::All)) => "addresses_masqueraded",
        (At::Address, Says::Masquerade(Masquerade::OwnNode)) => "addresses_kept",
        (At::Node, Says::Target) => "node_port_targets",
        (At::Node, Says::TargetOutside) => "node_port_targets_outside",
        (At::Node, Says::Masquerade(Masquerade::All)) => "node_ports_masqueraded",
        (At::Node, Says::Masquerade(Masquerade::OwnNode)) => "node_ports_kept",
    }
}
