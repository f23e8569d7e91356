//! What is known of Services, and what it comes to, whoever writes it down: typed, and
//! without a number, a slot or a set of nftables.
//!
//! [`registry`] keeps the objects, as [`spec`] and [`slice`] read them. From these and from
//! what counts besides ([`surroundings`], [`options`], [`reserved`]) [`service`] says what one
//! Service is to be: where its frontends lead to, and which endpoints its ports send to
//! ([`choice`]). [`Model`] has what all of them come to: who has a frontend ([`claims`]), and
//! the addresses that several contribute to ([`counted`]). It keeps no list of endpoints that
//! flows are sent to; they are in the [`Change`] of their Service.

pub mod choice;
pub mod claims;
pub mod counted;
pub mod frontends;
pub mod options;
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

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_component::store::Store;
use tweed_core::object::service_cidr::ServiceCidr;

use crate::addresses::{Span, within};
use crate::protocols::UDP;
use choice::Choice;
use claims::{Claimant, Claims};
use counted::Counted;
use frontends::{claimant, frontends_of};
use options::Options;
use refusal::Refused;
use registry::Registry;
use reserved::Reserved;
use served::Served;
use service::{Planned, Service, WithoutLocal};
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
    /// The Service. What it is now is [`Model::served`].
    pub name: Arc<ServiceName>,
    /// What was served of it.
    pub old: Option<Arc<Spec>>,
    /// The endpoints that its ports send new flows to, one for each of [`Service::ports`].
    pub backends: Vec<Choice>,
    /// The frontends that it had or has a claim to. What each is now is
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

    /// Plans one Service anew.
    pub fn update(&mut self, name: Arc<ServiceName>) -> Change {
        let planned = self.registry.get(&name);
        let planned =
            planned.and_then(|known| Planned::of(&name, known, &self.surroundings, &self.reserved));
        let (new, rest) = planned
            .map(|one| (one.service, (one.backends, one.claims)))
            .unzip();
        let (backends, claims) = rest.unwrap_or_default();
        let old = self.services.remove(&name);
        let [was, is] = [&old, &new].map(|one| spec_of(one, true));
        let [was_foreign, is_foreign] = [&old, &new].map(|one| spec_of(one, false));
        let mut cluster_ips = (self.cluster_ips).exchange(cluster_ips_of(was), cluster_ips_of(is));
        for (ip, is) in &mut cluster_ips {
            *is &= !self.is_of_others(*ip);
        }
        let mut exceptions = (self.load_balancers).exchange(balancers_of(was), balancers_of(is));
        for (ip, is) in &mut exceptions {
            *is &= !self.surroundings.own.addresses.contains(ip);
        }
        let [hairpin_was, hairpin_is] =
            [&old, &new].map(|one| one.iter().flat_map(|service| &service.hairpin));
        let [tcp_was, tcp_is] = [&old, &new].map(tcp_endpoints_of);
        self.without_local.exchange(old.as_ref(), new.as_ref());
        self.note_refused(&name, is);
        let change = Change {
            frontends: self.claim(&name, was, claims),
            health_checks: self.set_checks(&name, was, is),
            foreign: (self.foreign)
                .exchange(cluster_ips_of(was_foreign), cluster_ips_of(is_foreign)),
            hairpin: self.hairpin.exchange(hairpin_was, hairpin_is),
            untracked: (self.untracked).exchange(&of_udp(was_foreign), &of_udp(is_foreign)),
            tcp_endpoints: self.tcp_endpoints.exchange_sorted(tcp_was, tcp_is),
            cluster_ips,
            node_port_exceptions: exceptions,
            backends,
            old: old.map(|old| old.spec).filter(|spec| !spec.not_ours),
            name: name.clone(),
        };
        self.services.extend(new.map(|new| (name, new)));
        change
    }

    /// Sets the claims of a Service, and takes back those that it had.
    fn claim(
        &mut self,
        name: &Arc<ServiceName>,
        old: Option<&Spec>,
        claims: BTreeMap<(Tracked, Claimant), usize>,
    ) -> BTreeSet<Tracked> {
        let mut frontends = BTreeSet::new();
        let old = old.into_iter().flat_map(|spec| {
            frontends_of(spec).map(|(at, class)| (at, claimant(spec, class, name)))
        });
        for key in old {
            frontends.insert(key.0);
            if !claims.contains_key(&key) {
                self.claims.set(key.0, key.1, None);
            }
        }
        for ((frontend, claimant), port) in claims {
            frontends.insert(frontend);
            self.claims.set(frontend, claimant, Some(port));
        }
        frontends
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

    /// Finds out which networks are for Services, when all Services are planned. True if that
    /// may be others than before. A node or a pod whose address a Service was given is reached
    /// at all other ports.
    pub fn find_networks(&mut self) -> bool {
        // A cluster IP is the API server's if it is served at the server's port.
        let unserved = self.reserved.frontends();
        let unserved = unserved.filter(|at| self.frontend(Tracked::Address(**at)).is_none());
        let found: BTreeSet<IpAddr> = unserved.map(|at| at.address).collect();
        let touched = std::mem::take(&mut self.cidrs_touched) || found != self.api_servers;
        self.api_servers = found;
        if touched {
            let cidrs = self.cidrs.objects().values();
            self.networks = ServiceNetworks::of(cidrs, &self.surroundings, &self.api_servers);
        }
        touched
    }

    /// A Service, if it is served.
    pub fn served(&self, name: &ServiceName) -> Option<&Service> {
        let service = self.services.get(name);
        service.filter(|service| !service.spec.not_ours)
    }

    /// What is decided of a frontend, if a Service has it.
    pub fn frontend(&self, at: Tracked) -> Option<Served<'_>> {
        let (claimant, place) = self.claims.first(at)?;
        let service = self.services.get(&claimant.service)?;
        Some(Served {
            claimant,
            service,
            place,
            port: service.ports.get(place)?,
        })
    }

    /// What is answered at a port for health checks.
    pub fn health_check(&self, port: u16) -> Option<HealthCheck> {
        let mut checks = self.checks.iter();
        let (_, name) = checks.find(|(of, _)| *of == port)?;
        Some(HealthCheck {
            service: ServiceName::clone(name),
            local_endpoints: self.services.get(name)?.local_endpoints,
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

/// What a Service says, if it is served (true), or if another proxy serves it.
fn spec_of(service: &Option<Service>, is_served: bool) -> Option<&Spec> {
    let spec = service.as_ref().map(|service| &*service.spec);
    spec.filter(|spec| spec.not_ours != is_served)
}

fn cluster_ips_of(spec: Option<&Spec>) -> &[IpAddr] {
    spec.map_or(&[], |spec| &spec.cluster_ips)
}

fn balancers_of(spec: Option<&Spec>) -> &[IpAddr] {
    spec.map_or(&[], |spec| &spec.load_balancer_ips)
}

fn tcp_endpoints_of(service: &Option<Service>) -> &[Endpoint] {
    let service = service.as_ref();
    service.map_or(&[], |service| &service.tcp_endpoints)
}

/// The frontends of UDP of a Service.
fn of_udp(spec: Option<&Spec>) -> Vec<Tracked> {
    let frontends = spec.into_iter().flat_map(frontends_of).map(|(at, _)| at);
    frontends.filter(|at| at.protocol() == UDP).collect()
}
