//! The groups of one Service port in one family: which endpoints they have, and the
//! numbers of these where clients are to keep them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::model::choice::{Choice, is_used};
use super::super::model::frontends::frontends;
use super::super::model::service::{ServicePort, To};
use super::super::model::spec::Spec;
use super::Tables;
use super::desired::{
    AFFINITY_BLOCK, Endpoint, FIRST_AFFINITY, FIRST_GROUP, FIRST_PART, Number, PORT_DISTANCE,
    SCOPES, Scope, Target, endpoint_numbers,
};
use super::groups::{Groups, MAX_ENDPOINTS};
use super::known_numbers::KnownNumbers;
use super::timeouts::Timeouts;
use crate::numbers::Numbers;
use crate::tables::put;

/// A Service port in one family that has been planned.
#[derive(Debug)]
pub struct PlannedPort {
    /// The number of its first group; none if there was none left.
    base: Option<Number>,
    /// The numbers of its endpoints, if it has affinity.
    numbers: BTreeMap<Endpoint, Number>,
    /// The numbers that endpoints had in an earlier run, until it is planned.
    known: BTreeMap<Endpoint, Number>,
    /// The timeout in seconds, if it has affinity.
    pub timeout: Option<u32>,
    /// How many of its endpoints are used, if not all are.
    pub used: Option<usize>,
}

impl PlannedPort {
    /// Whether its numbers are those of a port with affinity.
    fn has_affinity(&self) -> bool {
        self.base.is_some_and(|base| base >= FIRST_AFFINITY)
    }

    /// Whether its numbers are those of a port of such a Service.
    pub fn fits(&self, spec: &Spec) -> bool {
        self.base.is_some() && self.has_affinity() == spec.affinity.is_some()
    }

    /// Where a frontend leads to by this port. One without a number sends nothing on.
    pub fn target(&self, tables: &Tables, to: To) -> Target {
        let Some(base) = self.base else {
            return Target::Reject;
        };
        let group = match to {
            To::Backends(scope) => scope.group(base),
            To::Reject => return Target::Reject,
            To::Drop => return Target::Drop,
        };
        match (tables.desired.groups.get(&group), self.timeout) {
            (None, _) => Target::Reject,
            (Some(_), Some(_)) => Target::Affinity(group),
            (Some(shape), None) => Target::Group(group, *shape),
        }
    }
}

/// The numbers and groups of all Service ports.
#[derive(Debug)]
pub struct Ports {
    groups: Groups,
    /// The numbers of ports without affinity, divided by their distance.
    plain: Numbers,
    /// The numbers of blocks, from that of [`FIRST_AFFINITY`] on. The clients of a port that
    /// is closed are remembered by its block until their timeout, so it is the last one that
    /// another port gets.
    blocks: Numbers,
    timeouts: Timeouts,
    /// What the numbers meant in an earlier run, until all ports are planned.
    known: KnownNumbers,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            plain: Numbers::from(FIRST_GROUP / PORT_DISTANCE),
            blocks: Numbers::resting(FIRST_AFFINITY / AFFINITY_BLOCK, LAST_BLOCK),
            timeouts: Timeouts::default(),
            known: KnownNumbers::default(),
        }
    }
}

/// The last block that there is room for.
const LAST_BLOCK: Number = Number::MAX / AFFINITY_BLOCK;
/// How many endpoints a block has numbers for.
const ROOM: usize = (AFFINITY_BLOCK - PORT_DISTANCE) as usize;

impl Ports {
    /// There are numbers for so many ports without affinity.
    #[cfg(test)]
    pub fn leave(&mut self, count: Number) {
        self.plain = Numbers::from(FIRST_PART / PORT_DISTANCE - count);
    }

    /// A change has ended.
    pub fn commit(&mut self) {
        self.groups.commit();
        self.plain.commit();
        self.blocks.commit();
    }

    /// The ports that are opened from now on get the numbers that their frontends have,
    /// and no others of these. Their groups change from what they hold. Before the first
    /// plan.
    pub fn take_over(&mut self, mut known: KnownNumbers) {
        self.plain.reserve(known.plain());
        self.blocks.reserve(known.blocks());
        self.groups.take_over(std::mem::take(&mut known.slots));
        self.known = known;
    }

    /// All ports of the first plan are opened: other numbers of an earlier run are free.
    pub fn commit_known(&mut self) {
        self.known = KnownNumbers::default();
        self.groups.commit_known();
        self.plain.release_reserved();
        self.blocks.release_reserved();
    }

    /// A port that has no endpoints yet. One that should have affinity goes without when
    /// all blocks are in use, and one without affinity stays without endpoints when all
    /// other numbers are.
    pub fn open(&mut self, port: &ServicePort) -> PlannedPort {
        let spec = &port.spec;
        let affinity = spec.affinity.is_some();
        let known = self.take_known(spec, port, affinity);
        let block = || self.blocks.take_row(AFFINITY_BLOCK, Number::MAX);
        let base = known
            .or_else(|| affinity.then(block).flatten())
            .or_else(|| self.plain.take_row(PORT_DISTANCE, FIRST_PART - 1));
        PlannedPort {
            base,
            numbers: BTreeMap::new(),
            known: base.map_or_else(BTreeMap::new, |base| self.known.of_block(base)),
            timeout: None,
            used: None,
        }
    }

