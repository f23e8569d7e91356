//! The elements of the sets and maps of Services, out of the planner's [`Desired`] and
//! [`Delta`]. Pure.

use std::net::IpAddr;

use tweed_core::family::Family;
use tweed_core::keyed::{Delta as KeyedDelta, Keyed};
use tweed_netlink::nf::verdict::Verdict;
use tweed_planner::services::desired::{
    Delta, Desired, Endpoint, FIRST_AFFINITY, Frontend, Frontends, FrontendsDelta, Group, Holds,
    NodePort, Number, Scope, Span, Target, Tracked,
};

use super::is_other;
use super::rules::{affinity_chain, draw_chain, split_chain};
use super::sets::{At, DROP, List, OF_PARTS, REJECT, Says, ServiceSet, all};
use crate::element::{Change, Data, Element, ElementsDelta, Field, Key};
use crate::encode::{self, change_by, elements_by};
use crate::provider::Provider;
use crate::value::Value;

/// What `delta` changes of all sets; sets that stay are left out.
pub(super) fn changes(delta: &Delta) -> Vec<Change> {
    let change = |set: ServiceSet| Change {
        set: set.name(),
        delta: set.take(&Step(delta)),
    };
    let changes = all().map(change);
    changes.filter(|change| !change.delta.is_empty()).collect()
}

impl Provider for Desired {
    fn elements<'a>(&'a self, set: &str) -> Box<dyn Iterator<Item = Element> + 'a> {
        match all().find(|known| known.name() == set) {
            Some(known) => known.take(&Whole(self)),
            None => Box::new(std::iter::empty()),
        }
    }
}

/// A whole plan, or a step of it: the same maps in the same places.
trait Side<'a> {
    /// Elements, or what changes of them.
    type Taken;

    /// What `encode` makes of a map of the plan, which `of` and `step` both find.
    fn take<M: Keyed + 'a>(
        &self,
        of: impl FnOnce(&'a Desired) -> &'a M,
        step: impl FnOnce(&'a Delta) -> &'a KeyedDelta<M::Key, M::Value>,
        encode: impl Fn(&M::Key, &M::Value) -> Option<Element> + 'a,
    ) -> Self::Taken
    where
        M::Key: 'a,
        M::Value: 'a;
}

struct Whole<'a>(&'a Desired);

impl<'a> Side<'a> for Whole<'a> {
    type Taken = Box<dyn Iterator<Item = Element> + 'a>;

    fn take<M: Keyed + 'a>(
        &self,
        of: impl FnOnce(&'a Desired) -> &'a M,
        _: impl FnOnce(&'a Delta) -> &'a KeyedDelta<M::Key, M::Value>,
        encode: impl Fn(&M::Key, &M::Value) -> Option<Element> + 'a,
    ) -> Self::Taken
    where
        M::Key: 'a,
        M::Value: 'a,
    {
        elements_by(of(self.0), encode)
    }
}

struct Step<'a>(&'a Delta);

impl<'a> Side<'a> for Step<'a> {
    type Taken = ElementsDelta;

    fn take<M: Keyed + 'a>(
        &self,
        _: impl FnOnce(&'a Desired) -> &'a M,
        step: impl FnOnce(&'a Delta) -> &'a KeyedDelta<M::Key, M::Value>,
        encode: impl Fn(&M::Key, &M::Value) -> Option<Element> + 'a,
    ) -> Self::Taken
    where
        M::Key: 'a,
        M::Value: 'a,
    {
        change_by(step(self.0), encode)
    }
}

