//! The sets that are provided: what is known of them, compared, and written.

use tweed_netlink::nf::object::SET_NAME;

use super::{Outcome, Reconciler};
use crate::element::{self, Change, Data, Elements, Key};
use crate::error::Error;
use crate::look::{Found, Held, Look};
use crate::observe;
use crate::provided::{self, Provider};
use crate::sum::Sum;
use crate::table::{Set, Skeleton};

impl Reconciler {
    /// Whether the sets of a provider are known to hold what was last desired.
    #[must_use]
    pub fn knows_provided(&self, keeper: &'static str) -> bool {
        self.provided_known.contains(keeper)
    }

    /// Forgets what all sets hold that are provided, if somebody else has touched the
    /// table.
    pub(super) fn settle_touched(&mut self) {
        if self.touched {
            self.provided_known.clear();
        }
    }

    /// How often the table was replaced by this reconciler.
    #[must_use]
    pub fn replacements(&self) -> u64 {
        self.replacements
    }

    /// Whether the table is there and has a set or map of this name.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn has_set(&mut self, name: &str) -> Result<bool, Error> {
        let sets = self.table.sets(&mut self.socket)?;
        Ok(sets.iter().any(|set| set.text(SET_NAME) == Some(name)))
    }

    /// Reads the elements of one set of the table; none if some are not such as tweed
    /// writes, and only [`Self::renew`] helps.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn elements(&mut self, set: &Set) -> Result<Option<Elements>, Error> {
        Ok(observe::elements(&mut self.socket, self.table, set)?)
    }

    /// Reads what a map of the table without intervals has for a key, if it has it.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn data(&mut self, map: &Set, key: &Key) -> Result<Option<Box<Data>>, Error> {
        let element = observe::element(&mut self.socket, self.table, map, key)?;
        Ok(element.flatten())
    }

    /// Compares `sets`, which are provided, with what they should hold: reads one after
    /// the other, so that only one is in memory. None if one has elements that tweed
    /// never writes.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn compare<'a>(
        &mut self,
        sets: impl IntoIterator<Item = &'a Set>,
        provider: &dyn Provider,
    ) -> Result<Option<Vec<Change>>, Error> {
        let mut changes = Vec::new();
        for set in sets {
            let Some(actual) = self.elements(set)? else {
                return Ok(None);
            };
            self.note(&set.name, self.summer.sum(&actual));
            let change = provided::difference(&set.name, actual, provider);
            changes.extend((!change.delta.is_empty()).then_some(change));
        }
        Ok(Some(changes))
    }

    /// Begins to look at a set that is provided, beside this thread. None if it is not known
    /// what it was left with: then only [`Self::compare`] helps.
    ///
    /// # Errors
    /// The kernel gives no socket, or no thread.
    pub(in super::super) fn look(&self, set: &Set) -> Result<Option<Look>, Error> {
        let held = self.held.get(&set.name);
        held.map(|held| Look::begin(self.table, set, *held, &self.summer, &self.looks_with))
            .transpose()
    }

    /// Takes up a look that has ended.
    pub(in super::super) fn found(&self, look: Look) -> Found {
        let now = self.held.get(&look.set().name).copied();
        look.end(now)
    }

    /// Takes note of what a set that is provided holds.
    fn note(&mut self, set: &str, sum: Sum) {
        self.numbered += 1;
        let number = self.numbered;
        self.held.insert(set.to_owned(), Held { sum, number });
    }

    /// Takes note of what was written.
    pub(super) fn note_written(&mut self, changes: &[Change]) {
        for Change { set, delta } in changes {
            if let Some(held) = self.held.get(set) {
                let sum = self.summer.after(held.sum, delta);
                self.note(set, sum);
            }
        }
    }

    /// Takes note of a table that was replaced with what `provider` says.
    pub(super) fn note_replaced(&mut self, skeleton: &Skeleton, provider: &dyn Provider) {
        for set in skeleton.sets.iter().filter(|set| set.is_provided()) {
            let mut sum = Sum::default();
            for (key, data) in provider.elements(&set.name) {
                self.summer.add(&mut sum, &key, data.as_deref());
            }
            self.note(&set.name, sum);
        }
    }

    /// Says that the sets of a provider hold what they should, after they were compared
    /// and written.
    pub fn settle_provided(&mut self, keeper: &'static str) {
        if !self.touched {
            self.provided_known.insert(keeper);
        }
    }

    /// Replaces the whole table, the sets that are provided included, with these elements
    /// in `entry`, a set and its elements, and those that all others hold.
    ///
    /// # Errors
    /// The first failure; the next call then looks at everything again.
    pub fn renew(
        &mut self,
        skeleton: &Skeleton,
        entry: Option<(String, Elements)>,
        provider: &dyn Provider,
    ) -> Result<Outcome, Error> {
        let mut desired = match self.contents.take() {
            Some(contents) => contents,
            // It is not known after a transaction of which nobody knows what became.
            None => {
                let seen = self.observe(skeleton)?;
                seen.ok_or(Error::Interrupted(self.table.to_string(), 1))?
                    .contents
            }
        };
        desired.extend(entry);
        let outcome = Outcome {
            repaired: 1,
            ..Outcome::default()
        };
        provider.prepare()?;
        self.replace_all(skeleton, &desired, Some(provider), outcome)
    }

    /// Writes changes of sets of which it is known what they hold, and empties those sets
    /// in `flushed`, in one transaction. Returns the number of messages.
    ///
    /// # Errors
    /// The change was refused: then all sets are as they were, and what is known of those of
    /// other providers stays known. After another failure nothing is known.
    pub fn write_known(
        &mut self,
        sets: &[Set],
        changes: &[Change],
        flushed: &[String],
    ) -> Result<usize, Error> {
        let mut contents = self.contents.take();
        let written = self.write(sets, changes, flushed);
        match &written {
            Ok(_) => {
                if let Some(contents) = &mut contents {
                    element::apply(contents, changes);
                }
                self.contents = contents;
            }
            Err(error) if error.is_refusal() => self.contents = contents,
            Err(_) => {}
        }
        written
    }

    /// [`Self::write_known`] without looking, of one transaction after the other, for a change of
    /// a plan. None if what the table holds is not known: then [`Self::reconcile`] has to
    /// look, and some may have been written.
    ///
    /// # Errors
    /// As of [`Self::write_known`].
    pub fn follow_provided(
        &mut self,
        sets: &[Set],
        transactions: impl IntoIterator<Item = Vec<Change>>,
    ) -> Result<Option<Outcome>, Error> {
        let mut outcome = Outcome::default();
        for changes in transactions {
            if self.drain_notifications()? || self.contents.is_none() {
                return Ok(None);
            }
            outcome.messages += self.write_known(sets, &changes, &[])?;
            outcome.changed += element::count(&changes);
        }
        Ok(Some(outcome))
    }
}
