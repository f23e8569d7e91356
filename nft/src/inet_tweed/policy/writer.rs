//! Writes the elements of policy, and keeps the generation in force.
//!
//! - *First load*, while no generation is in force: elements in chunks, the entry last, so
//!   that pods that are there already are not cut by half of the elements. All marks are
//!   cleared before ([`Marks`]): those of an earlier table mean nothing, unless this writer
//!   has put them there and knows which generation comes next.
//! - *In force*: all of a change that a packet can see is one transaction ([`Steps`]), with
//!   the next generation in it if the change takes something away. 60,000 elements take some
//!   200 ms.
//! - *Repair*: whatever somebody else changed, flows may have been judged by it, so the
//!   next generation comes with it.

use nix::errno::Errno;
use tweed_planner::policy::desired::{Delta, Desired};

use super::super::provided_sets::{ProvidedSets, chunks};
use super::generation::{self, ENTRY, Generation};
use super::marks::Marks;
use super::sets;
use super::steps::Steps;
use crate::element::{Change, Contents};
use crate::error::Error;
use crate::provided::Provider;
use crate::reconcile::{Outcome, Reconciler};
use crate::table::{Set, Skeleton};

/// The state of policy in the table.
pub(in super::super) struct Writer {
    /// The generation in force, if that is known.
    generation: Option<Generation>,
    /// The one that was in force until the entry or the whole table was taken away; none if
    /// that is not known for certain.
    lost: Option<Generation>,
    /// Which generations entries of conntrack may carry. After a restart it is not known
    /// which have been used.
    marks: Marks,
    /// What is known of the sets.
    pub(in super::super) sets: ProvidedSets,
    /// How often the table had been replaced when a generation last came in force. What
    /// others had put into the table before it was replaced since then may have let flows
    /// pass, which have to be judged once more.
    judged_at: u64,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            generation: None,
            lost: None,
            marks: Marks::default(),
            sets: ProvidedSets::new(sets::KEEPER),
            judged_at: 0,
        }
    }
}

/// What a reconcile of the elements begins with.
pub(in super::super) struct Start<'a> {
    /// The table with policy in it.
    pub skeleton: &'a Skeleton,
    /// What should be in the sets of policy.
    pub desired: &'a Desired,
    /// Provides all sets of the table.
    pub provider: &'a dyn Provider,
    /// Whether to look even if nothing is known to have changed.
    pub force_observe: bool,
}

