//! What is known of Services: each with its EndpointSlices, and which of them have
//! changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tweed_component::watched::{Change, Watched};
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::service::Service;
use tweed_core::object::{Event, Object, ObjectKey};

use super::options::Options;
use super::slice::Slice;
use super::spec::Spec;
use super::value::ServiceName;

/// A Service and its slices, which may be there before it and after it.
#[derive(Debug, Default)]
pub struct Known {
    /// The Service, if it has frontends.
    pub spec: Option<Arc<Spec>>,
    /// Its slices, by name in ascending order.
    slices: Vec<(Box<str>, Slice)>,
}

impl Known {
    /// Its slices.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.slices.iter().map(|(_, slice)| slice)
    }
}

/// All Services and slices.
#[derive(Debug)]
pub struct Registry {
    options: Options,
    known: BTreeMap<Arc<ServiceName>, Known>,
    /// How many of them have frontends.
    with_frontends: usize,
    /// The Service that each slice belongs to.
    owners: HashMap<ObjectKey, Arc<ServiceName>>,
    services: Watched<Arc<ServiceName>, Arc<Spec>>,
    slices: Watched<ObjectKey, (Arc<ServiceName>, Slice)>,
    touched: BTreeSet<Arc<ServiceName>>,
}

fn name(key: ObjectKey) -> Arc<ServiceName> {
    Arc::new(ServiceName {
        namespace: key.namespace.into(),
        name: key.name.into(),
    })
}

