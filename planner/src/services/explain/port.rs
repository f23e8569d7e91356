//! A port of a Service: where it is reached, and which endpoints are used.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use tweed_component::explain::{Step, Verdict, listed, protocol_name};
use tweed_core::family::Family;

use super::lookup::{Because, Origin, Way};
use super::none::span;
use super::{Answer, ENDPOINTS_OF_A_PORT, MAX_NAMED, Sender, lookup, object};
use crate::numbers::Number;
use crate::services::model::choice::{Criteria, SlicePorts, Unused};
use crate::services::model::claims::Class;
use crate::services::model::frontends::frontends;
use crate::services::model::registry::Known;
use crate::services::model::scope::{PerScope, Scope};
use crate::services::model::slice::Entry;
use crate::services::model::spec::{Port, Sources, Spec};
use crate::services::model::value::{Endpoint, ServiceName, Tracked};
use crate::services::table::part::{endpoints, group, size};

/// Whether new connections are sent to an endpoint, or why not; none where no frontend leads
/// to endpoints of the scope.
type Use = Option<Result<(), &'static str>>;

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
        let Some(port) = spec.ports.get(index) else {
            return;
        };
        let named = match &*port.name {
            "" => String::new(),
            name => format!(" \"{name}\""),
        };
        let (number, protocol) = (port.port, protocol_name(port.protocol));
        let what = format!("port{named} {number}/{protocol}, {family}");
        self.steps.push(Step::new(what));
        let is_wanted = |at: &Tracked| only.is_none_or(|only| only == *at);
        let reserved = &self.model().reserved;
        let wanted = frontends(spec, family, port).filter(|(at, _)| is_wanted(at));
        let all: Vec<_> = wanted
            .filter(|(at, class)| !reserved.has(at, *class))
            .collect();
        let room = self.frontends_left.min(all.len());
        self.frontends_left -= room;
        for (at, class) in all.iter().copied().take(room) {
            if !self.frontends.contains(&at) {
                self.frontends.push(at);
            }
            self.frontend(name, port, at, class);
        }
        self.more(1, all.len() - room, "frontends");
        self.endpoints(name, spec, port, family);
    }

    fn frontend(&mut self, name: &ServiceName, port: &Port, at: Tracked, class: Class) {
        let planner = self.planner;
        let kind = match class {
            Class::ClusterIp => "cluster IP",
            Class::LoadBalancer => "load balancer's address",
            Class::ExternalIp => "external IP",
            Class::NodePort => "node port",
        };
        let place = match at {
            Tracked::Address(key) => SocketAddr::new(key.address, key.port).to_string(),
            Tracked::NodePort(key) => key.port.to_string(),
        };
        let served = self.model().frontend(at);
        let step = match served.filter(|_| !planner.has(name, port, at)) {
            Some(other) => Step::new(format!("{kind} {place} is taken"))
                .object(object(&other.claimant.service))
                .because("it goes where that Service says"),
            None => Step::new(format!("{kind} {place}")),
        };
        self.steps.push(step.depth(1));
        if let Some(sources) = served.and_then(|one| one.sources()) {
            self.steps.push(self.source_ranges(sources).depth(2));
        }
        let senders = self.senders.iter();
        let ways: Vec<Step> = senders.filter_map(|one| self.way(at, *one)).collect();
        self.steps.extend(ways);
    }

    /// Who may use a frontend with `loadBalancerSourceRanges`.
    fn source_ranges(&self, sources: &Sources) -> Step {
        let ranges: Vec<String> = sources.1.iter().map(span).collect();
        let who = if ranges.is_empty() {
            "nobody".to_owned()
        } else {
            format!("the sources {}", listed(ranges.into_iter(), MAX_NAMED))
        };
        let is_among = self.model().surroundings.is_among(sources);
        let among = if is_among { "is" } else { "is not" };
        Step::new(format!("only for {who}; this node {among} among them"))
    }

    /// What becomes of connections to a frontend.
    fn way(&self, at: Tracked, (origin, source): Sender) -> Option<Step> {
        let from = match origin {
            Origin::Pod => "from pods",
            Origin::Node => "from this node",
            Origin::Outside => "from outside",
        };
        let rejected = || {
            Step::new(format!("{from} is REJECTED")).because("there is no usable endpoint anywhere")
        };
        let way = lookup::way(self.model(), at, origin, source)?;
        let mut verdict = Verdict::Denied;
        let step = match way {
            Way::Rejected => rejected(),
            Way::NoLocalEndpoint => Step::new(format!("{from} is DROPPED"))
                .because("the traffic policy is Local and all endpoints are on other nodes"),
            Way::SourceNotAllowed => Step::new(format!("{from} is DROPPED"))
                .because("loadBalancerSourceRanges leaves it out"),
            Way::Sent { scope, masquerade } => {
                let desired = self.planner.desired();
                match group(desired, at, origin == Origin::Outside) {
                    Some(group) => {
                        let count = size(desired, group);
                        let is_local = scope == Scope::Local;
                        let whose = if is_local { " of this node" } else { "" };
                        let becomes = if masquerade {
                            "masqueraded"
                        } else {
                            self.masqueraded_to(group, origin, source)
                        };
                        verdict = Verdict::Allowed;
                        Step::new(format!(
                            "{from} goes to one of {count} endpoints{whose} (group {group:#x}), {becomes}"
                        ))
                    }
                    // There was no number left for a group.
                    None => rejected(),
                }
            }
        };
        Some(Step {
            verdict: Some(verdict),
            ..step.depth(2)
        })
    }

    /// To which endpoints of a group a flow is masqueraded that keeps its source by its
    /// frontend; that needs a known source.
    fn masqueraded_to(
        &self,
        group: Number,
        origin: Origin,
        source: Option<IpAddr>,
    ) -> &'static str {
        let to = |at: Endpoint| lookup::masqueraded_to(self.model(), origin, source?, at.address);
        let endpoints = endpoints(self.planner.desired(), group).into_iter();
        let reasons: Vec<Option<Because>> = endpoints.map(to).collect();
        let passing = Some(Because::PassingThrough);
        if !reasons.is_empty() && reasons.iter().all(|one| *one == passing) {
            return "masqueraded";
        }
        let is_for = |because| reasons.contains(&because);
        match (is_for(Some(Because::Hairpin)), is_for(passing)) {
            (false, false) => "keeps its address",
            (true, false) => "keeps its address, but for a connection to itself",
            (false, true) => "keeps its address, but for connections to endpoints of other nodes",
            (true, true) => {
                "keeps its address, but for connections to itself and to endpoints of other nodes"
            }
        }
    }

    /// Adds the endpoints of a port, the used ones first.
    fn endpoints(&mut self, name: &ServiceName, spec: &Spec, port: &Port, family: Family) {
        let model = self.model();
        let Some(known) = model.registry.get(name) else {
            return;
        };
        let slices = SlicePorts::of(known.slices());
        let of_family = |family| slices.candidates(family, &port.name, port.protocol);
        let all = of_family(family);
        let criteria = Criteria::of(&all, &model.surroundings.own.zone);
        let scopes = spec.scopes(family);
        let groups = self.planned(name, spec, port, family);
        let uses = |at: &Endpoint, entry: &Entry, scope: Scope| -> Use {
            let group = groups.get(scope).as_ref();
            let is_beyond = || group.is_some_and(|group| !group.contains(at));
            scopes
                .get(scope)
                .then(|| match criteria.check(entry, scope) {
                    Ok(()) if is_beyond() => Err("there are more than the rules can use"),
                    checked => checked.map_err(reason),
                })
        };
        let mut endpoints: Vec<(Endpoint, &Entry, PerScope<Use>)> = all
            .iter()
            .map(|(at, entry)| {
                let cluster = uses(at, entry, Scope::Cluster);
                let local = uses(at, entry, Scope::Local);
                (*at, *entry, PerScope { cluster, local })
            })
            .collect();
        let other_families = Family::BOTH.into_iter().filter(|other| *other != family);
        let others: usize = other_families.map(|other| of_family(other).len()).sum();
        self.steps
            .push(counts(&endpoints, &scopes, others).depth(1));
        endpoints.sort_by_key(|(at, _, uses)| {
            let is_used = [uses.cluster, uses.local].contains(&Some(Ok(())));
            (!is_used, *at)
        });
        let room = if self.all {
            self.endpoints_left
        } else {
            self.endpoints_left.min(ENDPOINTS_OF_A_PORT)
        };
        let first = endpoints.iter().take(room);
        let shown: Vec<Step> = first.map(|one| self.endpoint(one)).collect();
        self.endpoints_left -= shown.len();
        self.steps.extend(shown);
        let left_out = endpoints.len().saturating_sub(room);
        let unlisted = if self.all {
            "endpoints"
        } else {
            "endpoints; --all lists them"
        };
        self.more(2, left_out, unlisted);
        if all.is_empty() {
            self.notes.push(no_endpoints(known, port, family));
        }
    }

    fn endpoint(&self, (at, entry, uses): &(Endpoint, &Entry, PerScope<Use>)) -> Step {
        let state = match (entry.ready, entry.serving, entry.terminating) {
            (true, _, false) => "ready",
            (true, _, true) => "ready, terminating",
            (false, true, true) => "serving, terminating",
            (false, false, true) => "terminating",
            (false, true, false) => "serving, not ready",
            (false, false, false) => "not ready",
        };
        let hinted = entry.zones.iter().flat_map(|zones| zones.iter());
        let named: Vec<&str> = hinted.take(MAX_NAMED).map(|zone| &**zone).collect();
        let zones = match named.as_slice() {
            [] => String::new(),
            named => format!(", for zones {}", named.join(" ")),
        };
        let (used, because) = match (uses.cluster, uses.local) {
            (None, None) => ("NOT used", "no frontend leads to it".to_owned()),
            (Some(one), None) | (None, Some(one)) => said(one),
            (Some(one), Some(other)) if one == other => said(one),
            (Some(Ok(())), Some(other)) => {
                ("used by the policy Cluster, NOT by Local", said(other).1)
            }
            (Some(one), Some(Ok(()))) => ("used by the policy Local, NOT by Cluster", said(one).1),
            (Some(Err(one)), Some(Err(other))) => (
                "NOT used",
                format!("by Cluster because {one}, by Local because {other}"),
            ),
        };
        let node = self.places.find(at.address);
        let (place, node) = if entry.local {
            (
                "on this node",
                Some(self.model().options.node_name.as_str()),
            )
        } else {
            (node.map_or("elsewhere", |_| "on another node"), node)
        };
        let at = SocketAddr::new(at.address, at.port);
        let step = Step::new(format!("{at} {place}, {state}{zones}, is {used}"));
        let object = node.map(|node| format!("Node {node}")).unwrap_or_default();
        let is_used = [uses.cluster, uses.local].contains(&Some(Ok(())));
        Step {
            endpoint: is_used.then_some(at),
            ..step.object(object).because(because).depth(2)
        }
    }

    /// The endpoints that the rules send flows to frontends of a port to.
    fn planned(
        &self,
        name: &ServiceName,
        spec: &Spec,
        port: &Port,
        family: Family,
    ) -> PerScope<Option<BTreeSet<Endpoint>>> {
        let all = frontends(spec, family, port);
        let own = all.filter(|(at, _)| self.planner.has(name, port, *at));
        let desired = self.planner.desired();
        let groups = own.flat_map(|(at, _)| [false, true].map(|is| group(desired, at, is)));
        let mut planned = PerScope::default();
        for group in groups.flatten() {
            let of_scope: &mut Option<_> = planned.get_mut(Scope::of(group));
            if of_scope.is_none() {
                *of_scope = Some(endpoints(desired, group));
            }
        }
        planned
    }
}

