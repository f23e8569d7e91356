//! Writes the elements of Services.
//!
//! - *What is only added* is written in chunks, in the order of [`sets::all`]: a first
//!   load. Before its last step a flow is left to whoever else translates it.
//! - *Any other change*, whether the planner says it or a comparison finds it, is one
//!   transaction: slots and groups fit each other only as a whole. Only who may use
//!   frontends with source ranges is written before it, and taken out after it: see
//!   [`steps`].
//! - *Clients that are remembered* are remembered by numbers of the planner. Where the
//!   kernel's numbers are those of another planner, which this run's has not taken over,
//!   and one of them is found to be another endpoint's, then any of them may be: the
//!   clients are forgotten in the same transaction. This run's own planner gives an
//!   endpoint that stays no other number. One that it reuses within a block leads the
//!   clients of the endpoint that is gone to another endpoint of the same Service. A block
//!   that a Service has given back is another one's only after all that were never used,
//!   and then the longest unused first: mostly when its clients are long forgotten. Where
//!   one of them is not, it goes to an endpoint of that other Service, as any client does.

use std::collections::BTreeSet;

use nix::errno::Errno;
use tweed_core::family::Family;
use tweed_planner::services::KnownNumbers;
use tweed_planner::services::desired::{Delta, Desired, Endpoint, Number};

use super::super::provided_sets::{ProvidedSets, chunks};
use super::super::sets::FAMILIES;
use super::sets::{self, ServiceSet};
use super::{
    declarations, elements, is_other, known_endpoints, known_numbers, provided, rules, timeouts,
};
use crate::element::{Change, Data, Element, ElementsDelta, Key};
use crate::error::Error;
use crate::provided::Provider;
use crate::reconcile::{Outcome, Reconciler};
use crate::table::{Set, Skeleton};
use crate::value::Value;

/// The state of Services in the table.
pub(in super::super) struct Writer {
    /// What is known of the sets.
    pub(in super::super) sets: ProvidedSets,
    /// Whether the table is known to have the rules of Services.
    in_force: bool,
    /// Whether the numbers in the kernel are those of this run's planner, which has taken
    /// them over or made them.
    own_numbers: bool,
    /// The timeouts of affinity beside the default that were last desired; none if that is not
    /// known.
    timeouts: Option<BTreeSet<u32>>,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            sets: ProvidedSets::new(sets::KEEPER),
            in_force: false,
            own_numbers: false,
            timeouts: None,
        }
    }
}

/// What a reconcile of the elements begins with.
pub(in super::super) struct Start<'a> {
    /// The table with Services in it.
    pub skeleton: &'a Skeleton,
    /// What should be in their sets.
    pub desired: &'a Desired,
    /// Provides all sets of the table.
    pub provider: &'a dyn Provider,
    /// Whether to look even if nothing is known to have changed.
    pub force_observe: bool,
}