impl Writer {
    /// Forgets everything: policy is no longer in the table.
    pub(in super::super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Reads which generation is in force, and puts its entry into `contents`. Returns
    /// whether there is one.
    pub(in super::super) fn enter(
        &mut self,
        reconciler: &mut Reconciler,
        contents: &mut Contents,
    ) -> Result<bool, Error> {
        let seen = reconciler.elements(&generation::entry())?;
        let seen = seen.as_ref().and_then(Generation::read);
        if let Some(seen) = seen {
            self.marks.came_in_force(seen);
        }
        self.lost = self.generation.filter(|_| seen.is_none());
        self.generation = seen.map(|seen| self.generation.unwrap_or(seen));
        let elements = self.generation.map(Generation::elements);
        contents.insert(ENTRY.to_owned(), elements.unwrap_or_default());
        Ok(self.generation.is_some())
    }

    /// Makes the sets hold what is desired, after rules and entry have been reconciled.
    pub(in super::super) fn reconcile(
        &mut self,
        reconciler: &mut Reconciler,
        start: &Start<'_>,
    ) -> Result<Outcome, Error> {
        let Some(current) = self.generation else {
            return self.load(reconciler, start);
        };
        // Beside the comparison, of an earlier run's marks above all.
        self.marks.clear_in_time(current);
        let force = start.force_observe;
        let sets = self.sets.due(reconciler, super::provided(), force)?;
        let Some(changes) = reconciler.compare(&sets, start.desired)? else {
            return self.renew(reconciler, start, current);
        };
        let mut outcome = self.sets.outcome(&changes);
        if !changes.is_empty() || self.must_judge(reconciler) {
            let written = self.advance(reconciler, current, changes);
            match written {
                Err(Error::Netlink(error)) if error.errno() == Some(Errno::EMSGSIZE) => {
                    let renewed = self.renew(reconciler, start, current)?;
                    outcome.messages += renewed.messages;
                }
                written => outcome.messages = written?,
            }
        }
        self.sets.settle(reconciler);
        Ok(outcome)
    }

    /// Makes the sets follow a change of the plan. None if they are not known to hold
    /// what was desired before. After None or an error they may hold a part of the change, and
    /// are compared.
    pub(in super::super) fn follow(
        &mut self,
        reconciler: &mut Reconciler,
        delta: &Delta,
    ) -> Result<Option<Outcome>, Error> {
        let is_known = self.sets.are_known(reconciler);
        let Some(current) = self.generation.filter(|_| is_known) else {
            return Ok(None);
        };
        let Steps {
            before,
            mut at_once,
            after,
        } = Steps::of(sets::changes(delta));
        let mut generation = current;
        if delta.takes_away {
            generation = self.next(current)?;
            at_once.push(generation::change(Some(current), generation));
        }
        let declarations: Vec<Set> = super::declarations().collect();
        let each = |changes: Vec<Change>| changes.into_iter().map(|change| vec![change]);
        // After an error it is not known which generation is in force.
        self.generation = None;
        let transactions = each(before).chain([at_once]);
        let mut outcome = reconciler.follow_provided(&declarations, transactions)?;
        match outcome {
            Some(_) if generation != current => self.came_in_force(generation, reconciler),
            _ => self.generation = Some(current),
        }
        if let Some(before) = outcome {
            let after = reconciler.follow_provided(&declarations, each(after))?;
            outcome = after.map(|after| before + after);
        }
        self.marks.clear_in_time(self.generation.unwrap_or(current));
        Ok(outcome)
    }

    /// Whether all flows have to be judged once more, which the next generation does.
    fn must_judge(&self, reconciler: &Reconciler) -> bool {
        self.judged_at != reconciler.replacements()
    }

    /// The generation after `current`, which no entry of conntrack carries.
    fn next(&mut self, current: Generation) -> Result<Generation, Error> {
        self.marks.await_next(current)?;
        Ok(current.next())
    }

    /// The kernel has put a generation in force.
    fn came_in_force(&mut self, generation: Generation, reconciler: &Reconciler) {
        self.marks.came_in_force(generation);
        self.generation = Some(generation);
        self.judged_at = reconciler.replacements();
    }

    /// Writes all elements while no generation is in force, and then puts one in force: the
    /// next, where it is known which one was before. Without that all marks have to be
    /// cleared first, during which policies are not in force.
    fn load(&mut self, reconciler: &mut Reconciler, start: &Start<'_>) -> Result<Outcome, Error> {
        let declarations: Vec<Set> = super::declarations().collect();
        let provided = declarations.iter().filter(|set| set.is_provided());
        let Some(changes) = reconciler.compare(provided, start.desired)? else {
            let current = Generation::FIRST;
            return self.renew(reconciler, start, current);
        };
        let mut outcome = self.sets.outcome(&changes);
        // Somebody else has taken the entry out, or the table.
        outcome.repaired += usize::from(self.sets.are_written());
        for chunk in changes.into_iter().flat_map(chunks) {
            outcome.messages += reconciler.write_known(&declarations, &[chunk], &[])?;
        }
        let generation = match self.lost.take() {
            Some(lost) => self.next(lost)?,
            None => {
                self.marks.clear_all()?;
                Generation::FIRST
            }
        };
        let entry = [generation::change(None, generation)];
        outcome.messages += reconciler.write_known(&declarations, &entry, &[])?;
        self.came_in_force(generation, reconciler);
        self.sets.settle(reconciler);
        Ok(outcome)
    }

    /// Writes changes, and with them the next generation. Returns the number of messages.
    fn advance(
        &mut self,
        reconciler: &mut Reconciler,
        current: Generation,
        mut changes: Vec<Change>,
    ) -> Result<usize, Error> {
        let generation = self.next(current)?;
        changes.push(generation::change(Some(current), generation));
        let declarations: Vec<Set> = super::declarations().collect();
        self.generation = None;
        let messages = reconciler.write_known(&declarations, &changes, &[])?;
        self.came_in_force(generation, reconciler);
        Ok(messages)
    }

    /// Replaces the whole table with all elements in one transaction: for elements that
    /// cannot be taken out one by one, and where a transaction of them is too large.
    fn renew(
        &mut self,
        reconciler: &mut Reconciler,
        start: &Start<'_>,
        current: Generation,
    ) -> Result<Outcome, Error> {
        let generation = self.next(current)?;
        self.generation = None;
        let entry = (ENTRY.to_owned(), generation.elements());
        let outcome = reconciler.renew(start.skeleton, Some(entry), start.provider)?;
        self.came_in_force(generation, reconciler);
        self.sets.renewed();
        Ok(outcome)
    }
}