fn said(one: Result<(), &str>) -> (&'static str, String) {
    match one {
        Ok(()) => ("used", String::new()),
        Err(why) => ("NOT used", why.to_owned()),
    }
}

/// How many endpoints a port has, and how many of them are used.
fn counts(
    endpoints: &[(Endpoint, &Entry, PerScope<Use>)],
    scopes: &PerScope<bool>,
    others: usize,
) -> Step {
    let used = |scope| {
        let uses = endpoints.iter().map(|(.., uses)| *uses.get(scope));
        uses.filter(|one| *one == Some(Ok(()))).count()
    };
    let (cluster, local) = (used(Scope::Cluster), used(Scope::Local));
    let mut what = format!("endpoints: {}", endpoints.len());
    match (scopes.cluster, scopes.local) {
        (true, false) => what += &format!(", {cluster} used"),
        (false, true) => what += &format!(", {local} used"),
        (true, true) => {
            what += &format!(", {cluster} used by the policy Cluster, {local} by Local");
        }
        (false, false) => {}
    }
    if others > 0 {
        what += &format!("; {others} of the other family");
    }
    Step::new(what)
}

fn reason(unused: Unused) -> &'static str {
    match unused {
        Unused::NotReady => "it is not ready",
        Unused::Ending => "it is about to end and others are ready",
        Unused::NotLocal => "it is on another node",
        Unused::OtherNode => "hints give it to other nodes",
        Unused::OtherZone => "hints give it to other zones",
    }
}

/// What to look at if a port has no endpoints.
fn no_endpoints(known: &Known, port: &Port, family: Family) -> Step {
    let named = |name: &str, protocol| format!("\"{name}\" ({})", protocol_name(protocol));
    let what = format!(
        "port {} has no {family} endpoints",
        named(&port.name, port.protocol)
    );
    let found = known.slices().flat_map(|slice| &slice.ports);
    let ports: BTreeSet<String> = found.map(|one| named(&one.name, one.protocol)).collect();
    Step::note(if ports.is_empty() {
        format!(
            "{what}: the Service has no EndpointSlice with ports. Does its selector find pods? An EndpointSlice that another proxy serves does not count"
        )
    } else {
        format!(
            "{what}: its EndpointSlices have the ports {}, of which one has to be called as the Service's is, and endpoints of the family",
            listed(ports.into_iter(), MAX_NAMED)
        )
    })
}
