//! Ports of Services that have changed and wait for their turn.
//!
//! One plan takes up ports of few endpoints together, or one; where more have changed, those of
//! the Services with the least to do come first, and the rest is for the next plans. So nobody
//! waits for a Service that has very many ports and endpoints. What always holds:
//! - of two plans at least one takes up a port, until none is left. A port that is more than a
//!   plan takes up waits for every second one: what comes while it is planned and written waits
//!   for it, and not for the next such port too;
//! - a Service has all its ports before what else it says counts, and those that it has no more
//!   go last. So a frontend that moves to another port leads somewhere all the time.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tweed_core::family::Family;

use super::Model;
use super::choice::SlicePorts;
use super::registry::Touched;
use super::service::Service;
use super::spec::Spec;
use super::value::ServiceName;

/// The number of endpoints with which a plan has enough: it takes up no further port. With the
/// 6,400 endpoints of the last one that are used it is written within some 50 ms.
const ENDPOINTS: usize = 2_000;
/// What a port costs besides its endpoints, as that many of them.
const PORT: usize = 8;

/// A part of a Service that is planned by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A port in a family, one that has groups.
    Port(Family, usize),
    /// What counts besides ports.
    Rest,
    /// A port that it has no more, by its place in [`Service::ports`].
    Gone(usize),
}

/// What waits of each Service, in the order in which it came.
pub type Units = VecDeque<Unit>;

/// The Services of which something waits.
#[derive(Debug)]
pub struct Queue {
    waiting: BTreeMap<Arc<ServiceName>, (usize, Units)>,
    /// The same, each after those that cost less.
    by_cost: BTreeSet<(usize, Arc<ServiceName>)>,
    /// The number of endpoints with which a plan has enough.
    pub limit: usize,
    /// Whether this plan has taken up a port of more than that, and whether it may not, since the
    /// one before it has.
    exceeds: [bool; 2],
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            by_cost: BTreeSet::new(),
            limit: ENDPOINTS,
            exceeds: [false; 2],
        }
    }
}

impl Queue {
    /// How many Services wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a Service waits.
    pub fn has(&self, name: &ServiceName) -> bool {
        self.waiting.contains_key(name)
    }

    /// A plan begins, of what the last one has left waiting first of all.
    pub fn begin(&mut self) {
        let rests = self.exceeds[0] && !self.waiting.is_empty();
        self.exceeds = [false, rests];
    }

    /// The Service with the least to do, of those that this plan may take up.
    pub fn pop(&mut self) -> Option<(Arc<ServiceName>, Units)> {
        let exceeds = |(cost, name): &(usize, Arc<ServiceName>)| {
            let units = self.waiting.get(name).map_or(1, |(_, units)| units.len());
            cost / units.max(1) > self.limit
        };
        let may = |one: &&(usize, Arc<ServiceName>)| !self.exceeds[1] || !exceeds(one);
        let one = self.by_cost.iter().find(may)?.clone();
        self.exceeds[0] |= exceeds(&one);
        self.by_cost.remove(&one);
        let (_, units) = self.waiting.remove(&one.1)?;
        Some((one.1, units))
    }

    fn take(&mut self, name: &Arc<ServiceName>) -> Units {
        let Some((cost, units)) = self.waiting.remove(name) else {
            return Units::new();
        };
        self.by_cost.remove(&(cost, name.clone()));
        units
    }

    fn put(&mut self, name: Arc<ServiceName>, cost: usize, units: Units) {
        self.by_cost.insert((cost, name.clone()));
        self.waiting.insert(name, (cost, units));
    }
}

impl Model {
    /// What of a Service is to be planned anew, after what waits already.
    pub fn units(&mut self, name: &Arc<ServiceName>, touched: Touched) -> Units {
        let waiting = self.queue.take(name);
        let spec = self
            .registry
            .get(name)
            .and_then(|known| known.spec.as_ref());
        let served = spec.filter(|spec| !spec.not_ours);
        let (mut units, ports, rest) = match touched {
            Touched::Whole => {
                let all = served.iter().flat_map(|spec| spec.groups());
                (Units::new(), all.collect(), Some(Unit::Rest))
            }
            Touched::Ports(ports) => (waiting, ports, None),
        };
        let known: HashSet<Unit> = units.iter().copied().collect();
        for family in served.iter().flat_map(|spec| spec.families()) {
            let of_family = ports.iter().map(|index| Unit::Port(family, *index));
            units.extend(of_family.filter(|port| !known.contains(port)));
        }
        units.extend(rest);
        units
    }

    /// Has what is left of a Service wait for its turn.
    pub fn put_back(&mut self, name: Arc<ServiceName>, units: Units) {
        if units.is_empty() {
            return;
        }
        let known = self.registry.get(&name).map_or(0, |known| known.size());
        let service = self.services.get(&name);
        let ports = service.iter().flat_map(|one| one.ports.iter().flatten());
        let planned = ports.map(|port| port.size).max();
        let cost = units.len() * (PORT + known.max(planned.unwrap_or_default()));
        self.queue.put(name, cost, units);
    }
}

/// Takes what has its turn from what waits of a Service, which is planned as `service`: each port
/// with the place that it has or gets. `left` is how many more endpoints the plan takes up.
pub fn next_batch(
    units: &mut Units,
    service: &Service,
    spec: Option<&Spec>,
    slices: &SlicePorts<'_>,
    left: &mut usize,
) -> Vec<(Unit, usize)> {
    let size = |place: usize| {
        let port = service.ports.get(place).and_then(Option::as_ref);
        port.map_or(0, |port| port.size)
    };
    let places = service.places();
    let is_free = |place: &usize| service.ports.get(*place).is_none_or(Option::is_none);
    let mut free = (0..).filter(is_free);
    let mut turn = Vec::new();
    while *left > 0 || units.front() == Some(&Unit::Rest) {
        let Some(unit) = units.pop_front() else { break };
        let (place, cost) = match unit {
            Unit::Rest => {
                units.extend(gone(&places, spec).into_iter().map(Unit::Gone));
                (0, 0)
            }
            Unit::Gone(place) => (place, PORT + size(place)),
            Unit::Port(family, index) => {
                let port = spec.and_then(|spec| spec.ports.get(index));
                let key = port.map(|port| (family, &*port.name, port.protocol));
                let known = key.and_then(|key| places.get(&key).copied());
                let now = key.map_or(0, |(_, name, protocol)| slices.size(name, protocol));
                let cost = PORT + now.max(known.map_or(0, size));
                (known.or_else(|| free.next()).unwrap_or_default(), cost)
            }
        };
        *left = left.saturating_sub(cost);
        turn.push((unit, place));
    }
    turn
}

/// The places of ports that are none of a Service that says this.
fn gone(places: &HashMap<(Family, &str, u8), usize>, spec: Option<&Spec>) -> BTreeSet<usize> {
    let served = spec.filter(|spec| !spec.not_ours);
    let ports = served.iter().flat_map(|spec| &spec.ports);
    let names: HashSet<_> = ports.map(|port| (&*port.name, port.protocol)).collect();
    let families: Vec<Family> = served.iter().flat_map(|spec| spec.families()).collect();
    let is_gone = |(family, name, protocol): &(Family, &str, u8)| {
        !names.contains(&(*name, *protocol)) || !families.contains(family)
    };
    let gone = places.iter().filter(|(key, _)| is_gone(key));
    gone.map(|(_, place)| *place).collect()
}
