//! Who may use the frontends of Services with source ranges. Services with the same
//! ranges share a limit.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tweed_core::family::Family;

use super::desired::{FIRST_LIMIT, Number, Span};
use super::known_numbers::KnownNumbers;
use super::tables::{Tables, put};
use crate::numbers::Numbers;

/// What tells limits apart: the family, and the sources that pass.
type Key = (Family, Box<[Span]>);

/// All limits that are in use.
#[derive(Debug)]
pub struct Limits {
    /// The number of each, and how many Services have it.
    limits: BTreeMap<Key, (Number, usize)>,
    numbers: Numbers,
    /// The numbers of an earlier run, until the first plan has all limits.
    known: BTreeMap<Key, Number>,
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
    pub fn settle(&mut self) {
        self.numbers.settle();
    }

    /// The limits that are acquired from now on get the numbers that they have here, and no
    /// others of these. Before the first plan.
    pub fn take_over(&mut self, known: &KnownNumbers) {
        self.numbers
            .set_aside(known.limits().map(|(number, _)| number));
        self.known = known.limits().map(|(number, key)| (key, number)).collect();
    }

    /// The first plan has all its limits: other numbers of an earlier run are free.
    pub fn settle_known(&mut self) {
        self.known = BTreeMap::new();
        self.numbers.open_aside();
    }

    /// The number of a limit that one more Service has. `own`: this node's addresses.
    pub fn acquire(&mut self, tables: &mut Tables, key: &Key, own: &BTreeSet<IpAddr>) -> Number {
        if let Some((number, count)) = self.limits.get_mut(key) {
            *count += 1;
            return *number;
        }
        let known = self.known.get(key).copied();
        let known = known.filter(|number| self.numbers.take_aside(*number));
        let number = known.unwrap_or_else(|| self.numbers.take());
        self.limits.insert(key.clone(), (number, 1));
        for span in &key.1 {
            put!(tables, allowed, (number, *span), Some(()));
        }
        put!(
            tables,
            open_to_node,
            number,
            has_any(key, own).then_some(())
        );
        number
    }

    /// One Service less has a limit.
    pub fn release(&mut self, tables: &mut Tables, key: &Key) {
        let Some((number, count)) = self.limits.get_mut(key) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        let number = *number;
        for span in &key.1 {
            put!(tables, allowed, (number, *span), None);
        }
        put!(tables, open_to_node, number, None);
        self.limits.remove(key);
        self.numbers.give_back(number);
    }

    /// The addresses of this node have changed.
    pub fn set_own(&self, tables: &mut Tables, own: &BTreeSet<IpAddr>) {
        for (key, (number, _)) in &self.limits {
            put!(
                tables,
                open_to_node,
                *number,
                has_any(key, own).then_some(())
            );
        }
    }
}

fn has_any((_, spans): &Key, own: &BTreeSet<IpAddr>) -> bool {
    let within = |ip: &IpAddr| {
        spans
            .iter()
            .any(|span| span.first <= *ip && *ip <= span.last)
    };
    own.iter().any(within)
}
