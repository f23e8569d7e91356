//! Keeps the table of Services.
//!
//! - *What is only added* is written in chunks, in the order of [`super::sets`]: a first
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
use std::path::Path;

use nix::errno::Errno;
use tweed_core::family::Family;
use tweed_netlink::nf::object::TableKey;
use tweed_planner::services::KnownNumbers;
use tweed_planner::services::desired::{Delta, Desired};

use super::sets::{ALLOWED, ENDPOINTS, LIMITS, LOCAL_CIDRS, OPEN_TO_NODE, PARTS, TIMEOUTS};
use super::{clients, declarations, is_other, known_numbers, leads, rules, skeleton, timeouts};
use crate::connection::Connection;
use crate::element::{Change, Data, Element, Elements, ElementsDelta, Key};
use crate::error::Error;
use crate::keeper::{Keeper, Outcome};
use crate::provider::Provider;
use crate::schema;
use crate::table::Skeleton;
use crate::tables::{SERVICES_TABLE, Table, chunks, has_set, in_steps};
use crate::value::Value;

/// The file in the run folder that remembers how the kernel shows the whole table.
const BASELINE: &str = "nft-skeleton-services";

/// The table `inet tweed-services`, for one thread in one network namespace.
pub struct ServicesTable {
    keeper: Keeper,
    /// Whether dropped packets are logged.
    log: bool,
    /// Whether the numbers in the kernel are those of this run's planner, which has taken
    /// them over or made them.
    own_numbers: bool,
    /// The timeouts of affinity beside the default that were last desired; none if that is not
    /// known.
    timeouts: Option<BTreeSet<u32>>,
}

impl ServicesTable {
    /// Changes nothing yet. `run_dir` must exist. With `log` packets are logged before they
    /// are dropped.
    #[must_use]
    pub fn new(run_dir: &Path, log: bool) -> Self {
        Self {
            keeper: Keeper::new(SERVICES_TABLE, &run_dir.join(BASELINE)),
            log,
            own_numbers: false,
            timeouts: None,
        }
    }

    /// Whether the kernel has rules of Services, be it from an earlier run.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn is_there(&self, nft: &mut Connection) -> Result<bool, Error> {
        has_set(nft, SERVICES_TABLE, &PARTS.of(None).name())
    }

    /// Whether the kernel's table has a pod CIDR of this node, and so was made with a
    /// network.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn has_local_cidrs(&self, nft: &mut Connection) -> Result<bool, Error> {
        for family in Family::BOTH {
            let set = LOCAL_CIDRS.of(family).declaration();
            let is_there = has_set(nft, SERVICES_TABLE, &set.name)?;
            if is_there && self.keeper.elements(nft, &set)? != Some(Elements::default()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What the numbers mean that the table has, from an earlier run too, and what its groups
    /// hold: the first plan takes them over, so that clients keep their endpoints and nothing
    /// is written again. Each map is listed once.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn known_numbers(&mut self, nft: &mut Connection) -> Result<KnownNumbers, Error> {
        let known = if self.is_there(nft)? {
            known_numbers::read(|set| self.keeper.elements(nft, set))?
        } else {
            KnownNumbers::default()
        };
        self.own_numbers = true;
        Ok(known)
    }

    /// The timeouts of affinity, beside the default, that groups in the kernel's table lead to.
    /// Their chains have to stay until the groups lead elsewhere.
    fn used_timeouts(&self, nft: &mut Connection) -> Result<BTreeSet<u32>, Error> {
        if let Some(timeouts) = &self.timeouts {
            return Ok(timeouts.clone());
        }
        let map = TIMEOUTS.of(None).declaration();
        let seen = self.keeper.elements(nft, &map)?.unwrap_or_default();
        let verdicts = seen.values().flatten().filter_map(|data| match &**data {
            Data::Verdict(verdict) => rules::timeout(verdict),
            Data::Value(_) | Data::Values(_) => None,
        });
        Ok(verdicts.collect())
    }

    /// Makes the provided sets hold what is desired, after the rules have been reconciled.
    fn reconcile_sets(
        &mut self,
        nft: &mut Connection,
        skeleton: &Skeleton,
        desired: &Desired,
    ) -> Result<Outcome, Error> {
        if self.keeper.knows_provided() {
            return Ok(Outcome::default());
        }
        let Some(changes) = self
            .keeper
            .compare(nft, schema::declarations::<Desired>(), desired)?
        else {
            return self.keeper.renew(nft, skeleton, None, desired);
        };
        let mut outcome = self.keeper.outcome_of(&changes);
        match self.write(nft, changes) {
            Err(Error::Netlink(error)) if error.errno() == Some(Errno::EMSGSIZE) => {
                outcome.messages += (self.keeper).renew(nft, skeleton, None, desired)?.messages;
            }
            written => outcome.messages = written?,
        }
        self.keeper.complete_provided(nft);
        Ok(outcome)
    }

    /// Writes the changes. Returns the number of messages.
    fn write(&mut self, nft: &mut Connection, changes: Vec<Change>) -> Result<usize, Error> {
        let declarations = declarations();
        let only_adds = |change: &Change| change.delta.removed.is_empty();
        let mut messages = 0;
        if changes.iter().all(only_adds) {
            for chunk in changes.into_iter().flat_map(chunks) {
                messages += (self.keeper).write_known(nft, &declarations, &[chunk], &[])?;
            }
            return Ok(messages);
        }
        let clients = Family::BOTH.map(|family| clients::declaration(family).name);
        for changes in steps(changes) {
            let is_foreign = !self.own_numbers && changes.iter().any(is_renumbered);
            let flushed = if is_foreign { &clients[..] } else { &[] };
            messages += (self.keeper).write_known(nft, &declarations, &changes, flushed)?;
        }
        Ok(messages)
    }
}

