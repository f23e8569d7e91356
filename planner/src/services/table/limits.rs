//! Who may use the frontends of Services with source ranges. Services with the same
//! ranges share a limit.

use std::collections::BTreeMap;

use super::super::model::{spec::Sources, surroundings::Surroundings};
use super::Tables;
use super::desired::{FIRST_LIMIT, Number};
use super::known_numbers::KnownNumbers;
use crate::numbers::Numbers;
use crate::tables::put;

/// All limits that are in use.
#[derive(Debug)]
pub struct Limits {
    /// The number of each, and how many Services have it.
    limits: BTreeMap<Sources, (Number, usize)>,
    numbers: Numbers,
    /// The numbers of an earlier run, until the first plan has all limits.
    known: BTreeMap<Sources, Number>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            limits: BTreeMap::new(),
            numbers: Numbers::from(FIRST_LIMIT),
            known: BTreeMap::new(),
        }
    }
}

impl Limits {
    /// A change has ended.
    pub fn commit(&mut self) {
        self.numbers.commit();
    }

    /// The limits that are acquired from now on get the numbers that they have here, and no
    /// others of these. Before the first plan.
    pub fn take_over(&mut self, known: &KnownNumbers) {
        self.numbers
            .reserve(known.limits().map(|(number, _)| number));
        self.known = known.limits().map(|(number, key)| (key, number)).collect();
    }

    /// The first plan has all its limits: other numbers of an earlier run are free.
    pub fn commit_known(&mut self) {
        self.known = BTreeMap::new();
        self.numbers.release_reserved();
    }

    /// One more Service has a limit. `is_open`: whether this node is among its sources.
    pub fn acquire(&mut self, tables: &mut Tables, sources: &Sources, is_open: bool) {
        if let Some((_, count)) = self.limits.get_mut(sources) {
            *count += 1;
            return;
        }
        let known = self.known.get(sources).copied();
        let reserved = known.filter(|number| self.numbers.take_reserved(*number));
        let number = reserved.unwrap_or_else(|| self.numbers.take());
        self.limits.insert(sources.clone(), (number, 1));
        for span in &sources.1 {
            put!(tables, allowed, (number, *span), Some(()));
        }
        put!(tables, open_to_node, number, is_open.then_some(()));
    }

    /// The number of a limit that a Service has.
    pub fn number(&self, sources: &Sources) -> Option<Number> {
        self.limits.get(sources).map(|(number, _)| *number)
    }

    /// One Service less has a limit.
    pub fn release(&mut self, tables: &mut Tables, sources: &Sources) {
        let Some((number, count)) = self.limits.get_mut(sources) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        let number = *number;
        for span in &sources.1 {
            put!(tables, allowed, (number, *span), None);
        }
        put!(tables, open_to_node, number, None);
        self.limits.remove(sources);
        self.numbers.give_back(number);
    }

    /// The addresses of this node have changed.
    pub fn set_own(&self, tables: &mut Tables, surroundings: &Surroundings) {
        for (sources, (number, _)) in &self.limits {
            let is_open = surroundings.is_among(sources);
            put!(tables, open_to_node, *number, is_open.then_some(()));
        }
    }
}
