//! What one Service is to be: a total function of the Service, its slices and what counts
//! besides. It knows nothing of how that is written down.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;

use super::choice::{Candidates, Choice, SlicePorts, choose};
use super::claims::Claimant;
use super::frontends::{claimant, frontends};
use super::registry::Known;
use super::reserved::Reserved;
use super::scope::{SCOPES, Scope};
use super::slice::Entry;
use super::spec::{Port, Spec};
use super::surroundings::Surroundings;
use super::value::{Endpoint, ServiceName, Tracked};
use crate::protocols::{TCP, UDP};

/// Where new flows to a frontend go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// To one of the port's endpoints in this scope.
    Backends(Scope),
    /// There is no endpoint anywhere: the client is told.
    Reject,
    /// The traffic policy is `Local`, and there are endpoints on other nodes only: they are
    /// dropped.
    Drop,
}

/// A port of a Service in one family.
#[derive(Debug, Clone)]
pub struct ServicePort {
    /// The family.
    pub family: Family,
    /// Where it is in [`Spec::ports`]: the first one of its name and protocol, which all of
    /// them lead to.
    pub index: usize,
    /// Where its cluster IPs lead to.
    pub internal: To,
    /// Its other frontends, from pods and from this node.
    pub external: To,
    /// Its other frontends, from outside.
    pub outside: To,
    /// The serving endpoints, if conntrack is to be kept clean of others.
    pub tracked: Option<Arc<BTreeSet<Endpoint>>>,
}

/// What a Service is to be, but for the endpoints of its ports.
#[derive(Debug)]
pub struct Service {
    /// What it says itself.
    pub spec: Arc<Spec>,
    /// Its ports, by family and index in ascending order. It has none if another proxy
    /// serves it.
    pub ports: Vec<ServicePort>,
    /// Its endpoints of this node.
    pub hairpin: BTreeSet<IpAddr>,
    /// The endpoints of its ports of TCP in ascending order, whatever is said of them: a connection
    /// may last longer than its endpoint is used.
    pub tcp_endpoints: Box<[Endpoint]>,
    /// How many ready endpoints it has on this node, counted by address, in its first family.
    pub local_endpoints: usize,
}

/// A Service that has just been planned.
#[derive(Debug)]
pub struct Planned {
    /// What is kept of it.
    pub service: Service,
    /// The endpoints that each of its ports sends new flows to, as far as a frontend needs
    /// them.
    pub backends: Vec<Choice>,
    /// The frontends that it claims, each with the place of its port in [`Service::ports`].
    pub claims: BTreeMap<(Tracked, Claimant), usize>,
}

impl Planned {
    /// What is to become of a Service. None if it has no frontends.
    pub fn of(
        name: &Arc<ServiceName>,
        known: &Known,
        surroundings: &Surroundings,
        reserved: &Reserved,
    ) -> Option<Self> {
        let spec = known.spec.clone()?;
        let mut planned = Self {
            service: Service {
                spec: spec.clone(),
                ports: Vec::new(),
                hairpin: BTreeSet::new(),
                tcp_endpoints: Box::default(),
                local_endpoints: 0,
            },
            backends: Vec::new(),
            claims: BTreeMap::new(),
        };
        if spec.not_ours {
            return Some(planned);
        }
        let first = spec.first_of_each_name();
        let slices = SlicePorts::of(known.slices());
        let mut ready = BTreeSet::new();
        let mut tcp_endpoints: Vec<Endpoint> = Vec::new();
        for family in spec.families() {
            let mut places: Vec<usize> = Vec::with_capacity(spec.ports.len());
            for (index, (port, first)) in spec.ports.iter().zip(&first).enumerate() {
                let place = places.get(*first).copied().unwrap_or_else(|| {
                    let all = slices.candidates(family, &port.name, port.protocol);
                    planned.note_local(&all, family, surroundings, &mut ready);
                    if port.protocol == TCP {
                        tcp_endpoints.extend(all.iter().map(|(endpoint, _)| *endpoint));
                    }
                    planned.add_port(family, index, port, &all, &surroundings.own.zone)
                });
                places.push(place);
                for (at, class) in frontends(&spec, family, port) {
                    if !reserved.has(&at, class) {
                        let claimant = claimant(&spec, class, name);
                        // Of two ports with one number, which no API server lets through,
                        // the first counts.
                        planned.claims.entry((at, claimant)).or_insert(place);
                    }
                }
            }
        }
        planned.service.local_endpoints = ready.len();
        tcp_endpoints.sort_unstable();
        tcp_endpoints.dedup();
        planned.service.tcp_endpoints = tcp_endpoints.into();
        Some(planned)
    }

