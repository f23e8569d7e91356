//! A port of a Service: where it is reached, and which endpoints are used.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use tweed_core::agent_socket::service::{
    Counts, Endpoint, Frontend, FrontendKind, Path, Port, SourceRanges, Use,
};
use tweed_core::agent_socket::why::protocol_name;
use tweed_core::family::Family;

use super::lookup::{Because, Origin, Way};
use super::none::span;
use super::{Answer, ENDPOINTS_OF_A_PORT, MAX_NAMED, MAX_PORTS, full_name, listed, lookup};
use crate::services::choice::{Criteria, SlicePorts, Unused};
use crate::services::claims::Class;
use crate::services::desired::{self, PerScope, Scope, ServiceName, Tracked};
use crate::services::frontends::frontends;
use crate::services::slice::Entry;
use crate::services::spec::{self, FAMILIES, Spec};

impl Answer<'_> {
    /// Adds a port of a Service in a family, with one of its frontends or all.
    pub(super) fn port(
        &mut self,
        name: &ServiceName,
        spec: &Spec,
        index: usize,
        family: Family,
        only: Option<Tracked>,
    ) {
        let Some(of_spec) = spec.ports.get(index) else {
            return;
        };
        if self.located.ports.len() >= MAX_PORTS {
            self.located.more_ports += 1;
            return;
        }
        let mut port = Port {
            name: of_spec.name.to_string(),
            protocol: of_spec.protocol,
            port: of_spec.port,
            ipv6: family == Family::V6,
            frontends: Vec::new(),
            more_frontends: 0,
            endpoints: Vec::new(),
            more_endpoints: 0,
            counts: Counts::default(),
        };
        let is_wanted = |at: &Tracked| only.is_none_or(|only| only == *at);
        let reserved = &self.planner.compiled.reserved;
        let all = frontends(spec, family, of_spec).filter(|(at, _)| is_wanted(at));
        let all = all.filter(|(at, class)| !reserved.has(at, *class));
        for (at, class) in all {
            if self.frontends_left == 0 {
                port.more_frontends += 1;
                continue;
            }
            self.frontends_left -= 1;
            if !self.frontends.contains(&at) {
                self.frontends.push(at);
            }
            port.frontends.push(self.frontend(name, of_spec, at, class));
        }
        self.endpoints(name, spec, of_spec, family, &mut port);
        self.located.ports.push(port);
    }

    fn frontend(
        &self,
        name: &ServiceName,
        of_spec: &spec::Port,
        at: Tracked,
        class: Class,
    ) -> Frontend {
        let desired = self.planner.desired();
        let owner = self.planner.compiled.claims.owner(at);
        let other = owner.filter(|_| !self.planner.has(name, of_spec, at));
        let (address, port) = match at {
            Tracked::Address(key) => (Some(key.address), key.port),
            Tracked::NodePort(key) => (None, key.port),
        };
        let limit = match at {
            Tracked::Address(key) => desired.limits.get(&key).copied(),
            Tracked::NodePort(_) => None,
        };
        let ways = self.senders.iter().filter_map(|(origin, source)| {
            let way = lookup::way(desired, at, *origin, *source)?;
            let reasons = self.masqueraded_to(way, *origin, *source);
            let is_for = |because| reasons.contains(&Some(because));
            let all_pass_through = !reasons.is_empty()
                && reasons
                    .iter()
                    .all(|one| *one == Some(Because::PassingThrough));
            Some(Path {
                from: (*origin).into(),
                fate: way.fate,
                group: way.group,
                endpoints: way.group.map_or(0, |group| lookup::size(desired, group)),
                local_only: way.group.is_some_and(|one| Scope::of(one) == Scope::Local),
                masqueraded: way.masquerade || all_pass_through,
                hairpin: is_for(Because::Hairpin),
                to_other_nodes: is_for(Because::PassingThrough) && !all_pass_through,
            })
        });
        Frontend {
            kind: match class {
                Class::ClusterIp => FrontendKind::ClusterIp,
                Class::LoadBalancer => FrontendKind::LoadBalancer,
                Class::ExternalIp => FrontendKind::ExternalIp,
                Class::NodePort => FrontendKind::NodePort,
            },
            address,
            port,
            taken_by: other.map(|owner| full_name(&owner.service)),
            source_ranges: limit.map(|limit| {
                let spans: Vec<String> = lookup::allowed(desired, limit).map(span).collect();
                SourceRanges {
                    more: spans.len().saturating_sub(MAX_NAMED),
                    ranges: spans.into_iter().take(MAX_NAMED).collect(),
                    node: desired.open_to_node.contains(&limit),
                }
            }),
            paths: ways.collect(),
        }
    }

    /// Whether and why a flow that keeps its source by its frontend is masqueraded to each
    /// of its endpoints; nothing without a known source.
    fn masqueraded_to(
        &self,
        way: Way,
        origin: Origin,
        source: Option<IpAddr>,
    ) -> Vec<Option<Because>> {
        let (desired, surroundings) = (self.planner.desired(), &self.planner.surroundings);
        let group = way.group.filter(|_| !way.masquerade);
        let Some((group, source)) = group.zip(source) else {
            return Vec::new();
        };
        let endpoints = lookup::endpoints(desired, group).into_iter();
        let to = |at: desired::Endpoint| {
            lookup::masqueraded_to(desired, surroundings, origin, source, at.address)
        };
        endpoints.map(to).collect()
    }

    /// Enters the endpoints of a port, the used ones first.
    fn endpoints(
        &mut self,
        name: &ServiceName,
        spec: &Spec,
        of_spec: &spec::Port,
        family: Family,
        port: &mut Port,
    ) {
        let planner = self.planner;
        let Some(known) = planner.registry.get(name) else {
            return;
        };
        let ports = SlicePorts::of(known.slices());
        let of_family = |family| ports.candidates(family, &of_spec.name, of_spec.protocol);
        let all = of_family(family);
        let others = FAMILIES.into_iter().filter(|other| *other != family);
        port.counts.known = all.len();
        port.counts.other_family = others.map(|other| of_family(other).len()).sum();
        let criteria = Criteria::of(&all, &planner.surroundings.own.zone);
        let scopes = scopes(spec, family);
        let groups = self.planned(name, spec, of_spec, family);
        let uses = |at: &desired::Endpoint, entry: &Entry, scope: Scope| {
            let group = groups.get(scope).as_ref();
            scopes
                .get(scope)
                .then(|| match criteria.judge(entry, scope) {
                    Ok(()) if group.is_some_and(|group| !group.contains(at)) => Use::BeyondMaximum,
                    Ok(()) => Use::Used,
                    Err(unused) => word(unused),
                })
        };
        let mut endpoints: Vec<Endpoint> = all
            .iter()
            .map(|(at, entry)| Endpoint {
                at: SocketAddr::new(at.address, at.port),
                here: entry.local,
                node: None,
                ready: entry.ready,
                serving: entry.serving,
                terminating: entry.terminating,
                zones: zones(entry),
                cluster: uses(at, entry, Scope::Cluster),
                local: uses(at, entry, Scope::Local),
            })
            .collect();
        let is_used = |one: &Endpoint| [one.cluster, one.local].contains(&Some(Use::Used));
        let count = |of: fn(&Endpoint) -> Option<Use>| {
            endpoints
                .iter()
                .filter(|one| of(one) == Some(Use::Used))
                .count()
        };
        port.counts.cluster = scopes.cluster.then(|| count(|one| one.cluster));
        port.counts.local = scopes.local.then(|| count(|one| one.local));
        endpoints.sort_by_key(|one| (!is_used(one), one.at));
        let room = match self.all {
            true => self.endpoints_left,
            false => self.endpoints_left.min(ENDPOINTS_OF_A_PORT),
        };
        port.more_endpoints = endpoints.len().saturating_sub(room);
        endpoints.truncate(room);
        self.endpoints_left -= endpoints.len();
        port.endpoints = endpoints;
        if all.is_empty() {
            self.located
                .hints
                .push(no_endpoints(known, of_spec, family));
        }
    }

    /// The endpoints of the groups that the frontends of a port lead to by the plan.
    fn planned(
        &self,
        name: &ServiceName,
        spec: &Spec,
        port: &spec::Port,
        family: Family,
    ) -> PerScope<Option<BTreeSet<desired::Endpoint>>> {
        let desired = self.planner.desired();
        let own = frontends(spec, family, port);
        let own = own.filter(|(at, _)| self.planner.has(name, port, *at));
        let targets = own.flat_map(|(at, _)| match at {
            Tracked::Address(key) => {
                let of = &desired.addresses;
                [of.targets.get(&key), of.outside.get(&key)]
            }
            Tracked::NodePort(key) => {
                let of = &desired.node_ports;
                [of.targets.get(&key), of.outside.get(&key)]
            }
        });
        let mut groups = PerScope::default();
        for target in targets.flatten() {
            if let Some(group) = target.group() {
                let of_scope: &mut Option<_> = groups.get_mut(Scope::of(group));
                if of_scope.is_none() {
                    *of_scope = Some(lookup::endpoints(desired, group));
                }
            }
        }
        groups
    }
}

