//! The desired tables, and what each Service has contributed to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;
use tweed_core::object::service_cidr::ServiceCidr;

use super::super::model::choice::{SlicePorts, choose};
use super::super::model::frontends::{Outcome, WithoutLocal, frontends};
use super::super::model::options::Options;
use super::super::model::refusal::Refused;
use super::super::model::registry::Known;
use super::super::model::reserved::Reserved;
use super::super::model::slice::Entry;
use super::super::model::spec::Spec;
use super::super::model::surroundings::{Overlap, Own, ServiceNetworks, Surroundings};
use super::super::stale;
use super::claims::{Claim, Claimant, Claims};
use super::counted::Counted;
use super::desired::{Endpoint, HealthCheck, Number, ServiceName, Span, Tracked};
use super::known_numbers::KnownNumbers;
use super::limits::Limits;
use super::ports::{OldPorts, PlannedPort, Ports};
use super::tables::{Tables, put, replace};
use crate::addresses::within;

/// Maximum number of addresses that are named for a Service that is not served at them.
const MAX_REFUSED: usize = 3;

/// What a Service has contributed.
#[derive(Debug)]
struct Planned {
    spec: Arc<Spec>,
    ports: Vec<PlannedPort>,
    /// Its endpoints of this node.
    hairpin: Box<[IpAddr]>,
    without_local: WithoutLocal,
}

/// All that is planned.
#[derive(Debug, Default)]
pub struct Compiled {
    /// What the kernel should hold.
    pub tables: Tables,
    /// Who has which frontend.
    pub claims: Claims,
    /// Services with more endpoints than a group can have: how many are used.
    pub crowded: BTreeMap<Arc<ServiceName>, usize>,
    /// Service ports whose traffic policy finds no endpoint here.
    pub without_local: WithoutLocal,
    /// Services whose affinity has another timeout than they say: the two, in seconds.
    pub other_timeouts: BTreeMap<Arc<ServiceName>, (u32, u32)>,
    /// The groups of all Service ports.
    pub ports: Ports,
    planned: BTreeMap<Arc<ServiceName>, Planned>,
    limits: Limits,
    cluster_ips: Counted<IpAddr>,
    foreign: Counted<IpAddr>,
    /// What ServiceCIDRs have that is not for Services.
    pub overlaps: Vec<Overlap>,
    /// What no Service is served at, as the agent reaches the API server by it.
    pub reserved: Reserved,
    /// Services that are not served at some of their addresses: the first of these, and how
    /// many more there are.
    pub refused: BTreeMap<Arc<ServiceName>, (Vec<Refused>, usize)>,
    /// Addresses of the API server at whose port no cluster IP is served.
    api_servers: BTreeSet<IpAddr>,
    /// The frontends of UDP of Services that another proxy serves.
    untracked: Counted<Tracked>,
    load_balancers: Counted<IpAddr>,
    hairpin: Counted<IpAddr>,
    /// How many ready endpoints of this node each health check finds. The first Service
    /// by name has the port.
    checks: BTreeMap<(u16, Arc<ServiceName>), usize>,
}

/// The parts of a new plan of one Service that its claims are made from.
#[derive(Default)]
struct Ported {
    ports: Vec<PlannedPort>,
    /// [`Spec::first_of_each_name`].
    first: Vec<usize>,
    /// Where the first port of each name leads to, by its index.
    outcomes: BTreeMap<(Family, usize), Outcome>,
    hairpin: BTreeSet<IpAddr>,
    /// The ready endpoints of this node in its first family.
    ready: BTreeSet<IpAddr>,
    /// The timeout that its affinity has, in seconds.
    timeout: Option<u32>,
}

impl Compiled {
    /// A change begins: what was given back in the last one may be given out again.
    pub fn settle(&mut self) {
        self.ports.settle();
        self.limits.settle();
    }

    /// The first plan takes these numbers over.
    pub fn take_over(&mut self, known: KnownNumbers) {
        self.limits.take_over(&known);
        self.ports.take_over(known);
    }

    /// The first plan has all its numbers.
    pub fn settle_known(&mut self) {
        self.ports.settle_known();
        self.limits.settle_known();
    }