    /// The first number that the groups of a port had in an earlier run.
    fn take_known(&mut self, spec: &Spec, port: &ServicePort, affinity: bool) -> Option<Number> {
        let of = spec.ports.get(port.index)?;
        let own = frontends(spec, port.family, of).map(|(frontend, _)| frontend);
        let mut bases = self.known.bases(own, affinity);
        bases.find(|base| {
            if affinity {
                self.blocks.take_reserved(base / AFFINITY_BLOCK)
            } else {
                self.plain.take_reserved(base / PORT_DISTANCE)
            }
        })
    }

    /// Removes everything of a port.
    pub fn close(&mut self, tables: &mut Tables, mut port: PlannedPort) {
        let Some(base) = port.base else { return };
        for scope in SCOPES {
            self.fill(tables, &port, scope.group(base), scope, None, &[]);
        }
        drop_unused(tables, &mut port, &Choice::default());
        self.set_timeout(&mut port, None);
        if port.has_affinity() {
            self.blocks.give_back(base / AFFINITY_BLOCK)
        } else {
            self.plain.give_back(base / PORT_DISTANCE)
        }
    }

    /// Makes the groups of a port hold these endpoints.
    pub fn plan(
        &mut self,
        tables: &mut Tables,
        planned: &mut PlannedPort,
        spec: &Spec,
        mut backends: Choice,
    ) {
        planned.used = None;
        let Some(base) = planned.base else {
            planned.used = Some(0);
            return;
        };
        let affinity = spec.affinity.filter(|_| planned.has_affinity());
        let affinity = self.set_timeout(planned, affinity);
        let most_local = match affinity {
            Some(_) => ROOM - MAX_ENDPOINTS,
            None => MAX_ENDPOINTS,
        };
        for (scope, most) in [(Scope::Cluster, MAX_ENDPOINTS), (Scope::Local, most_local)] {
            let endpoints = backends.get_mut(scope);
            if endpoints.len() > most {
                endpoints.truncate(most);
                planned.used = Some(most);
            }
        }
        if affinity.is_some() {
            number(tables, planned, base, &backends);
        }
        for scope in SCOPES {
            let (group, endpoints) = (scope.group(base), backends.get(scope));
            self.fill(tables, planned, group, scope, affinity, endpoints);
        }
        drop_unused(tables, planned, &backends);
    }

    /// Sets the timeout of a port, and returns what there is in its place.
    fn set_timeout(&mut self, port: &mut PlannedPort, wanted: Option<u32>) -> Option<u32> {
        if let Some(old) = port.timeout.take() {
            self.timeouts.release(old);
        }
        port.timeout = wanted.map(|wanted| self.timeouts.acquire(wanted));
        port.timeout
    }

    /// Makes the group of a scope hold these endpoints.
    fn fill(
        &mut self,
        tables: &mut Tables,
        port: &PlannedPort,
        group: Number,
        scope: Scope,
        affinity: Option<u32>,
        endpoints: &[Endpoint],
    ) {
        let timeout = affinity.filter(|_| !endpoints.is_empty());
        put!(tables, affinities, group, timeout);
        let mut members: Vec<Number> = Vec::new();
        if timeout.is_some() {
            let numbers = endpoints.iter().filter_map(|one| port.numbers.get(one));
            members.extend(numbers);
            members.sort_unstable();
            self.groups.fill(tables, group, &members);
        } else {
            self.groups.fill(tables, group, endpoints);
        }
        for number in port.numbers.values() {
            let member = members.binary_search(number).ok().map(|_| ());
            match scope {
                Scope::Cluster => put!(tables, members.cluster, *number, member),
                Scope::Local => put!(tables, members.local, *number, member),
            }
        }
    }
}

/// Gives numbers of the port's block to the endpoints that have none. Those that become
/// free in this change, or had another meaning in an earlier run, are not given out in it,
/// unless it replaces so many endpoints that there are no others.
fn number(tables: &mut Tables, port: &mut PlannedPort, base: Number, choice: &Choice) {
    let mut known = std::mem::take(&mut port.known);
    if port.numbers.len() + known.len() + choice.cluster.len() + choice.local.len() > ROOM {
        drop_unused(tables, port, choice);
        known.retain(|endpoint, _| is_used(choice, endpoint));
    }
    let in_use = port.numbers.values().chain(known.values()).copied();
    let taken: BTreeSet<Number> = in_use.collect();
    let mut free = endpoint_numbers(base).filter(|number| !taken.contains(number));
    for endpoint in choice.cluster.iter().chain(&choice.local) {
        if port.numbers.contains_key(endpoint) {
            continue;
        }
        let Some(number) = known.remove(endpoint).or_else(|| free.next()) else {
            return;
        };
        port.numbers.insert(*endpoint, number);
        put!(tables, endpoints, number, Some(*endpoint));
    }
}

/// Takes back the numbers of endpoints that are in no group.
fn drop_unused(tables: &mut Tables, port: &mut PlannedPort, used: &Choice) {
    port.numbers.retain(|endpoint, number| {
        let keep = is_used(used, endpoint);
        if !keep {
            put!(tables, endpoints, *number, None);
            put!(tables, members.cluster, *number, None);
            put!(tables, members.local, *number, None);
        }
        keep
    });
}
