//! The groups of one Service port in one family: which endpoints they have, and the
//! numbers of these where clients are to keep them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tweed_core::family::Family;

use super::choice::{Candidates, Choice};
use super::desired::{Endpoint, FIRST_ENDPOINT, FIRST_GROUP, Number, SCOPES, Scope};
use super::frontends::{Available, Outcome};
use super::groups::{Groups, MAX_ENDPOINTS};
use super::spec::{Port, Spec};
use super::tables::{Tables, put};
use crate::policy::numbers::Numbers;

/// A Service port in one family that has been planned.
#[derive(Debug)]
pub struct PlannedPort {
    /// The family.
    pub family: Family,
    /// Where the port is in [`Spec::ports`].
    pub index: usize,
    /// The number of its group for [`Scope::Cluster`]; the next one is for
    /// [`Scope::Local`].
    base: Number,
    /// The numbers of its endpoints, if it has affinity.
    numbers: BTreeMap<Endpoint, Number>,
}

/// The numbers and groups of all Service ports.
#[derive(Debug)]
pub struct Ports {
    groups: Groups,
    /// Halves of the numbers of groups: two neighbours belong to one port.
    halves: Numbers,
    endpoints: Numbers,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            halves: Numbers::from(FIRST_GROUP / 2),
            endpoints: Numbers::from(FIRST_ENDPOINT),
        }
    }
}

/// The protocols whose flows are tracked: UDP and SCTP.
const TRACKED: [u8; 2] = [17, 132];

impl Ports {
    /// A change has ended.
    pub fn settle(&mut self) {
        self.groups.settle();
        self.halves.settle();
        self.endpoints.settle();
    }

    /// A port that has no endpoints yet.
    pub fn open(&mut self, family: Family, index: usize) -> PlannedPort {
        PlannedPort {
            family,
            index,
            base: self.halves.take() * 2,
            numbers: BTreeMap::new(),
        }
    }

    /// Removes everything of a port.
    pub fn close(&mut self, tables: &mut Tables, mut port: PlannedPort) {
        for scope in SCOPES {
            self.fill(tables, &mut port, scope, None, &[]);
        }
        self.drop_unused(tables, &mut port, &Choice::default());
        self.halves.give_back(port.base / 2);
    }

    /// Makes the groups of a port hold what was chosen, as far as its frontends need
    /// them, and says where these lead to.
    pub fn plan(
        &mut self,
        tables: &mut Tables,
        planned: &mut PlannedPort,
        spec: &Spec,
        port: &Port,
        candidates: &Candidates<'_>,
        mut choice: Choice,
    ) -> Outcome {
        let available = Available {
            anywhere: !choice.cluster.is_empty(),
            local: !choice.local.is_empty(),
        };
        let external = spec.is_external(planned.family, port);
        if spec.internal_local && !external {
            choice.cluster.clear();
        }
        if !(spec.internal_local || (spec.external_local && external)) {
            choice.local.clear();
        }
        self.fill(
            tables,
            planned,
            Scope::Cluster,
            spec.affinity,
            &choice.cluster,
        );
        self.fill(tables, planned, Scope::Local, spec.affinity, &choice.local);
        if spec.affinity.is_none() {
            choice = Choice::default();
        }
        self.drop_unused(tables, planned, &choice);
        let mut outcome = Outcome::new(spec, planned.base, available);
        if TRACKED.contains(&port.protocol) {
            let serving = candidates.iter().filter(|(_, entry)| entry.serving);
            let serving = serving.map(|(endpoint, _)| *endpoint).collect();
            outcome.tracked = Some(Arc::new(serving));
        }
        outcome
    }

    /// Makes the group of a scope hold these endpoints.
    fn fill(
        &mut self,
        tables: &mut Tables,
        port: &mut PlannedPort,
        scope: Scope,
        affinity: Option<u32>,
        endpoints: &[Endpoint],
    ) {
        let endpoints = &endpoints[..endpoints.len().min(MAX_ENDPOINTS)];
        let group = port.base + u32::from(scope == Scope::Local);
        let affinity = affinity.filter(|_| !endpoints.is_empty());
        put!(tables, affinities, group, affinity);
        let mut members: Vec<Number> = Vec::new();
        if affinity.is_some() {
            for endpoint in endpoints {
                members.push(self.number(tables, port, *endpoint));
            }
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

    fn number(
        &mut self,
        tables: &mut Tables,
        port: &mut PlannedPort,
        endpoint: Endpoint,
    ) -> Number {
        if let Some(number) = port.numbers.get(&endpoint) {
            return *number;
        }
        let number = self.endpoints.take();
        port.numbers.insert(endpoint, number);
        put!(tables, endpoints, number, Some(endpoint));
        number
    }

    /// Takes back the numbers of endpoints that are in no group.
    fn drop_unused(&mut self, tables: &mut Tables, port: &mut PlannedPort, used: &Choice) {
        let is_used = |endpoint: &Endpoint| {
            let mut groups = [&used.cluster, &used.local].into_iter();
            groups.any(|group| {
                group
                    .binary_search(endpoint)
                    .is_ok_and(|at| at < MAX_ENDPOINTS)
            })
        };
        port.numbers.retain(|endpoint, number| {
            let keep = is_used(endpoint);
            if !keep {
                put!(tables, endpoints, *number, None);
                self.endpoints.give_back(*number);
            }
            keep
        });
    }
}