    /// What of the surroundings the tables hold.
    pub fn set_surroundings(&mut self, surroundings: &Surroundings, options: &Options) {
        let own = &surroundings.own.addresses;
        let tables = &mut self.tables;
        replace!(tables, pod_networks, surroundings.pod_networks());
        replace!(tables, local_cidrs, surroundings.local_cidrs());
        replace!(
            tables,
            node_port_networks,
            surroundings.node_port_networks(options)
        );
        let balancers = self.load_balancers.iter();
        let exceptions: BTreeSet<IpAddr> =
            (balancers.filter(|ip| !own.contains(ip)).copied()).collect();
        replace!(tables, node_port_exceptions, exceptions);
        self.limits.set_own(tables, own);
    }

    /// The addresses of the API server that are no Service's: a cluster IP is one if it is
    /// served at the server's port. True if they are others than before.
    pub fn find_api_servers(&mut self) -> bool {
        let served = &self.tables.desired.addresses.targets;
        let unserved = self.reserved.frontends();
        let unserved = unserved.filter(|key| !served.contains_key(key));
        let found: BTreeSet<IpAddr> = unserved.map(|key| key.address).collect();
        let changed = found != self.api_servers;
        self.api_servers = found;
        changed
    }

    /// What of these CIDRs is for Services.
    pub fn service_networks<'a>(
        &self,
        cidrs: impl IntoIterator<Item = &'a ServiceCidr>,
        surroundings: &Surroundings,
    ) -> ServiceNetworks {
        ServiceNetworks::of(cidrs, surroundings, &self.api_servers)
    }

    /// Where cluster IPs are. A node or a pod whose address a Service was given is reached at
    /// all other ports. Comes after [`Self::set_surroundings`].
    pub fn set_service_networks(&mut self, found: ServiceNetworks, surroundings: &Surroundings) {
        let tables = &mut self.tables;
        replace!(tables, service_networks, found.networks);
        self.overlaps = found.overlaps;
        let ips = self.cluster_ips.iter().copied();
        let servers = &self.api_servers;
        let ips = ips.filter(|ip| !is_of_others(tables, servers, surroundings, *ip));
        let ips: BTreeSet<IpAddr> = ips.collect();
        replace!(tables, cluster_ips, ips);
    }

    /// Plans one Service anew; `None` if it is not known any more.
    pub fn update(
        &mut self,
        name: &Arc<ServiceName>,
        known: Option<&Known>,
        surroundings: &Surroundings,
    ) {
        let own = &surroundings.own;
        let spec = known.and_then(|known| known.spec.clone());
        let old = self.planned.remove(name);
        let (old_spec, old_ports, old_hairpin, old_without) = match old {
            Some(old) => (Some(old.spec), old.ports, old.hairpin, old.without_local),
            None => (None, Vec::new(), Box::default(), WithoutLocal::default()),
        };
        let served = |spec: &Option<Arc<Spec>>| spec.clone().filter(|spec| !spec.not_ours);
        let (old_served, new_served) = (served(&old_spec), served(&spec));
        let ported = self.plan_ports(
            new_served.as_deref().zip(known),
            old_served.as_deref(),
            old_ports,
            surroundings,
        );
        let limits = self.acquire_limits(new_served.as_deref(), own);
        self.claim(
            name,
            old_served.as_deref(),
            new_served.as_deref(),
            &ported,
            &limits,
        );
        for key in old_served.iter().flat_map(|spec| &spec.limits) {
            self.limits.release(&mut self.tables, key);
        }
        let hairpin: Box<[IpAddr]> = ported.hairpin.iter().copied().collect();
        self.count_addresses(old_spec.as_deref(), spec.as_deref(), surroundings);
        let untracked = [&old_spec, &spec].map(|spec| of_another_proxy(spec.as_deref(), name));
        for (at, is) in self.untracked.exchange(&untracked[0], &untracked[1]) {
            put!(self.tables, untracked, at, is.then_some(()));
        }
        for (ip, is) in self.hairpin.exchange(&*old_hairpin, &*hairpin) {
            put!(self.tables, hairpin, ip, is.then_some(()));
        }
        self.check_health(
            name,
            old_served.as_deref(),
            new_served.as_deref(),
            ported.ready.len(),
        );
        self.note_refused(name, new_served.as_deref());
        let crowded = ported.outcomes.values().filter_map(|one| one.crowded);
        match crowded.min() {
            Some(used) => self.crowded.insert(name.clone(), used),
            None => self.crowded.remove(name),
        };
        let without_local = WithoutLocal::of(ported.outcomes.values());
        self.without_local.exchange(old_without, without_local);
        let wanted = new_served.and_then(|spec| spec.affinity);
        match wanted.zip(ported.timeout) {
            Some((wanted, given)) if wanted != given => {
                self.other_timeouts.insert(name.clone(), (wanted, given))
            }
            _ => self.other_timeouts.remove(name),
        };
        if let Some(spec) = spec {
            let ports = ported.ports;
            let planned = Planned {
                spec,
                ports,
                hairpin,
                without_local,
            };
            self.planned.insert(name.clone(), planned);
        }
    }

    /// Plans the ports of a Service, and removes those that it has no more.
    fn plan_ports(
        &mut self,
        new: Option<(&Spec, &Known)>,
        old: Option<&Spec>,
        old_ports: Vec<PlannedPort>,
        surroundings: &Surroundings,
    ) -> Ported {
        let mut ported = Ported::default();
        let Some((spec, known)) = new else {
            for port in old_ports {
                self.ports.close(&mut self.tables, port);
            }
            return ported;
        };
        ported.first = spec.first_of_each_name();
        let slice_ports = SlicePorts::of(known.slices());
        let mut old_ports = OldPorts::of(old, old_ports);
        for family in spec.families() {
            for (index, port) in spec.ports.iter().enumerate() {
                if ported.first.get(index) != Some(&index) {
                    continue;
                }
                let kept = old_ports.take(family, port, spec.affinity.is_some());
                let mut planned = kept.unwrap_or_else(|| self.ports.open(spec, family, index));
                planned.index = index;
                let all = slice_ports.candidates(family, &port.name, port.protocol);
                let choice = choose(&all, &surroundings.own.zone);
                ported.note(spec, &all, family, surroundings);
                let tables = &mut self.tables;
                let outcome =
                    self.ports
                        .plan(tables, &mut planned, spec, port.protocol, &all, choice);
                ported.timeout = ported.timeout.max(planned.timeout);
                ported.outcomes.insert((family, index), outcome);
                ported.ports.push(planned);
            }
        }
        for port in old_ports.rest() {
            self.ports.close(&mut self.tables, port);
        }
        ported
    }

    fn acquire_limits(&mut self, spec: Option<&Spec>, own: &Own) -> Vec<(Family, Number)> {
        let keys = spec.into_iter().flat_map(|spec| &spec.limits);
        let acquire = |key: &(Family, Box<[Span]>)| {
            let number = self.limits.acquire(&mut self.tables, key, &own.addresses);
            (key.0, number)
        };
        keys.map(acquire).collect()
    }

    /// Sets the claims of a Service, and takes back those that it had.
    fn claim(
        &mut self,
        name: &Arc<ServiceName>,
        old: Option<&Spec>,
        new: Option<&Spec>,
        ported: &Ported,
        limits: &[(Family, Number)],
    ) {
        let mut claims = BTreeMap::new();
        for (key, family, index) in new.into_iter().flat_map(|spec| frontends_of(spec, name)) {
            let Some((spec, outcome)) = new.zip(ported.outcome(family, index)) else {
                continue;
            };
            let limit = limits.iter().find(|(of, _)| *of == family);
            let limit = limit.map(|(_, number)| *number);
            let class = key.1.class;
            if self.reserved.has(&key.0, class) {
                continue;
            }
            // Of two ports with one number, which no API server lets through, the first
            // counts.
            claims
                .entry(key)
                .or_insert_with(|| outcome.claim(spec, class, limit));
        }
        for (key, ..) in old.into_iter().flat_map(|spec| frontends_of(spec, name)) {
            if !claims.contains_key(&key) {
                self.claims.set(&mut self.tables, key.0, key.1, None);
            }
        }
        for ((frontend, claimant), claim) in claims {
            let claim: Option<Claim> = Some(claim);
            self.claims.set(&mut self.tables, frontend, claimant, claim);
        }
    }

    /// Writes down where a Service is not served.
    fn note_refused(&mut self, name: &Arc<ServiceName>, spec: Option<&Spec>) {
        let refused = spec
            .into_iter()
            .flat_map(|spec| self.reserved.refused(spec));
        let mut refused: Vec<Refused> = refused.collect();
        let more = refused.len().saturating_sub(MAX_REFUSED);
        refused.truncate(MAX_REFUSED);
        match refused.is_empty() {
            true => self.refused.remove(name),
            false => self.refused.insert(name.clone(), (refused, more)),
        };
    }

    /// Counts the addresses of a Service in the sets that have them without ports.
    fn count_addresses(
        &mut self,
        old: Option<&Spec>,
        new: Option<&Spec>,
        surroundings: &Surroundings,
    ) {
        let ips = |spec: Option<&Spec>, not_ours: bool| {
            let spec = spec.filter(|spec| spec.not_ours == not_ours);
            spec.map(|spec| spec.cluster_ips.clone())
                .unwrap_or_default()
        };
        let tables = &mut self.tables;
        for (ip, is) in (self.cluster_ips).exchange(&*ips(old, false), &*ips(new, false)) {
            let is = is && !is_of_others(tables, &self.api_servers, surroundings, ip);
            put!(tables, cluster_ips, ip, is.then_some(()));
        }
        for (ip, is) in self.foreign.exchange(&*ips(old, true), &*ips(new, true)) {
            put!(tables, foreign, ip, is.then_some(()));
        }
        let balancers = |spec: Option<&Spec>| {
            let spec = spec.filter(|spec| !spec.not_ours);
            spec.map(|spec| spec.load_balancer_ips.clone())
                .unwrap_or_default()
        };
        for (ip, is) in (self.load_balancers).exchange(&*balancers(old), &*balancers(new)) {
            let is = is && !surroundings.own.addresses.contains(&ip);
            put!(tables, node_port_exceptions, ip, is.then_some(()));
        }
    }

    fn check_health(
        &mut self,
        name: &Arc<ServiceName>,
        old: Option<&Spec>,
        new: Option<&Spec>,
        ready: usize,
    ) {
        let port = |spec: Option<&Spec>| spec.and_then(|spec| spec.health_check);
        if let Some(port) = port(old) {
            self.checks.remove(&(port, name.clone()));
        }
        if let Some(port) = port(new) {
            self.checks.insert((port, name.clone()), ready);
        }
        for port in [port(old), port(new)].into_iter().flatten() {
            let mut checks = self.checks.iter();
            let check = checks.find(|((of, _), _)| *of == port);
            let check = check.map(|((_, service), ready)| HealthCheck {
                service: ServiceName::clone(service),
                local_endpoints: *ready,
            });
            put!(self.tables, health_checks, port, check);
        }
    }
}