impl Writer {
    /// Forgets everything: Services are not in the table.
    pub(in super::super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether the kernel's table has Services in it.
    pub(in super::super) fn is_in_force(
        &mut self,
        reconciler: &mut Reconciler,
    ) -> Result<bool, Error> {
        if !self.in_force {
            self.in_force = reconciler.has_set(&ServiceSet::Parts.name())?;
        }
        Ok(self.in_force)
    }

    /// The timeouts of affinity, beside the default, that groups in the kernel's table lead to.
    /// Their chains have to stay until the groups lead elsewhere.
    pub(in super::super) fn used_timeouts(
        &self,
        reconciler: &mut Reconciler,
    ) -> Result<BTreeSet<u32>, Error> {
        if let Some(timeouts) = &self.timeouts {
            return Ok(timeouts.clone());
        }
        let seen = reconciler.elements(&ServiceSet::Timeouts.declaration())?;
        let seen = seen.unwrap_or_default();
        let verdicts = seen.values().flatten().filter_map(|data| match &**data {
            Data::Verdict(verdict) => rules::timeout(verdict),
            Data::Value(_) | Data::Values(_) => None,
        });
        Ok(verdicts.collect())
    }

    /// What the numbers mean that the kernel's table has, for the planner to take over.
    pub(in super::super) fn known_numbers(
        &mut self,
        reconciler: &mut Reconciler,
    ) -> Result<KnownNumbers, Error> {
        let known = match self.is_in_force(reconciler)? {
            true => known_numbers::read(|set| reconciler.elements(set))?,
            false => KnownNumbers::default(),
        };
        self.own_numbers = true;
        Ok(known)
    }

    /// Which endpoints a group has in the kernel's table.
    pub(in super::super) fn known_endpoints(
        &mut self,
        reconciler: &mut Reconciler,
        family: Family,
        group: Number,
    ) -> Result<BTreeSet<Endpoint>, Error> {
        match self.is_in_force(reconciler)? {
            true => known_endpoints::read(family, group, |map, key| reconciler.data(map, key)),
            false => Ok(BTreeSet::new()),
        }
    }

    /// Makes the sets hold what is desired, after the rules have been reconciled.
    pub(in super::super) fn reconcile(
        &mut self,
        reconciler: &mut Reconciler,
        start: &Start<'_>,
    ) -> Result<Outcome, Error> {
        self.in_force = true;
        let force = start.force_observe;
        let sets = self.sets.due(reconciler, provided(), force)?;
        let Some(changes) = reconciler.compare(&sets, start.desired)? else {
            return self.renew(reconciler, start);
        };
        let mut outcome = self.sets.outcome(&changes);
        match self.write(reconciler, changes) {
            Err(Error::Netlink(error)) if error.errno() == Some(Errno::EMSGSIZE) => {
                outcome.messages += self.renew(reconciler, start)?.messages;
            }
            written => outcome.messages = written?,
        }
        self.timeouts = Some(timeouts(start.desired));
        self.own_numbers = true;
        self.sets.settle(reconciler);
        Ok(outcome)
    }

    /// Makes the sets follow a change of the plan. None if they are not known to hold
    /// what was desired before, or a timeout is new. After None or an error they may hold a
    /// part of the change, and are compared.
    pub(in super::super) fn follow(
        &mut self,
        reconciler: &mut Reconciler,
        delta: &Delta,
    ) -> Result<Option<Outcome>, Error> {
        let has_chain = |timeout| {
            let known = self.timeouts.as_ref();
            !is_other(timeout) || known.is_some_and(|known| known.contains(timeout))
        };
        let mut timeouts = delta.affinities.added.values();
        if !timeouts.all(has_chain) || !self.sets.are_known(reconciler) {
            return Ok(None);
        }
        let declarations: Vec<Set> = declarations().collect();
        reconciler.follow_provided(&declarations, steps(elements::changes(delta)))
    }

    /// Replaces the whole table with all elements: for elements that cannot be taken out
    /// one by one, and where a transaction of them is too large.
    fn renew(&mut self, reconciler: &mut Reconciler, start: &Start<'_>) -> Result<Outcome, Error> {
        let outcome = reconciler.renew(start.skeleton, None, start.provider)?;
        self.sets.renewed();
        self.own_numbers = true;
        Ok(outcome)
    }

    /// Writes the changes. Returns the number of messages.
    fn write(&self, reconciler: &mut Reconciler, changes: Vec<Change>) -> Result<usize, Error> {
        let declarations: Vec<Set> = declarations().collect();
        let only_adds = |change: &Change| change.delta.removed.is_empty();
        let mut messages = 0;
        if changes.iter().all(only_adds) {
            for chunk in changes.into_iter().flat_map(chunks) {
                messages += reconciler.write_known(&declarations, &[chunk], &[])?;
            }
            return Ok(messages);
        }
        let clients = FAMILIES.map(|family| sets::clients(family).name);
        for changes in steps(changes) {
            let flushed = match !self.own_numbers && changes.iter().any(is_renumbered) {
                true => &clients[..],
                false => &[],
            };
            messages += reconciler.write_known(&declarations, &changes, flushed)?;
        }
        Ok(messages)
    }
}

/// Whether a number becomes another endpoint's.
fn is_renumbered(change: &Change) -> bool {
    let numbers = FAMILIES.map(|family| ServiceSet::Endpoints(family).name());
    if !numbers.contains(&change.set) {
        return false;
    }
    let ElementsDelta { removed, added } = &change.delta;
    let added: BTreeSet<&Key> = added.iter().map(|(number, _)| number).collect();
    removed.iter().any(|(number, _)| added.contains(number))
}

/// The transactions of a change. Where frontends get another limit, what passes the new one
/// is added before it is theirs, and what passed the old one is removed after that: the
/// kernel has concatenated intervals in place a moment after all other elements of their
/// transaction, and a packet looks up first the limit, then who passes it. The planner has
/// not used the number of a new limit in the step before, so nothing leads to it yet, and
/// takes over the numbers of an earlier run.
///
/// A number may pass others afterwards all the same, because changes between were lost or
/// somebody else has changed a set. Then no frontend may be open to who passes neither its
/// old limit nor its new one, so these are written together with the limits:
///
/// - what a number passes in addition that a frontend loses, which has it until then;
/// - what a number passes no more that a frontend gets;
/// - both of a number that has both: its old and new intervals may overlap, and the kernel
///   refuses to have both.
pub(super) fn steps(changes: Vec<Change>) -> Vec<Vec<Change>> {
    let limits = FAMILIES.map(|family| ServiceSet::Limits(family).name());
    let passing = [
        ServiceSet::Allowed(Family::V4).name(),
        ServiceSet::Allowed(Family::V6).name(),
        ServiceSet::OpenToNode.name(),
    ];
    let (mut lost, mut gained) = (BTreeSet::new(), BTreeSet::new());
    for Change { delta, .. } in changes.iter().filter(|c| limits.contains(&c.set)) {
        lost.extend(delta.removed.iter().map(limit));
        gained.extend(delta.added.iter().map(limit));
    }
    if lost.is_empty() && gained.is_empty() {
        return vec![changes];
    }
    let [mut before, mut at_once, mut after] = [const { Vec::new() }; 3];
    for change in changes {
        if !passing.contains(&change.set) {
            at_once.push(change);
            continue;
        }
        let Change { set, delta } = change;
        let numbers = |elements: &[Element]| elements.iter().map(number).collect::<BTreeSet<_>>();
        let (removed, added) = (numbers(&delta.removed), numbers(&delta.added));
        let stays_until_then = |element: &Element| {
            let number = number(element);
            added.contains(&number) || gained.contains(&number)
        };
        let comes_only_then = |element: &Element| {
            let number = number(element);
            removed.contains(&number) || lost.contains(&number)
        };
        let (removed, removed_after) = delta.removed.into_iter().partition(stays_until_then);
        let (added, added_before) = delta.added.into_iter().partition(comes_only_then);
        for (step, removed, added) in [
            (&mut before, Vec::new(), added_before),
            (&mut at_once, removed, added),
            (&mut after, removed_after, Vec::new()),
        ] {
            let set = set.clone();
            let delta = ElementsDelta { removed, added };
            step.extend((!delta.is_empty()).then_some(Change { set, delta }));
        }
    }
    let steps = [before, at_once, after].into_iter();
    steps.filter(|step| !step.is_empty()).collect()
}

/// The limit of an element of [`ServiceSet::Allowed`] or [`ServiceSet::OpenToNode`].
fn number((key, _): &Element) -> Option<Value> {
    key.fields().first().map(|field| field.first)
}

/// The limit in the data of an element of [`ServiceSet::Limits`].
fn limit((_, data): &Element) -> Option<Value> {
    data.as_deref()?.values()?.first().copied()
}
