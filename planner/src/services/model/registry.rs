//! What is known of Services: each with its EndpointSlices, and which of them have
//! changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tweed_component::watched::{Change, Watched};
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::service::Service;
use tweed_core::object::{Event, Object, ObjectKey};

use super::options::Options;
use super::slice::Slice;
use super::spec::{Port, Spec};
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

    /// Where a slice is in their order, or belongs.
    fn place(&self, name: &str) -> Result<usize, usize> {
        let by_name = |(one, _): &(Box<str>, Slice)| (**one).cmp(name);
        self.slices.binary_search_by(by_name)
    }

    /// How many endpoints its slices have.
    pub fn size(&self) -> usize {
        self.slices().map(|slice| slice.endpoints.len()).sum()
    }
}

/// What may differ of a Service from when that was last asked.
#[derive(Debug)]
pub enum Touched {
    /// Anything.
    Whole,
    /// The endpoints of these ports, each the first of its name and protocol.
    Ports(BTreeSet<usize>),
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
    touched: BTreeMap<Arc<ServiceName>, Touched>,
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
            touched: BTreeMap::new(),
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
                let unlisted = self.owners.keys().filter(|key| !all.contains_key(key));
                let gone: Vec<_> = unlisted.cloned().collect();
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
    pub fn take_touched(&mut self) -> BTreeMap<Arc<ServiceName>, Touched> {
        std::mem::take(&mut self.touched)
    }

    /// Something has changed that may concern every Service.
    pub fn touch_all(&mut self) {
        let names = self.known.keys().cloned();
        self.touched
            .extend(names.map(|name| (name, Touched::Whole)));
    }

    /// Something has changed that concerns these Services.
    pub fn touch_where(&mut self, concerns: impl Fn(&Spec) -> bool) {
        let concerned = self.services().filter(|(_, spec)| concerns(spec));
        let names: Vec<_> = concerned.map(|(name, _)| name.clone()).collect();
        let whole = |name| (name, Touched::Whole);
        self.touched.extend(names.into_iter().map(whole));
    }

    fn set_service(&mut self, name: Arc<ServiceName>, spec: Option<Arc<Spec>>) -> bool {
        let known = self.known.get(&name).and_then(|known| known.spec.as_ref());
        if known == spec.as_ref() {
            return false;
        }
        self.with_frontends += usize::from(spec.is_some());
        self.with_frontends -= usize::from(known.is_some());
        let (name, known) = entry(&mut self.known, name);
        known.spec = spec;
        self.forget_if_empty(&name);
        self.touched.insert(name, Touched::Whole);
        true
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
            if let Some(known) = self.known.get_mut(&owner)
                && let Ok(index) = known.place(&key.name)
            {
                let (_, old) = known.slices.remove(index);
                touch(&mut self.touched, &owner, known.spec.as_deref(), &old);
            }
            self.owners.remove(&key);
            self.forget_if_empty(&owner);
            changed = true;
        }
        let Some((owner, slice)) = slice else {
            return changed;
        };
        let (owner, known) = entry(&mut self.known, owner);
        let place = known.place(&key.name);
        let old = place.ok().map(|index| &known.slices[index].1);
        if old == Some(&slice) {
            return changed;
        }
        for one in old.into_iter().chain([&slice]) {
            touch(&mut self.touched, &owner, known.spec.as_deref(), one);
        }
        match place {
            Ok(index) => known.slices[index].1 = slice,
            Err(index) => (known.slices).insert(index, (key.name.as_str().into(), slice)),
        }
        self.owners.insert(key, owner);
        true
    }
}

/// A Service, made if it is not known, with its shared name.
fn entry(
    known: &mut BTreeMap<Arc<ServiceName>, Known>,
    name: Arc<ServiceName>,
) -> (Arc<ServiceName>, &mut Known) {
    let shared = known.get_key_value(&name).map(|(name, _)| name.clone());
    let name = shared.unwrap_or(name);
    (name.clone(), known.entry(name).or_default())
}

/// Notes that the endpoints have changed of the ports that a slice of a Service has.
fn touch(
    touched: &mut BTreeMap<Arc<ServiceName>, Touched>,
    name: &Arc<ServiceName>,
    spec: Option<&Spec>,
    slice: &Slice,
) {
    let Some(spec) = spec else { return };
    let ports = slice.ports.iter();
    let names: HashSet<_> = ports.map(|port| (&*port.name, port.protocol)).collect();
    let has = |port: &Port| names.contains(&(&*port.name, port.protocol));
    let groups = spec.groups();
    let first = groups.filter(|index| spec.ports.get(*index).is_some_and(has));
    match touched.get_mut(name) {
        Some(Touched::Whole) => {}
        Some(Touched::Ports(ports)) => ports.extend(first),
        None => drop(touched.insert(name.clone(), Touched::Ports(first.collect()))),
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
                if services {
                    assert!(registry.apply_services(Event::Delete(service.key())))
                } else {
                    assert!(registry.apply_slices(Event::Delete(slice.key())))
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
