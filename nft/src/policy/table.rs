//! Keeps the table of policies, and the generation in force.
//!
//! - *First load*, while no generation is in force: elements in chunks, the entry last, so
//!   that pods that are there already are not cut by half of the elements. All marks are
//!   cleared before ([`Marks`]): those of an earlier table mean nothing, unless this writer
//!   has put them there and knows which generation comes next.
//! - *In force*: all of a change that a packet can see is one transaction ([`Steps`]), with
//!   the next generation in it if the change takes something away. 60,000 elements take some
//!   200 ms.
//! - *Repair*: whatever somebody else changed, flows may have been evaluated by it, so the
//!   next generation comes with it.

use std::path::Path;

use nix::errno::Errno;
use tweed_netlink::nf::object::TableKey;
use tweed_planner::policy::desired::{Delta, Desired};

use super::generation::{self, ENTRY, Generation};
use super::marks::Marks;
use super::steps::Steps;
use super::{declarations, skeleton};
use crate::connection::Connection;
use crate::element::{Change, Contents};
use crate::error::Error;
use crate::keeper::{Keeper, Outcome};
use crate::provider::Provider;
use crate::schema;
use crate::table::Skeleton;
use crate::tables::{POLICY_TABLE, Table, chunks, has_set};

/// The file in the run folder that remembers how the kernel shows the whole table.
const BASELINE: &str = "nft-skeleton-policy";

/// By which policies the kernel lets packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InForce {
    /// By none: there is no table of policies.
    Nothing,
    /// By those of a generation, whose bits these are in the conntrack mark of a flow that they
    /// have let pass.
    Mark(u32),
    /// It is not known: a write has failed.
    Unknown,
}

/// Is told what is in force as soon as the kernel has committed it.
pub type OnInForce = Box<dyn Fn(InForce) + Send>;

/// The table `inet tweed-policy`, for one thread in one network namespace.
pub struct PolicyTable {
    keeper: Keeper,
    on_in_force: OnInForce,
    /// Whether dropped packets are logged.
    log: bool,
    /// The generation in force, if that is known.
    generation: Option<Generation>,
    /// The one that was in force until the entry or the whole table was taken away; none if
    /// that is not known for certain.
    lost: Option<Generation>,
    /// Which generations entries of conntrack may carry. After a restart it is not known
    /// which have been used.
    marks: Marks,
    /// How often the table had been replaced when a generation last came in force. What
    /// others had put into the table before it was replaced since then may have let flows
    /// pass, which have to be evaluated once more.
    in_force_at: u64,
}

impl PolicyTable {
    /// Changes nothing yet. `run_dir` must exist. With `log` packets are logged before they
    /// are dropped. `on_in_force` is told what is in force.
    #[must_use]
    pub fn new(run_dir: &Path, log: bool, on_in_force: OnInForce) -> Self {
        Self {
            keeper: Keeper::new(POLICY_TABLE, &run_dir.join(BASELINE)),
            on_in_force,
            log,
            generation: None,
            lost: None,
            marks: Marks::default(),
            in_force_at: 0,
        }
    }

