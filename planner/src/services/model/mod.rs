//! What is known of Services, and what it comes to, whoever writes it down: typed, and
//! without a number, a slot or a set of nftables.
//!
//! [`registry`] keeps the objects, as [`spec`] and [`slice`] read them. From these and from
//! what counts besides ([`surroundings`], [`options`], [`reserved`]) [`service`] says what a port
//! of a Service is to be: where its frontends lead to, and which endpoints it sends to
//! ([`choice`]). [`queue`] says whose turn it is. [`Model`] has what all of them come to: who has a frontend ([`claims`]), and
//! the addresses that several contribute to ([`counted`]). It keeps no list of endpoints that
//! flows are sent to; they are in the [`Change`] of their Service.

pub mod choice;
pub mod claims;
pub mod counted;
pub mod frontends;
pub mod options;
pub mod queue;
pub mod refusal;
pub mod registry;
pub mod reserved;
pub mod scope;
pub mod served;
pub mod service;
pub mod slice;
pub mod spec;
pub mod surroundings;
pub mod value;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_component::store::Store;
use tweed_core::object::service_cidr::ServiceCidr;

use crate::addresses::{Span, within};
use crate::protocols::UDP;
use choice::{Choice, SlicePorts};
use claims::{Claimant, Claims};
use counted::Counted;
use frontends::{claimant, frontends_of};
use options::Options;
use queue::{Queue, Unit, Units, next_batch};
use refusal::Refused;
use registry::{Known, Registry};
use reserved::Reserved;
use served::Served;
use service::{Service, ServicePort, WithoutLocal};
use spec::Spec;
use surroundings::{ServiceNetworks, Surroundings};
use value::{Endpoint, HealthCheck, ServiceName, Tracked};

/// Maximum number of addresses that are named for a Service that is not served at them.
const MAX_REFUSED: usize = 3;

/// All Services, as they were last planned.
#[derive(Debug)]
pub struct Model {
    /// What the agent was told.
    pub options: Options,
    /// Services and their slices, as they are now.
    pub registry: Registry,
    /// All ServiceCIDRs.
    pub cidrs: Store<ServiceCidr>,
    /// What counts besides.
    pub surroundings: Surroundings,
    /// Whether the surroundings have changed since the last plan.
    pub surroundings_touched: bool,
    /// Whether the ServiceCIDRs, the addresses of Nodes or the ranges of pods have.
    pub cidrs_touched: bool,
    /// What no Service is served at, as the agent reaches the API server by it.
    pub reserved: Reserved,
    /// Where node ports are.
    pub node_port_networks: BTreeSet<Span>,
    /// Where cluster IPs are.
    pub networks: ServiceNetworks,
    /// Who has which frontend.
    pub claims: Claims,
    /// Service ports whose traffic policy finds no endpoint here.
    pub without_local: WithoutLocal,
    /// Services that are not served at some of their addresses: the first of these, and how
    /// many more there are.
    pub refused: BTreeMap<Arc<ServiceName>, (Vec<Refused>, usize)>,
    /// The cluster IPs of Services that another proxy serves.
    pub foreign: Counted<IpAddr>,
    /// The addresses of all endpoints of this node.
    pub hairpin: Counted<IpAddr>,
    /// What has changed and waits for its turn.
    pub queue: Queue,
    services: BTreeMap<Arc<ServiceName>, Service>,
    cluster_ips: Counted<IpAddr>,
    load_balancers: Counted<IpAddr>,
    /// The frontends of UDP of Services that another proxy serves.
    untracked: Counted<Tracked>,
    tcp_endpoints: Counted<Endpoint>,
    /// The ports of health checks. The first Service by name has one.
    checks: BTreeSet<(u16, Arc<ServiceName>)>,
    /// Addresses of the API server at whose port no cluster IP is served.
    api_servers: BTreeSet<IpAddr>,
}

/// How one Service has changed, with what has changed by it for all.
#[derive(Debug)]
pub struct Change {
    /// The Service.
    pub name: Arc<ServiceName>,
    /// Those of its ports that were planned.
    pub ports: Vec<PortChange>,
    /// The frontends that these had or have a claim to. What each is now is
    /// [`Model::frontend`].
    pub frontends: BTreeSet<Tracked>,
    /// The ports of health checks that may have changed: [`Model::health_check`].
    pub health_checks: Vec<u16>,
    /// Cluster IPs that have come (true) or gone.
    pub cluster_ips: BTreeMap<IpAddr, bool>,
    /// The same of Services that another proxy serves.
    pub foreign: BTreeMap<IpAddr, bool>,
    /// Addresses without node ports that have come or gone.
    pub node_port_exceptions: BTreeMap<IpAddr, bool>,
    /// Addresses of endpoints of this node that have come or gone.
    pub hairpin: BTreeMap<IpAddr, bool>,
    /// Frontends of UDP of other proxies' Services that have come or gone.
    pub untracked: BTreeMap<Tracked, bool>,
    /// Endpoints of TCP that have come or gone.
    pub tcp_endpoints: BTreeMap<Endpoint, bool>,
}