impl ServiceSet {
    /// Its elements out of one side of the plan.
    fn take<'a, S: Side<'a>>(self, side: &S) -> S::Taken {
        match self {
            Self::Frontends(At::Address, says, family) => take_frontends(
                side,
                says,
                |desired| &desired.addresses,
                |delta| &delta.addresses,
                move |key| frontend(family, key),
            ),
            Self::Frontends(At::Node, says, family) => take_frontends(
                side,
                says,
                |desired| &desired.node_ports,
                |delta| &delta.node_ports,
                move |key| node_port(family, key),
            ),
            Self::Addresses(list, family) => take_addresses(side, list, family),
            Self::Limits(family) => side.take(
                |desired| &desired.limits,
                |delta| &delta.limits,
                move |key, limit| Some((frontend(family, key)?, number_data(*limit))),
            ),
            Self::Allowed(family) => side.take(
                |desired| &desired.allowed,
                |delta| &delta.allowed,
                move |(limit, sources), ()| Some((allowed(family, *limit, sources)?, None)),
            ),
            Self::OpenToNode => side.take(
                |desired| &desired.open_to_node,
                |delta| &delta.open_to_node,
                |limit, ()| Some((number(*limit), None)),
            ),
            Self::AffinityGroups => side.take(
                |desired| &desired.groups,
                |delta| &delta.groups,
                |group, of| (*group >= FIRST_AFFINITY).then(|| (number(*group), group_data(of))),
            ),
            Self::Timeouts => side.take(
                |desired| &desired.affinities,
                |delta| &delta.affinities,
                |group, timeout| {
                    let chain = affinity_chain(Scope::of(*group), *timeout);
                    is_other(timeout).then(|| (number(*group), goto(chain)))
                },
            ),
            Self::Slots(family) => side.take(
                |desired| &desired.slots,
                |delta| &delta.slots,
                move |key, endpoint| Some((slot(key), endpoint_data(family, endpoint)?)),
            ),
            Self::MemberSlots => side.take(
                |desired| &desired.member_slots,
                |delta| &delta.member_slots,
                |key, endpoint| Some((slot(key), number_data(*endpoint))),
            ),
            Self::Parts => side.take(
                |desired| &desired.parts,
                |delta| &delta.parts,
                |key, part| {
                    Some((
                        slot(key),
                        number_data(part.group | Number::from(part.slots)),
                    ))
                },
            ),
            Self::Endpoints(family) => side.take(
                |desired| &desired.endpoints,
                |delta| &delta.endpoints,
                move |key, endpoint| Some((number(*key), endpoint_data(family, endpoint)?)),
            ),
            Self::Members(scope) => side.take(
                move |desired| desired.members.get(scope),
                move |delta| delta.members.get(scope),
                |endpoint, ()| Some((number(*endpoint), None)),
            ),
        }
    }
}

