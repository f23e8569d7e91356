//! What the sets and maps of table `tweed-services` should hold.
//!
//! [`Table`] takes each [`Change`] of the model, and keeps [`Desired`] with what changes in
//! it: the numbers and groups of Service ports ([`ports`]), the slots of groups ([`groups`]),
//! the numbers of limits ([`limits`]), and the timeouts that the rules have chains for
//! ([`timeouts`]). Numbers and slots of an earlier run are taken over by the first plan
//! ([`known_numbers`], [`known_slots`]). Endpoints are kept here alone, as slots.

pub mod desired;
mod groups;
mod known_numbers;
mod known_slots;
mod limits;
pub mod part;
mod ports;
mod scope;
pub mod timeouts;

use std::collections::BTreeMap;
use std::sync::Arc;

use tweed_component::Step;

use super::model::choice::Choice;
use super::model::served::Served;
use super::model::service::ServicePort;
use super::model::value::{ServiceName, Tracked};
use super::model::{Change, Model, PortChange};
use crate::tables::{put, replace};
use desired::{Delta, Desired};
use limits::Limits;
use ports::{PlannedPort, Ports};

pub use known_numbers::KnownNumbers;
pub use known_slots::KnownSlots;

/// What should be, with the change that led to it.
#[derive(Debug, Default)]
pub struct Tables {
    desired: Desired,
    /// What has changed; not written down while everything is new.
    delta: Option<Delta>,
}

/// What the kernel should hold of all Services.
#[derive(Debug, Default)]
pub struct Table {
    tables: Tables,
    /// The numbers and groups of all Service ports.
    pub ports: Ports,
    limits: Limits,
    /// The ports of each Service, at the places of [`Service::ports`].
    ///
    /// [`Service::ports`]: super::model::service::Service::ports
    planned: BTreeMap<Arc<ServiceName>, Vec<Option<PlannedPort>>>,
    /// Services with more endpoints than a group can have: how many are used.
    pub too_many: BTreeMap<Arc<ServiceName>, usize>,
    /// Services whose affinity has another timeout than they say: the two, in seconds.
    pub other_timeouts: BTreeMap<Arc<ServiceName>, (u32, u32)>,
}

impl Table {
    /// What the kernel should hold.
    pub fn desired(&self) -> &Desired {
        &self.tables.desired
    }

    /// The first plan takes these numbers over.
    pub fn take_over(&mut self, known: KnownNumbers) {
        self.limits.take_over(&known);
        self.ports.take_over(known);
    }

    /// A plan begins, the `first` one or another: what was given back in the last one may be
    /// given out again.
    pub fn begin(&mut self, first: bool) {
        self.ports.commit();
        self.limits.commit();
        self.tables.delta = (!first).then(Delta::default);
    }

    /// A plan has ended. What has changed by it; the first one is all new.
    pub fn end(&mut self) -> Step<Delta> {
        match self.tables.delta.take() {
            None => {
                self.ports.commit_known();
                self.limits.commit_known();
                Step::Full
            }
            Some(delta) if delta.is_empty() => Step::Unchanged,
            Some(delta) => Step::Delta(Box::new(delta)),
        }
    }

    /// The surroundings have changed.
    pub fn set_surroundings(&mut self, model: &Model) {
        let (tables, surroundings) = (&mut self.tables, &model.surroundings);
        replace!(tables, pod_networks, surroundings.pod_networks);
        replace!(tables, local_cidrs, surroundings.local_cidrs());
        replace!(tables, node_port_networks, model.node_port_networks);
        let exceptions = model.node_port_exceptions().collect();
        replace!(tables, node_port_exceptions, exceptions);
        self.limits.set_own(tables, surroundings);
    }

    /// The networks of cluster IPs have changed, or what in them is somebody else's.
    pub fn set_networks(&mut self, model: &Model) {
        let tables = &mut self.tables;
        replace!(tables, service_networks, model.networks.networks);
        let cluster_ips = model.cluster_ips().collect();
        replace!(tables, cluster_ips, cluster_ips);
    }