impl Registry {
    /// Nothing is known yet.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            known: BTreeMap::new(),
            with_frontends: 0,
            owners: HashMap::new(),
            services: Watched::default(),
            slices: Watched::default(),
            touched: BTreeSet::new(),
        }
    }

    /// Takes an event of the watch of Services in. True if anything changed.
    pub fn apply_services(&mut self, event: Event<Service>) -> bool {
        let options = &self.options;
        let read = |service: Service| Spec::read(&service, options).map(Arc::new);
        match self.services.apply(event, name, read) {
            Change::Nothing => false,
            Change::Set(name, spec) => self.set_service(name, spec),
            Change::Replace { mut all, is_first } => {
                let mut changed = is_first;
                let names: Vec<_> = self.known.keys().cloned().collect();
                for name in names {
                    let spec = all.remove(&name);
                    changed |= self.set_service(name, spec);
                }
                for (name, spec) in all {
                    changed |= self.set_service(name, Some(spec));
                }
                changed
            }
        }
    }

    /// Takes an event of the watch of EndpointSlices in. True if anything changed.
    pub fn apply_slices(&mut self, event: Event<EndpointSlice>) -> bool {
        let node = &self.options.node_name;
        let read = |slice: EndpointSlice| {
            let ours = !slice.service.is_empty() && !slice.not_ours;
            let owner = || {
                name(ObjectKey {
                    namespace: slice.namespace.clone(),
                    name: slice.service.clone(),
                })
            };
            ours.then(|| (owner(), Slice::read(&slice, node)))
        };
        match self.slices.apply(event, |key| key, read) {
            Change::Nothing => false,
            Change::Set(key, slice) => self.set_slice(key, slice),
            Change::Replace { all, is_first } => {
                let mut changed = is_first;
                let gone = self.owners.keys().filter(|key| !all.contains_key(key));
                let gone: Vec<_> = gone.cloned().collect();
                for key in gone {
                    changed |= self.set_slice(key, None);
                }
                for (key, slice) in all {
                    changed |= self.set_slice(key, Some(slice));
                }
                changed
            }
        }
    }

    /// What is not known yet, in words.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> {
        let services = (!self.services.is_complete()).then_some(Service::KINDS);
        let slices = (!self.slices.is_complete()).then_some(EndpointSlice::KINDS);
        services.into_iter().chain(slices)
    }

    /// A Service or its slices.
    pub fn get(&self, name: &ServiceName) -> Option<&Known> {
        self.known.get(name)
    }

    /// All Services that have frontends, those of other proxies among them.
    pub fn services(&self) -> impl Iterator<Item = (&Arc<ServiceName>, &Arc<Spec>)> {
        let known = self.known.iter();
        known.filter_map(|(name, known)| Some((name, known.spec.as_ref()?)))
    }

    /// How many Services have frontends.
    pub fn len(&self) -> usize {
        self.with_frontends
    }

    /// The Services that may differ from when this was last asked.
    pub fn take_touched(&mut self) -> BTreeSet<Arc<ServiceName>> {
        std::mem::take(&mut self.touched)
    }

    /// Something has changed that may concern every Service.
    pub fn touch_all(&mut self) {
        self.touched.extend(self.known.keys().cloned());
    }

    /// Something has changed that concerns these Services.
    pub fn touch_where(&mut self, concerns: impl Fn(&Spec) -> bool) {
        let concerned = self.services().filter(|(_, spec)| concerns(spec));
        let names: Vec<_> = concerned.map(|(name, _)| name.clone()).collect();
        self.touched.extend(names);
    }

    fn set_service(&mut self, name: Arc<ServiceName>, spec: Option<Arc<Spec>>) -> bool {
        let known = self.known.get(&name).and_then(|known| known.spec.as_ref());
        if known == spec.as_ref() {
            return false;
        }
        self.with_frontends += usize::from(spec.is_some());
        self.with_frontends -= usize::from(known.is_some());
        let entry = self.entry(name);
        entry.1.spec = spec;
        let name = entry.0;
        self.forget_if_empty(&name);
        self.touched.insert(name);
        true
    }

    /// A Service, made if it is not known, with its shared name.
    fn entry(&mut self, name: Arc<ServiceName>) -> (Arc<ServiceName>, &mut Known) {
        let shared = self
            .known
            .get_key_value(&name)
            .map(|(name, _)| name.clone());
        let name = shared.unwrap_or(name);
        (name.clone(), self.known.entry(name).or_default())
    }

    fn forget_if_empty(&mut self, name: &ServiceName) {
        let empty = |known: &Known| known.spec.is_none() && known.slices.is_empty();
        if self.known.get(name).is_some_and(empty) {
            self.known.remove(name);
        }
    }

    fn set_slice(&mut self, key: ObjectKey, slice: Option<(Arc<ServiceName>, Slice)>) -> bool {
        let mut changed = false;
        let same =
            |owner: &&Arc<ServiceName>| slice.as_ref().is_some_and(|(name, _)| name == *owner);
        if let Some(owner) = self.owners.get(&key).filter(|owner| !same(owner)).cloned() {
            if let Some(known) = self.known.get_mut(&owner) {
                known.slices.retain(|(name, _)| **name != *key.name);
            }
            self.owners.remove(&key);
            self.forget_if_empty(&owner);
            self.touched.insert(owner);
            changed = true;
        }
        let Some((owner, slice)) = slice else {
            return changed;
        };
        let (owner, known) = self.entry(owner);
        match known
            .slices
            .binary_search_by(|(name, _)| (**name).cmp(&key.name))
        {
            Ok(index) if known.slices[index].1 == slice => return changed,
            Ok(index) => known.slices[index].1 = slice,
            Err(index) => known
                .slices
                .insert(index, (key.name.as_str().into(), slice)),
        }
        self.owners.insert(key, owner.clone());
        self.touched.insert(owner);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::tests::fixture::{both, list, options, service, slice};

    /// Names of Services and slices that come and go must not fill the memory.
    #[test]
    fn nothing_is_kept_of_what_is_gone_in_whatever_order_it_goes() {
        let (service, slice) = (service(&["10.96.0.1"]), slice("s", both()));
        for service_first in [true, false] {
            let mut registry = Registry::new(options());
            for event in list(std::slice::from_ref(&service)) {
                registry.apply_services(event);
            }
            for event in list(std::slice::from_ref(&slice)) {
                registry.apply_slices(event);
            }
            assert_eq!((registry.known.len(), registry.owners.len()), (1, 1));
            for services in [service_first, !service_first] {
                match services {
                    true => assert!(registry.apply_services(Event::Delete(service.key()))),
                    false => assert!(registry.apply_slices(Event::Delete(slice.key()))),
                }
            }
            assert_eq!((registry.known.len(), registry.owners.len()), (0, 0));
            assert_eq!(registry.len(), 0);
        }
    }

    #[test]
    fn what_changes_while_a_list_is_under_way_is_part_of_it() {
        let named = |name: &str| Service {
            name: name.to_owned(),
            ..service(&["10.96.0.1"])
        };
        let mut registry = Registry::new(options());
        for event in [
            Event::Init,
            Event::InitApply(named("goes")),
            Event::Apply(named("comes")),
            Event::Delete(named("goes").key()),
            Event::InitDone,
        ] {
            registry.apply_services(event);
        }
        let names: Vec<_> = registry.services().map(|(name, _)| &*name.name).collect();
        assert_eq!(names, ["comes"]);
    }
}