    /// Writes down which endpoints of a port are on this node. An address of a pod of this
    /// node is here whatever node its slice names, which may name none: it was not made by
    /// Kubernetes then. Only what the slice says counts for traffic policies.
    fn note_local(
        &mut self,
        all: &Candidates<'_>,
        family: Family,
        surroundings: &Surroundings,
        ready: &mut BTreeSet<IpAddr>,
    ) {
        let service = &mut self.service;
        for (_, entry) in all {
            let is_here = entry.local || surroundings.is_own_pod(entry.address);
            if is_here && (entry.ready || entry.serving) {
                service.hairpin.insert(entry.address);
            }
            if entry.local && entry.ready && service.spec.first_family() == Some(family) {
                ready.insert(entry.address);
            }
        }
    }

    /// Decides by the traffic policies, in a family: where the Service is not reached from
    /// outside in it, there is no policy for that. Returns the place of the port.
    fn add_port(
        &mut self,
        family: Family,
        index: usize,
        port: &Port,
        all: &Candidates<'_>,
        zone: &str,
    ) -> usize {
        let Service { spec, ports, .. } = &mut self.service;
        let mut choice = choose(all, zone);
        let by_policy = |is_local: bool| match (choice.cluster.is_empty(), is_local) {
            (true, _) => To::Reject,
            (false, false) => To::Backends(Scope::Cluster),
            (false, true) if choice.local.is_empty() => To::Drop,
            (false, true) => To::Backends(Scope::Local),
        };
        // One that is only published as ready gets flows, and so has to keep them.
        let serves = |entry: &Entry| entry.serving || entry.ready;
        let serving = all.iter().filter(|(_, entry)| serves(entry));
        let serving = serving.map(|(endpoint, _)| *endpoint);
        ports.push(ServicePort {
            family,
            index,
            internal: by_policy(spec.internal_local),
            external: by_policy(false),
            outside: by_policy(spec.external_local && spec.is_external(family)),
            tracked: (port.protocol == UDP).then(|| Arc::new(serving.collect())),
        });
        let needed = spec.scopes(family);
        for scope in SCOPES.into_iter().filter(|scope| !needed.get(*scope)) {
            choice.get_mut(scope).clear();
        }
        self.backends.push(choice);
        ports.len() - 1
    }
}

/// How many Service ports have a traffic policy `Local` and endpoints on other nodes
/// only, counted once for each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WithoutLocal {
    /// By `internalTrafficPolicy`.
    pub internal: u32,
    /// By `externalTrafficPolicy`.
    pub external: u32,
}

impl WithoutLocal {
    /// A Service is this where it was that.
    pub fn exchange(&mut self, old: Option<&Service>, new: Option<&Service>) {
        for port in new.into_iter().flat_map(|new| &new.ports) {
            self.internal += u32::from(port.internal == To::Drop);
            self.external += u32::from(port.outside == To::Drop);
        }
        for port in old.into_iter().flat_map(|old| &old.ports) {
            self.internal -= u32::from(port.internal == To::Drop);
            self.external -= u32::from(port.outside == To::Drop);
        }
    }
}
