//! The sets that are provided: what is known of them, compared, and written.

use super::{Keeper, Known, Outcome};
use crate::connection::Connection;
use crate::element::{self, Change, Elements, ElementsDelta};
use crate::error::Error;
use crate::observe;
use crate::provider::Provider;
use crate::table::{Set, Skeleton};

impl Keeper {
    /// Whether the provided sets are known to hold what was last desired.
    pub fn knows_provided(&self) -> bool {
        self.provided == Known::Now
    }

    /// Says that it is not known how what is desired has changed: the provided sets have to
    /// be compared, and what differs is a change.
    pub fn forget_provided(&mut self) {
        self.provided = Known::Nothing;
    }

    /// Says that the provided sets hold what they should, after they were compared and
    /// written. What others have changed meanwhile is repaired by the next comparison.
    pub fn complete_provided(&mut self, nft: &Connection) {
        self.provided = if nft.is_touched(self.table) {
            Known::Before
        } else {
            Known::Now
        };
    }

    /// Counts what a comparison of provided sets has found.
    pub fn outcome_of(&self, changes: &[Change]) -> Outcome {
        let count = element::count(changes);
        let is_change = self.provided == Known::Nothing;
        Outcome {
            changed: if is_change { count } else { 0 },
            repaired: if is_change { 0 } else { count },
            messages: 0,
        }
    }

    /// How often the table was replaced by this keeper.
    pub fn replacements(&self) -> u64 {
        self.replacements
    }

    /// Reads the elements of one set of the table; none if some are not such as tweed
    /// writes, and only [`Self::renew`] helps.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn elements(&self, nft: &mut Connection, set: &Set) -> Result<Option<Elements>, Error> {
        Ok(observe::elements(&mut nft.socket, self.table, set)?)
    }

    /// Compares `sets`, which are provided, with what they should hold: reads one after
    /// the other, so that only one is in memory. None if one has elements that tweed
    /// never writes.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn compare(
        &self,
        nft: &mut Connection,
        sets: impl IntoIterator<Item = Set>,
        provider: &dyn Provider,
    ) -> Result<Option<Vec<Change>>, Error> {
        let mut changes = Vec::new();
        for set in sets {
            let Some(actual) = self.elements(nft, &set)? else {
                return Ok(None);
            };
            let delta = ElementsDelta::between(actual, provider.elements(&set.name));
            changes.extend((!delta.is_empty()).then_some(Change {
                set: set.name,
                delta,
            }));
        }
        Ok(Some(changes))
    }

    /// Replaces the whole table, the sets that are provided included, with these elements
    /// in `entry`, a set and its elements, and those that all others hold.
    ///
    /// # Errors
    /// The first failure; the next call then looks at everything again.
    pub fn renew(
        &mut self,
        nft: &mut Connection,
        skeleton: &Skeleton,
        entry: Option<(String, Elements)>,
        provider: &dyn Provider,
    ) -> Result<Outcome, Error> {
        let mut desired = match self.contents.take() {
            Some(contents) => contents,
            // It is not known after a transaction of which nobody knows what became.
            None => {
                self.look_at(nft)?;
                observe::contents(&mut nft.socket, skeleton)?
            }
        };
        desired.extend(entry);
        let outcome = Outcome {
            repaired: 1,
            ..Outcome::default()
        };
        self.replace_all(nft, skeleton, desired, Some(provider), outcome)
    }

    /// Writes changes of sets of which it is known what they hold, and empties those sets
    /// in `flushed`, in one transaction. Returns the number of messages.
    ///
    /// # Errors
    /// The change was refused: then all sets are as they were. After another failure nothing
    /// is known.
    pub fn write_known(
        &mut self,
        nft: &mut Connection,
        sets: &[Set],
        changes: &[Change],
        flushed: &[String],
    ) -> Result<usize, Error> {
        let mut contents = self.contents.take();
        let written = self.write(nft, sets, changes, flushed);
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
    pub fn follow(
        &mut self,
        nft: &mut Connection,
        sets: &[Set],
        transactions: impl IntoIterator<Item = Vec<Change>>,
    ) -> Result<Option<Outcome>, Error> {
        let mut outcome = Outcome::default();
        for changes in transactions {
            if self.is_touched(nft)? || self.contents.is_none() {
                return Ok(None);
            }
            outcome.messages += self.write_known(nft, sets, &changes, &[])?;
            outcome.changed += element::count(&changes);
        }
        Ok(Some(outcome))
    }
}