    /// A Service has changed.
    pub fn update(&mut self, model: &Model, change: Change) {
        let mut old_limits = Vec::new();
        let mut ports = self.planned.remove(&change.name).unwrap_or_default();
        for PortChange {
            place,
            old,
            backends,
        } in change.ports
        {
            old_limits.extend(old.as_ref().and_then(|old| old.sources()).cloned());
            if place >= ports.len() {
                ports.reserve_exact(place + 1 - ports.len());
                ports.resize_with(place + 1, || None);
            }
            let planned = ports[place].take();
            let new = model.port(&change.name, place).zip(backends);
            if let Some(sources) = new.as_ref().and_then(|(new, _)| new.sources()) {
                let is_open = model.surroundings.is_among(sources);
                self.limits.acquire(&mut self.tables, sources, is_open);
            }
            ports[place] = self.plan_port(planned, new);
        }
        self.note(model, &change.name, &ports);
        if ports.iter().any(Option::is_some) {
            self.planned.insert(change.name, ports);
        }
        for at in change.frontends {
            self.write(at, model.frontend(at));
        }
        for sources in &old_limits {
            self.limits.release(&mut self.tables, sources);
        }
        let tables = &mut self.tables;
        macro_rules! put_each {
            ($($field:ident),+) => {
                $(for (key, is) in change.$field {
                    put!(tables, $field, key, is.then_some(()));
                })+
            };
        }
        put_each!(cluster_ips, foreign, node_port_exceptions);
        put_each!(hairpin, untracked, tcp_endpoints);
        for port in change.health_checks {
            put!(tables, health_checks, port, model.health_check(port));
        }
    }

    /// Plans a port that has these endpoints, or removes it. It gets other numbers if those that
    /// it has do not fit.
    fn plan_port(
        &mut self,
        mut old: Option<PlannedPort>,
        new: Option<(&ServicePort, Choice)>,
    ) -> Option<PlannedPort> {
        let fits =
            |port: &mut PlannedPort| new.as_ref().is_some_and(|(new, _)| port.fits(&new.spec));
        let kept = old.take_if(fits);
        if let Some(old) = old {
            self.ports.close(&mut self.tables, old);
        }
        let (new, backends) = new?;
        let mut port = kept.unwrap_or_else(|| self.ports.open(new));
        (self.ports).plan(&mut self.tables, &mut port, &new.spec, backends);
        Some(port)
    }

    /// Writes down what of a Service cannot be as it says.
    fn note(&mut self, model: &Model, name: &Arc<ServiceName>, ports: &[Option<PlannedPort>]) {
        let used = ports.iter().flatten().filter_map(|port| port.used).min();
        let timeouts = ports.iter().enumerate().filter_map(|(place, port)| {
            let wanted = model.port(name, place)?.spec.affinity?;
            Some((wanted, port.as_ref()?.timeout?))
        });
        let other = timeouts.max().filter(|(wanted, given)| wanted != given);
        set(&mut self.too_many, name, used);
        set(&mut self.other_timeouts, name, other);
    }

    /// Makes the tables hold what a frontend is, or nothing.
    fn write(&mut self, at: Tracked, served: Option<Served<'_>>) {
        let target = |is_outside| {
            let served = served?;
            let ports = self.planned.get(&served.claimant.service)?;
            let port = ports.get(served.place)?.as_ref()?;
            Some(port.target(&self.tables, served.to(is_outside)))
        };
        let (near, far) = (target(false), target(true));
        let outside = far.filter(|_| far != near);
        let masquerade = served.and_then(|one| one.masquerade());
        let limit = served.and_then(|one| self.limits.number(one.sources()?));
        let tables = &mut self.tables;
        let tracked = served.and_then(|one| one.port.tracked.clone());
        put!(tables, tracked, at, tracked);
        match at {
            Tracked::Address(key) => {
                put!(tables, addresses.targets, key, near);
                put!(tables, addresses.outside, key, outside);
                put!(tables, addresses.masquerade, key, masquerade);
                put!(tables, limits, key, limit);
            }
            Tracked::NodePort(key) => {
                put!(tables, node_ports.targets, key, near);
                put!(tables, node_ports.outside, key, outside);
                put!(tables, node_ports.masquerade, key, masquerade);
            }
        }
    }
}

/// Keeps a value of a Service, or none.
fn set<V>(values: &mut BTreeMap<Arc<ServiceName>, V>, name: &Arc<ServiceName>, value: Option<V>) {
    match value {
        Some(value) => drop(values.insert(name.clone(), value)),
        None => drop(values.remove(name)),
    }
}