/// How a port has changed.
#[derive(Debug)]
pub struct PortChange {
    /// Its place. What it is now is [`Model::port`].
    pub place: usize,
    /// What it was.
    pub old: Option<ServicePort>,
    /// The endpoints that it sends new flows to; none if it is gone.
    pub backends: Option<Choice>,
}

impl Change {
    fn of(name: Arc<ServiceName>) -> Self {
        Self {
            name,
            ports: Vec::new(),
            frontends: BTreeSet::new(),
            health_checks: Vec::new(),
            cluster_ips: BTreeMap::new(),
            foreign: BTreeMap::new(),
            node_port_exceptions: BTreeMap::new(),
            hairpin: BTreeMap::new(),
            untracked: BTreeMap::new(),
            tcp_endpoints: BTreeMap::new(),
        }
    }
}

/// A unit that has its turn, as it is to be.
enum Planned {
    /// The port at this place, if there is to be one.
    Port(usize, Option<(ServicePort, Choice)>),
    Rest,
}

impl Model {
    /// Nothing is known yet.
    pub fn new(options: Options) -> Self {
        Self {
            registry: Registry::new(options.clone()),
            options,
            cidrs: Store::default(),
            surroundings: Surroundings::default(),
            surroundings_touched: true,
            cidrs_touched: true,
            reserved: Reserved::default(),
            node_port_networks: BTreeSet::new(),
            networks: ServiceNetworks::default(),
            claims: Claims::default(),
            without_local: WithoutLocal::default(),
            refused: BTreeMap::new(),
            foreign: Counted::default(),
            hairpin: Counted::default(),
            queue: Queue::default(),
            services: BTreeMap::new(),
            cluster_ips: Counted::default(),
            load_balancers: Counted::default(),
            untracked: Counted::default(),
            tcp_endpoints: Counted::default(),
            checks: BTreeSet::new(),
            api_servers: BTreeSet::new(),
        }
    }

    /// A plan begins. Services that lead to the API server, or did, are planned anew if it is
    /// reached by something else than before. True if the surroundings have changed.
    pub fn begin(&mut self) -> bool {
        let changed = std::mem::take(&mut self.surroundings_touched);
        if changed {
            self.node_port_networks = self.surroundings.node_port_networks(&self.options);
        }
        let now = Reserved::of(&self.surroundings, &self.node_port_networks);
        if now != self.reserved {
            let before = std::mem::replace(&mut self.reserved, now);
            let concerns = |spec: &Spec| before.concerns(spec) || self.reserved.concerns(spec);
            self.registry.touch_where(concerns);
        }
        changed
    }

    /// Plans those units of a Service that have their turn, and has the others wait. `left` is
    /// how many more endpoints the plan takes up.
    pub fn update(&mut self, name: Arc<ServiceName>, mut units: Units, left: &mut usize) -> Change {
        let mut service = self.services.remove(&name).unwrap_or_default();
        let known = self.registry.get(&name);
        let slices = SlicePorts::of(known.into_iter().flat_map(Known::slices));
        let spec = known.and_then(|known| known.spec.clone());
        let turn = next_batch(&mut units, &service, spec.as_deref(), &slices, left);
        let plans = turn.into_iter().filter_map(|(unit, place)| {
            Some(match unit {
                Unit::Rest => Planned::Rest,
                Unit::Gone(_) => Planned::Port(place, None),
                Unit::Port(family, index) => {
                    let spec = spec.as_ref()?;
                    let port = spec.ports.get(index)?;
                    let all = slices.candidates(family, &port.name, port.protocol);
                    let surroundings = &self.surroundings;
                    let planned = ServicePort::of(spec, family, index, &all, surroundings);
                    Planned::Port(place, Some(planned))
                }
            })
        });
        let planned: Vec<Planned> = plans.collect();
        let moving = self.moving(&name, &service, spec.as_ref());
        let mut change = Change::of(name.clone());
        for one in planned {
            match one {
                Planned::Port(place, planned) => {
                    let (new, backends) = planned.unzip();
                    let old = match new {
                        Some(port) => service.put(place, port),
                        None => service.take(place),
                    };
                    let new = service.ports.get_mut(place).and_then(Option::as_mut);
                    self.exchange_port(&mut change, &moving, place, old.as_ref(), new);
                    change.ports.push(PortChange {
                        place,
                        old,
                        backends,
                    });
                }
                Planned::Rest => {
                    let old = std::mem::replace(&mut service.spec, spec.clone());
                    self.exchange_rest(&mut change, old.as_deref(), spec.as_deref());
                }
            }
        }
        // The number of local endpoints is that of its ports.
        let check = service.spec.as_ref().and_then(|spec| spec.health_check);
        change.health_checks.extend(check);
        if service.spec.is_some() || !service.ports.is_empty() {
            self.services.insert(name.clone(), service);
        }
        self.put_back(name, units);
        change
    }

