//! What the ports of a Service are to be: each a total function of the Service, its slices and
//! what counts besides. It knows nothing of how that is written down.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;

use super::choice::{Candidates, Choice, choose};
use super::claims::Claimant;
use super::frontends::{claimant, frontends_at};
use super::scope::{SCOPES, Scope};
use super::slice::Entry;
use super::spec::{Sources, Spec};
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

/// A port of a Service in one family, as it was last planned: what is decided of it does not
/// depend on the other ports, which are planned by themselves.
#[derive(Debug, Clone)]
pub struct ServicePort {
    /// What its Service said then.
    pub spec: Arc<Spec>,
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
    /// The addresses of its endpoints of this node, in ascending order.
    pub hairpin: Box<[IpAddr]>,
    /// Those of which its slices say so and that are ready.
    pub ready: Box<[IpAddr]>,
    /// Its endpoints, if it is one of TCP, in ascending order, whatever is said of them: a
    /// connection may last longer than its endpoint is used.
    pub tcp_endpoints: Box<[Endpoint]>,
    /// How many endpoints it has, used or not.
    pub size: usize,
    /// Claims that it still has though others of its Service's ports are to have them, which
    /// wait for their turn.
    pub held: Box<[(Tracked, Claimant)]>,
}

impl ServicePort {
    /// What is to become of a port, and the endpoints that it sends new flows to, as far as a
    /// frontend needs them.
    pub fn of(
        spec: &Arc<Spec>,
        family: Family,
        index: usize,
        all: &Candidates<'_>,
        surroundings: &Surroundings,
    ) -> (Self, Choice) {
        let mut choice = choose(all, &surroundings.own.zone);
        // Where the Service is not reached from outside in a family, there is no policy for that.
        let by_policy = |is_local: bool| match (choice.cluster.is_empty(), is_local) {
            (true, _) => To::Reject,
            (false, false) => To::Backends(Scope::Cluster),
            (false, true) if choice.local.is_empty() => To::Drop,
            (false, true) => To::Backends(Scope::Local),
        };
        let (internal, external) = (by_policy(spec.internal_local), by_policy(false));
        let outside = by_policy(spec.external_local && spec.is_external(family));
        let needed = spec.scopes(family);
        for scope in SCOPES.into_iter().filter(|scope| !needed.get(*scope)) {
            choice.get_mut(scope).clear();
        }
        let protocol = spec.ports.get(index).map(|port| port.protocol);
        // One that is only published as ready gets flows, and so has to keep them.
        let serves = |entry: &Entry| entry.serving || entry.ready;
        let serving_entries = all.iter().filter(|(_, entry)| serves(entry));
        let serving = serving_entries.map(|(endpoint, _)| *endpoint);
        // An address of a pod of this node is here whatever node its slice names, which may name
        // none: it was not made by Kubernetes then. Only what the slice says counts for traffic
        // policies.
        let is_here = |entry: &Entry| entry.local || surroundings.is_own_pod(entry.address);
        let addresses = |is_one: &dyn Fn(&Entry) -> bool| {
            let some = all.iter().filter(|(_, entry)| is_one(entry));
            let mut addresses: Vec<IpAddr> = some.map(|(_, entry)| entry.address).collect();
            addresses.dedup();
            addresses.into_boxed_slice()
        };
        let tcp_endpoints = all.iter().filter(|_| protocol == Some(TCP));
        let port = Self {
            spec: spec.clone(),
            family,
            index,
            internal,
            external,
            outside,
            tracked: (protocol == Some(UDP)).then(|| Arc::new(serving.collect())),
            hairpin: addresses(&|entry| is_here(entry) && serves(entry)),
            ready: addresses(&|entry| entry.local && entry.ready),
            tcp_endpoints: tcp_endpoints.map(|(endpoint, _)| *endpoint).collect(),
            size: all.len(),
            held: Box::default(),
        };
        (port, choice)
    }

    /// What tells it from the other ports of its Service: its family, name and protocol.
    pub fn key(&self) -> Option<(Family, &str, u8)> {
        let port = self.spec.ports.get(self.index)?;
        Some((self.family, &*port.name, port.protocol))
    }

    /// The claims of its Service to the frontends that lead to it.
    pub fn claims(&self, service: &Arc<ServiceName>) -> impl Iterator<Item = (Tracked, Claimant)> {
        let all = frontends_at(&self.spec, self.family, self.index);
        let own = all.map(|(at, class)| (at, claimant(&self.spec, class, service)));
        own.chain(self.held.iter().cloned())
    }

    /// Who may use its load balancers' addresses and external IPs, if not everybody.
    pub fn sources(&self) -> Option<&Sources> {
        let mut limits = self.spec.limits.iter();
        limits.find(|(family, _)| *family == self.family)
    }
}

/// What a Service is, as it was last planned.
#[derive(Debug, Default)]
pub struct Service {
    /// What counts besides its ports; none before it was planned, and when it is gone.
    pub spec: Option<Arc<Spec>>,
    /// Its ports. One keeps its place for as long as there is one of its name, protocol and
    /// family. There are none if another proxy serves the Service.
    pub ports: Vec<Option<ServicePort>>,
}

impl Service {
    /// The places of its ports.
    pub fn places(&self) -> HashMap<(Family, &str, u8), usize> {
        let ports = self.ports.iter().enumerate();
        let by_key = ports.filter_map(|(place, port)| Some((port.as_ref()?.key()?, place)));
        by_key.collect()
    }

    /// Puts a port at a place. What was there.
    pub fn put(&mut self, place: usize, port: ServicePort) -> Option<ServicePort> {
        if place >= self.ports.len() {
            let all = port.spec.groups().count() * port.spec.families().count();
            let all = all.max(place + 1);
            self.ports.reserve_exact(all - self.ports.len());
            self.ports.resize_with(place + 1, || None);
        }
        self.ports[place].replace(port)
    }

    /// Takes a port away.
    pub fn take(&mut self, place: usize) -> Option<ServicePort> {
        let port = self.ports.get_mut(place)?.take();
        while let Some(None) = self.ports.last() {
            self.ports.pop();
        }
        port
    }

    /// How many ready endpoints it has on this node, counted by address, in its first family.
    pub fn local_endpoints(&self) -> usize {
        let first = self.spec.as_ref().and_then(|spec| spec.first_family());
        let all = self.ports.iter().flatten();
        let ports = all.filter(|port| Some(port.family) == first);
        let ready: BTreeSet<IpAddr> = ports.flat_map(|port| port.ready.iter().copied()).collect();
        ready.len()
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
    /// A port is this where it was that.
    pub fn exchange(&mut self, old: Option<&ServicePort>, new: Option<&ServicePort>) {
        if let Some(port) = new {
            self.internal += u32::from(port.internal == To::Drop);
            self.external += u32::from(port.outside == To::Drop);
        }
        if let Some(port) = old {
            self.internal -= u32::from(port.internal == To::Drop);
            self.external -= u32::from(port.outside == To::Drop);
        }
    }
}