fn take_frontends<'a, S: Side<'a>, K: Ord + Clone + 'a>(
    side: &S,
    says: Says,
    of: impl FnOnce(&'a Desired) -> &'a Frontends<K>,
    step: impl FnOnce(&'a Delta) -> &'a FrontendsDelta<K>,
    encode: impl Fn(&K) -> Option<Key> + 'a,
) -> S::Taken {
    match says {
        Says::Target => side.take(
            |desired| &of(desired).targets,
            |delta| &step(delta).targets,
            move |key, target| Some((encode(key)?, target_data(*target))),
        ),
        Says::TargetOutside => side.take(
            |desired| &of(desired).outside,
            |delta| &step(delta).outside,
            move |key, target| Some((encode(key)?, target_data(*target))),
        ),
        Says::Masquerade(kind) => side.take(
            |desired| &of(desired).masquerade,
            |delta| &step(delta).masquerade,
            move |key, masquerade| Some((encode(key)?, None)).filter(|_| *masquerade == kind),
        ),
    }
}

fn take_addresses<'a, S: Side<'a>>(side: &S, list: List, family: Family) -> S::Taken {
    let address = move |ip: &IpAddr, (): &()| of_family(family, encode::address(ip));
    let span = move |networks: &Span, (): &()| of_family(family, encode::span(networks));
    match list {
        List::NodePortNetworks => side.take(
            |desired| &desired.node_port_networks,
            |delta| &delta.node_port_networks,
            span,
        ),
        List::NodePortExceptions => side.take(
            |desired| &desired.node_port_exceptions,
            |delta| &delta.node_port_exceptions,
            address,
        ),
        List::ClusterIps => side.take(
            |desired| &desired.cluster_ips,
            |delta| &delta.cluster_ips,
            address,
        ),
        List::Networks => side.take(
            |desired| &desired.service_networks,
            |delta| &delta.service_networks,
            span,
        ),
        List::Foreign => side.take(|desired| &desired.foreign, |delta| &delta.foreign, address),
        List::Pods => side.take(
            |desired| &desired.pod_networks,
            |delta| &delta.pod_networks,
            span,
        ),
        List::LocalCidrs => side.take(
            |desired| &desired.local_cidrs,
            |delta| &delta.local_cidrs,
            span,
        ),
        List::Hairpin => side.take(
            |desired| &desired.hairpin,
            |delta| &delta.hairpin,
            move |ip, ()| of_family(family, encode::twice(ip)),
        ),
    }
}

/// The element of a set without data, if it is this family's.
fn of_family(family: Family, (of, key): (Option<Family>, Key)) -> Option<Element> {
    (of == Some(family)).then_some((key, None))
}

fn frontend(family: Family, frontend: &Frontend) -> Option<Key> {
    let fields = [
        Value::Address(frontend.address),
        Value::Protocol(frontend.protocol),
        Value::Port(frontend.port),
    ];
    let is_of_family = Family::of(frontend.address) == family;
    is_of_family.then(|| fields.into_iter().map(Field::from).collect())
}

fn node_port(family: Family, port: &NodePort) -> Option<Key> {
    let fields = [Value::Protocol(port.protocol), Value::Port(port.port)];
    (port.family == family).then(|| fields.into_iter().map(Field::from).collect())
}

fn allowed(family: Family, limit: Number, sources: &Span) -> Option<Key> {
    let sources_field = Field::span(sources.first, sources.last);
    let fields = [Value::Class(limit).into(), sources_field];
    (Family::of(sources.first) == family).then(|| fields.into_iter().collect())
}

/// The key of a frontend in one of the sets of frontends.
pub(super) fn key_of(set: ServiceSet, at: &Tracked) -> Option<Key> {
    match (set, at) {
        (
            ServiceSet::Frontends(At::Address, _, family) | ServiceSet::Limits(family),
            Tracked::Address(key),
        ) => frontend(family, key),
        (ServiceSet::Frontends(At::Node, _, family), Tracked::NodePort(key)) => {
            node_port(family, key)
        }
        _ => None,
    }
}

pub(super) fn number(number: Number) -> Key {
    Field::from(Value::Class(number)).into()
}

pub(super) fn slot((group, index): &(Number, u8)) -> Key {
    let fields = [Value::Class(*group), Value::Index((*index).into())];
    fields.into_iter().map(Field::from).collect()
}

fn number_data(number: Number) -> Option<Box<Data>> {
    Some(Box::new(Data::Value(Value::Class(number))))
}

fn target_data(target: Target) -> Option<Box<Data>> {
    number_data(match target {
        Target::Group(group, shape) => group | leads(shape),
        Target::Affinity(group) => group,
        Target::Reject => REJECT,
        Target::Drop => DROP,
    })
}

fn endpoint_data(family: Family, endpoint: &Endpoint) -> Option<Option<Box<Data>>> {
    let values = [Value::Address(endpoint.address), Value::Port(endpoint.port)];
    (Family::of(endpoint.address) == family).then(|| Some(Box::new(Data::Values(values.into()))))
}

/// What stands below the number of a group without affinity.
fn leads(shape: Group) -> Number {
    let slots = Number::from(shape.slots);
    match shape.holds {
        Holds::Endpoints | Holds::Members => slots,
        Holds::Parts => slots | OF_PARTS,
    }
}

fn group_data(group: &Group) -> Option<Box<Data>> {
    verdict(match group.holds {
        Holds::Endpoints | Holds::Members => Verdict::Goto(draw_chain(group.slots)),
        Holds::Parts => Verdict::Jump(split_chain(group.slots)),
    })
}

fn goto(chain: String) -> Option<Box<Data>> {
    verdict(Verdict::Goto(chain))
}

fn verdict(verdict: Verdict) -> Option<Box<Data>> {
    Some(Box::new(Data::Verdict(verdict)))
}