    /// A port is this where it was that.
    fn exchange_port(
        &mut self,
        change: &mut Change,
        moving: &HashSet<(Tracked, Claimant)>,
        place: usize,
        old: Option<&ServicePort>,
        mut new: Option<&mut ServicePort>,
    ) {
        self.claim(change, moving, place, old, new.as_deref_mut());
        let both = [old, new.as_deref()];
        let [was, is] = both.map(|port| port.map_or(&[][..], |port| &port.hairpin));
        (change.hairpin).extend(self.hairpin.exchange_sorted(was, is));
        let [was, is] = both.map(|port| port.map_or(&[][..], |port| &port.tcp_endpoints));
        (change.tcp_endpoints).extend(self.tcp_endpoints.exchange_sorted(was, is));
        self.without_local.exchange(old, new.as_deref());
    }

    /// What counts of a Service besides its ports is this where it was that.
    fn exchange_rest(&mut self, change: &mut Change, old: Option<&Spec>, new: Option<&Spec>) {
        let both = [old, new];
        let [was, is] = both.map(|spec| spec.filter(|spec| !spec.not_ours));
        let [was_foreign, is_foreign] = both.map(|spec| spec.filter(|spec| spec.not_ours));
        let name = &change.name;
        let mut cluster_ips = (self.cluster_ips).exchange(cluster_ips_of(was), cluster_ips_of(is));
        for (ip, is) in &mut cluster_ips {
            *is &= !self.is_of_others(*ip);
        }
        let mut exceptions = (self.load_balancers).exchange(balancers_of(was), balancers_of(is));
        for (ip, is) in &mut exceptions {
            *is &= !self.surroundings.own.addresses.contains(ip);
        }
        self.note_refused(name, is);
        change.health_checks = self.set_checks(name, was, is);
        (change.foreign) =
            (self.foreign).exchange(cluster_ips_of(was_foreign), cluster_ips_of(is_foreign));
        change.untracked = (self.untracked).exchange(&of_udp(was_foreign), &of_udp(is_foreign));
        change.cluster_ips = cluster_ips;
        change.node_port_exceptions = exceptions;
    }

    /// Sets the claims of a Service that lead to a port, and takes back those that it had. While
    /// there is a port, one of `moving` stays until another port has it, which waits for its turn.
    fn claim(
        &mut self,
        change: &mut Change,
        moving: &HashSet<(Tracked, Claimant)>,
        place: usize,
        old: Option<&ServicePort>,
        new: Option<&mut ServicePort>,
    ) {
        let name = &change.name;
        let wanted = new.iter().flat_map(|port| port.claims(name));
        let allowed = wanted.filter(|(at, claimant)| !self.reserved.has(at, claimant.class));
        let claims: BTreeSet<(Tracked, Claimant)> = allowed.collect();
        let of_old = old.into_iter().flat_map(|port| port.claims(name));
        let had = of_old.filter(|claim| self.claims.get(claim) == Some(place));
        let obsolete: Vec<_> = had.filter(|claim| !claims.contains(claim)).collect();
        let mut held = Vec::new();
        for (at, claimant) in obsolete {
            change.frontends.insert(at);
            let claim = (at, claimant);
            if new.is_some() && moving.contains(&claim) {
                held.push(claim);
            } else {
                self.claims.set(claim.0, claim.1, None);
            }
        }
        if let Some(new) = new {
            new.held = held.into();
        }
        for (at, claimant) in claims {
            change.frontends.insert(at);
            self.claims.set(at, claimant, Some(place));
        }
    }

    /// The claims of a Service, of which its ports may have some that others are to have, since
    /// it says something else now. None if it does not.
    fn moving(
        &self,
        name: &Arc<ServiceName>,
        service: &Service,
        spec: Option<&Arc<Spec>>,
    ) -> HashSet<(Tracked, Claimant)> {
        let is_other = |spec: &&Arc<Spec>| {
            let mut ports = service.ports.iter().flatten();
            ports.any(|port| !Arc::ptr_eq(&port.spec, spec) || !port.held.is_empty())
        };
        let changed = spec.filter(is_other).into_iter();
        let claims = changed.flat_map(|spec| {
            frontends_of(spec).map(|(at, class)| (at, claimant(spec, class, name)))
        });
        claims
            .filter(|(at, claimant)| !self.reserved.has(at, claimant.class))
            .collect()
    }