impl Table for ServicesTable {
    type Desired = Desired;
    type Delta = Delta;

    const KEY: TableKey<'static> = SERVICES_TABLE;

    fn reconcile(
        &mut self,
        nft: &mut Connection,
        desired: &Desired,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        let is_there = has_set(nft, SERVICES_TABLE, &PARTS.of(None).name())?;
        let wanted = timeouts(desired);
        let mut chains = wanted.clone();
        if is_there {
            chains.extend(self.used_timeouts(nft)?);
        }
        let skeleton = skeleton(&chains, self.log);
        // Elements that are not in force yet are written in parts.
        let provider = is_there.then_some(desired as &dyn Provider);
        let leads = leads::contents();
        let rules = (self.keeper).reconcile(nft, &skeleton, leads, provider, force_observe)?;
        let sets = self.reconcile_sets(nft, &skeleton, desired)?;
        self.timeouts = Some(wanted);
        self.own_numbers = true;
        Ok(rules + sets)
    }

    /// In one transaction, or in three where source ranges change.
    fn follow(&mut self, nft: &mut Connection, delta: &Delta) -> Result<Option<Outcome>, Error> {
        let has_chain = |timeout| {
            let known = self.timeouts.as_ref();
            !is_other(timeout) || known.is_some_and(|known| known.contains(timeout))
        };
        let mut timeouts = delta.affinities.added.values();
        if !timeouts.all(has_chain) || !self.keeper.knows_provided() {
            return Ok(None);
        }
        let steps = steps(schema::changes::<Desired>(delta));
        let followed = self.keeper.follow(nft, &declarations(), steps);
        if followed.is_err() {
            self.forget();
        }
        followed
    }

    fn restore(&mut self, nft: &mut Connection) -> Result<Outcome, Error> {
        self.keeper.look_at(nft)?;
        if !has_set(nft, SERVICES_TABLE, &PARTS.of(None).name())? {
            return Ok(Outcome::default());
        }
        let skeleton = skeleton(&self.used_timeouts(nft)?, self.log);
        self.keeper.restore(nft, &skeleton, leads::contents())
    }

    fn keeper(&mut self) -> &mut Keeper {
        &mut self.keeper
    }

    fn remove(&mut self, nft: &mut Connection) -> Result<Outcome, Error> {
        self.own_numbers = false;
        self.timeouts = None;
        self.keeper.remove(nft)
    }
}

/// Whether a number becomes another endpoint's.
fn is_renumbered(change: &Change) -> bool {
    let numbers = Family::BOTH.map(|family| ENDPOINTS.of(family).name());
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
    let limits = Family::BOTH.map(|family| LIMITS.of(family).name());
    let passing = ALLOWED.sets().chain(OPEN_TO_NODE.sets());
    let passing: Vec<String> = passing.map(|set| set.name()).collect();
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
        let numbers = |elements: &[Element]| elements.iter().map(number).collect::<BTreeSet<_>>();
        let (removed, added) = (numbers(&change.delta.removed), numbers(&change.delta.added));
        let comes_before = |element: &Element| {
            let number = number(element);
            !removed.contains(&number) && !lost.contains(&number)
        };
        let goes_after = |element: &Element| {
            let number = number(element);
            !added.contains(&number) && !gained.contains(&number)
        };
        let changes = in_steps(change, comes_before, goes_after);
        for (step, change) in [&mut before, &mut at_once, &mut after]
            .into_iter()
            .zip(changes)
        {
            step.extend((!change.delta.is_empty()).then_some(change));
        }
    }
    let steps = [before, at_once, after].into_iter();
    steps.filter(|step| !step.is_empty()).collect()
}

/// The limit of an element of [`ALLOWED`] or [`OPEN_TO_NODE`].
fn number((key, _): &Element) -> Option<Value> {
    key.fields().first().map(|field| field.first)
}

/// The limit in the data of an element of [`LIMITS`].
fn limit((_, data): &Element) -> Option<Value> {
    data.as_deref()?.values()?.first().copied()
}