/// Whether an address is that of a Node or of the API server, or in a range of pods, whoever
/// else has it.
fn is_of_others(
    tables: &Tables,
    api_servers: &BTreeSet<IpAddr>,
    surroundings: &Surroundings,
    ip: IpAddr,
) -> bool {
    let is_node = surroundings.nodes.contains(&ip) || api_servers.contains(&ip);
    is_node || within(&tables.desired.pod_networks, ip)
}

/// The claims that a Service has by its frontends, each with its family and the index of
/// its port.
fn frontends_of(
    spec: &Spec,
    name: &Arc<ServiceName>,
) -> impl Iterator<Item = ((Tracked, Claimant), Family, usize)> {
    spec.families().flat_map(move |family| {
        let ports = spec.ports.iter().enumerate();
        ports.flat_map(move |(index, port)| {
            frontends(spec, family, port).map(move |(frontend, class)| {
                let claimant = Claimant {
                    class,
                    created: spec.created,
                    service: name.clone(),
                };
                ((frontend, claimant), family, index)
            })
        })
    })
}

/// The frontends of UDP of a Service, if another proxy serves it.
fn of_another_proxy(spec: Option<&Spec>, name: &Arc<ServiceName>) -> Vec<Tracked> {
    let spec = spec.filter(|spec| spec.not_ours).into_iter();
    let frontends = spec.flat_map(|spec| frontends_of(spec, name));
    let frontends = frontends.map(|((frontend, _), ..)| frontend);
    let of_udp = frontends.filter(|frontend| frontend.protocol() == stale::PROTOCOL);
    of_udp.collect()
}

impl Ported {
    /// Writes down which endpoints of a port are on this node. An address of a pod of this
    /// node is here whatever node its slice names, which may name none: it was not made by
    /// Kubernetes then. Only what the slice says counts for traffic policies.
    fn note(
        &mut self,
        spec: &Spec,
        all: &[(Endpoint, &Entry)],
        family: Family,
        surroundings: &Surroundings,
    ) {
        for (_, entry) in all {
            let is_here = entry.local || surroundings.is_own_pod(entry.address);
            if is_here && (entry.ready || entry.serving) {
                self.hairpin.insert(entry.address);
            }
            if entry.local && entry.ready && spec.first_family() == Some(family) {
                self.ready.insert(entry.address);
            }
        }
    }

    /// Where the port with this index leads to.
    fn outcome(&self, family: Family, index: usize) -> Option<&Outcome> {
        self.outcomes.get(&(family, *self.first.get(index)?))
    }
}