    /// Whether the kernel has a table of policies, be it from an earlier run.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn is_there(&self, nft: &mut Connection) -> Result<bool, Error> {
        has_set(nft, POLICY_TABLE, ENTRY)
    }

    /// Reads which generation is in force, and gives its entry.
    fn read_generation(&mut self, nft: &mut Connection) -> Result<Contents, Error> {
        let entry = self.keeper.elements(nft, &generation::entry())?;
        let seen = entry.as_ref().and_then(Generation::read);
        if let Some(seen) = seen {
            self.marks.came_in_force(seen);
            (self.on_in_force)(InForce::Mark(seen.mark()));
        }
        self.lost = self.generation.filter(|_| seen.is_none());
        self.generation = seen.map(|seen| self.generation.unwrap_or(seen));
        let elements = self.generation.map(Generation::elements);
        Ok([(ENTRY.to_owned(), elements.unwrap_or_default())].into())
    }

    /// Makes the provided sets hold what is desired, after rules and entry have been
    /// reconciled.
    fn reconcile_sets(
        &mut self,
        nft: &mut Connection,
        skeleton: &Skeleton,
        desired: &Desired,
    ) -> Result<Outcome, Error> {
        let Some(current) = self.generation else {
            return self.load(nft, skeleton, desired);
        };
        // Beside the comparison, of an earlier run's marks above all.
        self.marks.clear_in_time(current);
        let changes = if self.keeper.knows_provided() {
            Vec::new()
        } else {
            match self
                .keeper
                .compare(nft, schema::declarations::<Desired>(), desired)?
            {
                Some(changes) => changes,
                None => return self.renew(nft, skeleton, desired, current),
            }
        };
        let mut outcome = self.keeper.outcome_of(&changes);
        // Flows may have been let pass by what others had put into a table that was replaced.
        if !changes.is_empty() || self.in_force_at != self.keeper.replacements() {
            let written = self.advance(nft, current, changes);
            match written {
                Err(Error::Netlink(error)) if error.errno() == Some(Errno::EMSGSIZE) => {
                    let renewed = self.renew(nft, skeleton, desired, current)?;
                    outcome.messages += renewed.messages;
                }
                written => outcome.messages = written?,
            }
        }
        self.keeper.complete_provided(nft);
        Ok(outcome)
    }

    /// The generation after `current`, which no entry of conntrack carries.
    fn next(&mut self, current: Generation) -> Result<Generation, Error> {
        self.marks.await_next(current)?;
        Ok(current.next())
    }

    /// The kernel has put a generation in force.
    fn came_in_force(&mut self, generation: Generation) {
        (self.on_in_force)(InForce::Mark(generation.mark()));
        self.marks.came_in_force(generation);
        self.generation = Some(generation);
        self.in_force_at = self.keeper.replacements();
    }

    /// Writes all elements while no generation is in force, and then puts one in force: the
    /// next, where it is known which one was before. Without that all marks have to be
    /// cleared first, during which policies are not in force.
    fn load(
        &mut self,
        nft: &mut Connection,
        skeleton: &Skeleton,
        desired: &Desired,
    ) -> Result<Outcome, Error> {
        let declarations = declarations();
        let Some(changes) = self
            .keeper
            .compare(nft, schema::declarations::<Desired>(), desired)?
        else {
            return self.renew(nft, skeleton, desired, Generation::FIRST);
        };
        let mut outcome = self.keeper.outcome_of(&changes);
        // Somebody else has taken the entry out, or the table.
        outcome.repaired += usize::from(self.lost.is_some());
        for chunk in changes.into_iter().flat_map(chunks) {
            outcome.messages += self.keeper.write_known(nft, &declarations, &[chunk], &[])?;
        }
        let generation = match self.lost.take() {
            Some(lost) => self.next(lost)?,
            None => {
                self.marks.clear_all()?;
                Generation::FIRST
            }
        };
        let entry = [generation::change(None, generation)];
        outcome.messages += self.keeper.write_known(nft, &declarations, &entry, &[])?;
        self.came_in_force(generation);
        self.keeper.complete_provided(nft);
        Ok(outcome)
    }

    /// Writes changes, and with them the next generation. Returns the number of messages.
    fn advance(
        &mut self,
        nft: &mut Connection,
        current: Generation,
        mut changes: Vec<Change>,
    ) -> Result<usize, Error> {
        let generation = self.next(current)?;
        changes.push(generation::change(Some(current), generation));
        self.generation = None;
        let messages = (self.keeper).write_known(nft, &declarations(), &changes, &[])?;
        self.came_in_force(generation);
        Ok(messages)
    }

    /// Replaces the whole table with all elements in one transaction: for elements that
    /// cannot be taken out one by one, and where a transaction of them is too large.
    fn renew(
        &mut self,
        nft: &mut Connection,
        skeleton: &Skeleton,
        desired: &Desired,
        current: Generation,
    ) -> Result<Outcome, Error> {
        let generation = self.next(current)?;
        self.generation = None;
        let entry = (ENTRY.to_owned(), generation.elements());
        let provider: &dyn Provider = desired;
        let outcome = self.keeper.renew(nft, skeleton, Some(entry), provider)?;
        self.came_in_force(generation);
        Ok(outcome)
    }

    fn write_delta(
        &mut self,
        nft: &mut Connection,
        current: Generation,
        delta: &Delta,
    ) -> Result<Option<Outcome>, Error> {
        let Steps {
            before,
            mut at_once,
            after,
        } = Steps::of(delta);
        let mut generation = current;
        if delta.verdicts.takes_away {
            generation = self.next(current)?;
            at_once.push(generation::change(Some(current), generation));
        }
        let declarations = declarations();
        let each = |changes: Vec<Change>| changes.into_iter().map(|change| vec![change]);
        // After an error it is not known which generation is in force.
        self.generation = None;
        let transactions = each(before).chain([at_once]);
        let mut outcome = self.keeper.follow(nft, &declarations, transactions)?;
        match outcome {
            Some(_) if generation != current => self.came_in_force(generation),
            _ => self.generation = Some(current),
        }
        if let Some(before) = outcome {
            let after = self.keeper.follow(nft, &declarations, each(after))?;
            outcome = after.map(|after| before + after);
        }
        self.marks.clear_in_time(self.generation.unwrap_or(current));
        Ok(outcome)
    }
}