    fn set_checks(
        &mut self,
        name: &Arc<ServiceName>,
        old: Option<&Spec>,
        new: Option<&Spec>,
    ) -> Vec<u16> {
        let [old, new] = [old, new].map(|spec| spec.and_then(|spec| spec.health_check));
        if let Some(port) = old {
            self.checks.remove(&(port, name.clone()));
        }
        self.checks.extend(new.map(|port| (port, name.clone())));
        old.into_iter().chain(new).collect()
    }

    /// Writes down where a Service is not served.
    fn note_refused(&mut self, name: &Arc<ServiceName>, spec: Option<&Spec>) {
        let each = spec.into_iter();
        let mut refused: Vec<Refused> = each.flat_map(|spec| self.reserved.refused(spec)).collect();
        let more = refused.len().saturating_sub(MAX_REFUSED);
        refused.truncate(MAX_REFUSED);
        if refused.is_empty() {
            self.refused.remove(name)
        } else {
            self.refused.insert(name.clone(), (refused, more))
        };
    }

    /// Finds out which networks are for Services, when all Services are planned. True if that
    /// may be others than before. A node or a pod whose address a Service was given is reached
    /// at all other ports.
    pub fn find_networks(&mut self) -> bool {
        // A cluster IP is the API server's if it is served at the server's port.
        let reserved = self.reserved.frontends();
        let unserved = reserved.filter(|at| self.frontend(Tracked::Address(**at)).is_none());
        let found: BTreeSet<IpAddr> = unserved.map(|at| at.address).collect();
        let touched = std::mem::take(&mut self.cidrs_touched) || found != self.api_servers;
        self.api_servers = found;
        if touched {
            let cidrs = self.cidrs.objects().values();
            self.networks = ServiceNetworks::of(cidrs, &self.surroundings, &self.api_servers);
        }
        touched
    }

    /// A port of a Service, by its place.
    pub fn port(&self, name: &ServiceName, place: usize) -> Option<&ServicePort> {
        self.services.get(name)?.ports.get(place)?.as_ref()
    }

    /// What is decided of a frontend, if a Service has it.
    pub fn frontend(&self, at: Tracked) -> Option<Served<'_>> {
        let (claimant, place) = self.claims.first(at)?;
        Some(Served {
            claimant,
            place,
            port: self.port(&claimant.service, place)?,
        })
    }

    /// What is answered at a port for health checks.
    pub fn health_check(&self, port: u16) -> Option<HealthCheck> {
        let mut checks = self.checks.iter();
        let (_, name) = checks.find(|(of, _)| *of == port)?;
        Some(HealthCheck {
            service: ServiceName::clone(name),
            local_endpoints: self.services.get(name)?.local_endpoints(),
        })
    }

    /// The cluster IPs of all Services, but for those that are somebody else's too.
    pub fn cluster_ips(&self) -> impl Iterator<Item = IpAddr> {
        let ips = self.cluster_ips.iter().copied();
        ips.filter(|ip| !self.is_of_others(*ip))
    }

    /// Addresses of load balancers that are not this Node's: they have no node ports.
    pub fn node_port_exceptions(&self) -> impl Iterator<Item = IpAddr> {
        let own = &self.surroundings.own.addresses;
        let ips = self.load_balancers.iter().copied();
        ips.filter(|ip| !own.contains(ip))
    }

    /// Whether an address is that of a Node or of the API server, or in a range of pods, whoever
    /// else has it.
    fn is_of_others(&self, ip: IpAddr) -> bool {
        let Surroundings {
            nodes,
            pod_networks,
            ..
        } = &self.surroundings;
        nodes.contains(&ip) || self.api_servers.contains(&ip) || within(pod_networks, ip)
    }
}

fn cluster_ips_of(spec: Option<&Spec>) -> &[IpAddr] {
    spec.map_or(&[], |spec| &spec.cluster_ips)
}

fn balancers_of(spec: Option<&Spec>) -> &[IpAddr] {
    spec.map_or(&[], |spec| &spec.load_balancer_ips)
}

/// The frontends of UDP of a Service.
fn of_udp(spec: Option<&Spec>) -> Vec<Tracked> {
    let frontends = spec.into_iter().flat_map(frontends_of).map(|(at, _)| at);
    frontends.filter(|at| at.protocol() == UDP).collect()
}