/// Which groups the frontends of a Service in a family need.
fn scopes(spec: &Spec, family: Family) -> PerScope<bool> {
    let external = spec.is_external(family);
    PerScope {
        cluster: !spec.internal_local || external,
        local: spec.internal_local || (spec.external_local && external),
    }
}

fn word(unused: Unused) -> Use {
    match unused {
        Unused::NotReady => Use::NotReady,
        Unused::Ending => Use::Ending,
        Unused::NotLocal => Use::NotLocal,
        Unused::OtherNode => Use::OtherNode,
        Unused::OtherZone => Use::OtherZone,
    }
}

fn zones(entry: &Entry) -> Vec<String> {
    let zones = entry.zones.iter().flat_map(|zones| zones.iter());
    zones.take(MAX_NAMED).map(ToString::to_string).collect()
}

/// What to look at if a port has no endpoints.
fn no_endpoints(
    known: &crate::services::registry::Known,
    port: &spec::Port,
    family: Family,
) -> String {
    let protocol = protocol_name(port.protocol);
    let what = format!(
        "port \"{}\" ({protocol}) has no {family} endpoints",
        port.name
    );
    let named: BTreeSet<String> = (known.slices())
        .flat_map(|slice| &slice.ports)
        .map(|port| format!("\"{}\" ({})", port.name, protocol_name(port.protocol)))
        .collect();
    match named.is_empty() {
        true => format!(
            "{what}: the Service has no EndpointSlice with ports. Does its selector find pods? An EndpointSlice that another proxy serves does not count"
        ),
        false => format!(
            "{what}: its EndpointSlices have the ports {}, of which one has to be called as the Service's is, and endpoints of the family",
            listed(named.into_iter().collect::<Vec<_>>().into_iter())
        ),
    }
}