impl PolicyTable {
    /// A plan that is not active has no table.
    fn reconcile_all(
        &mut self,
        nft: &mut Connection,
        desired: &Desired,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        if !desired.verdicts.active {
            return self.remove(nft);
        }
        let skeleton = skeleton(self.log);
        let entry = self.read_generation(nft)?;
        // Elements that are not in force yet are written in parts.
        let is_in_force = self.generation.is_some();
        let provider = is_in_force.then_some(desired as &dyn Provider);
        let rules = (self.keeper).reconcile(nft, &skeleton, entry, provider, force_observe)?;
        Ok(rules + self.reconcile_sets(nft, &skeleton, desired)?)
    }

    /// After a failure it is not known what the kernel has taken.
    fn tell_of_failure<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.inspect_err(|_| (self.on_in_force)(InForce::Unknown))
    }
}

impl Table for PolicyTable {
    type Desired = Desired;
    type Delta = Delta;

    const KEY: TableKey<'static> = POLICY_TABLE;

    fn reconcile(
        &mut self,
        nft: &mut Connection,
        desired: &Desired,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        let reconciled = self.reconcile_all(nft, desired, force_observe);
        self.tell_of_failure(reconciled)
    }

    fn follow(&mut self, nft: &mut Connection, delta: &Delta) -> Result<Option<Outcome>, Error> {
        let Some(current) = self.generation.filter(|_| self.keeper.knows_provided()) else {
            return Ok(None);
        };
        let followed = self.write_delta(nft, current, delta);
        if followed.is_err() {
            self.forget();
        }
        self.tell_of_failure(followed)
    }

    fn restore(&mut self, nft: &mut Connection) -> Result<Outcome, Error> {
        self.keeper.look_at(nft)?;
        let entry = self.read_generation(nft)?;
        if self.generation.is_none() {
            return Ok(Outcome::default());
        }
        self.keeper.restore(nft, &skeleton(self.log), entry)
    }

    fn keeper(&mut self) -> &mut Keeper {
        &mut self.keeper
    }

    fn remove(&mut self, nft: &mut Connection) -> Result<Outcome, Error> {
        self.generation = None;
        self.lost = None;
        self.marks = Marks::default();
        let removed = self.keeper.remove(nft);
        let removed = self.tell_of_failure(removed)?;
        (self.on_in_force)(InForce::Nothing);
        Ok(removed)
    }
}
