//! The table in the kernel.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use tokio_util::sync::CancellationToken;
use tweed_core::family::Family;
use tweed_netlink::nf::Membership;
use tweed_planner::overlay::desired::Ruleset;
use tweed_planner::policy::desired::{Delta as PolicyDelta, Desired as PolicyDesired};
use tweed_planner::services::KnownNumbers;
use tweed_planner::services::desired::{Delta as ServicesDelta, Endpoint, Number};

use super::components::{Components, Left, Provided, Wanted};
use super::inner::{self, InnerPrefix};
use super::kept::Kept;
use super::policy::{self, Policy};
use super::services;
use super::{BASELINE, TABLE, contents, sets, skeleton};
use crate::element::{Contents, Elements, diff};
use crate::error::Error;
use crate::reconcile::{Outcome, Reconciler};
use crate::table::Set;

/// The table in the kernel, for one thread in one network namespace.
pub struct Table {
    pub(super) reconciler: Reconciler,
    /// Which sets of sources inside of VXLAN the table was last made with.
    prefixes: BTreeSet<InnerPrefix>,
    policy: policy::Writer,
    services: services::Writer,
    /// What was left as it is in the last reconcile, though it was desired otherwise.
    left: Left,
    /// Whether the last reconcile has left the table of another version as it is.
    keeps_earlier: bool,
    /// Whether that has nothing of policy, and nothing is desired.
    lacks_policy: bool,
}

impl Table {
    /// Opens the sockets, in the calling thread's network namespace, and
    /// changes nothing. `run_dir` must exist; `nft` is the program, looked for
    /// in `PATH` if it is a plain name.
    ///
    /// # Errors
    /// [`Error::NoNfTables`], [`Error::NotAllowed`].
    pub fn open(run_dir: &Path, nft: &Path) -> Result<Self, Error> {
        Ok(Self {
            reconciler: Reconciler::open(TABLE, nft, &run_dir.join(BASELINE))?,
            prefixes: BTreeSet::new(),
            policy: policy::Writer::default(),
            services: services::Writer::default(),
            left: Left::default(),
            keeps_earlier: false,
            lacks_policy: false,
        })
    }

    /// Does not wait for a program `nft` that hangs when `stop` is cancelled.
    #[must_use]
    pub fn stopped_by(self, stop: CancellationToken) -> Self {
        Self {
            reconciler: self.reconciler.stopped_by(stop),
            ..self
        }
    }

    /// [`Reconciler::pause_with`]
    pub fn pause_with(&mut self, other: Option<Membership>) {
        self.reconciler.pause_with(other);
    }

    /// Reads the notifications that are there, and takes up looks that have ended; never
    /// waits. Returns whether something else has changed the table since
    /// [`Self::reconcile`] looked at it.
    ///
    /// # Errors
    /// The socket cannot be read, or a look cannot be repeated.
    pub fn drain_notifications(&mut self) -> Result<bool, Error> {
        let is_touched = self.reconciler.drain_notifications()?;
        Ok(self.take_up_looks()? || is_touched)
    }

    /// Takes up looks at the sets of components that have ended. Returns whether one has
    /// found what [`Self::reconcile_all`] has to compare.
    fn take_up_looks(&mut self) -> Result<bool, Error> {
        let policy = self.policy.sets.take_up_look(&self.reconciler)?;
        let services = self.services.sets.take_up_look(&self.reconciler)?;
        Ok(policy || services)
    }

    /// [`Self::reconcile_all`] without Services. Without policy, or with one that is not
    /// active, there are no rules of policy in the table.
    ///
    /// # Errors
    /// The first failure; the next call then looks at everything again.
    pub fn reconcile(
        &mut self,
        ruleset: &Ruleset,
        policy: Option<Policy<'_>>,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        let components = Components {
            policy: policy.map_or(Wanted::No, |policy| Wanted::As(policy.desired)),
            log: policy.is_some_and(|policy| policy.log),
            services: Wanted::No,
        };
        self.reconcile_all(ruleset, &components, force_observe)
    }

    /// Makes the table as `ruleset` and `components` say: [`Reconciler::reconcile`].
    ///
    /// The sets of a component are trusted to hold what was last written to them. They
    /// are compared with what is desired when that is not known, and after
    /// [`Self::forget_policy`] or [`Self::forget_services`]. With `force_observe` a look at
    /// one of them in turn begins, by a thread of its own; if it finds a difference,
    /// [`Self::drain_notifications`] says so, and the next call compares that set.
    ///
    /// The rules of another version stay while a component is to be left as it is whose sets
    /// are others there: [`Self::keeps_earlier`]. What is desired of another component comes
    /// into force under them if all its sets are the same there; otherwise it is not written,
    /// and this is no error ([`Self::knows_policy`], [`Self::knows_services`]).
    ///
    /// # Errors
    /// The first failure; the next call then looks at everything again, but for a component
    /// whose sets were written. What is refused of one component, be it elements or rules,
    /// keeps the other from nothing: [`Self::knows_policy`], [`Self::knows_services`].
    pub fn reconcile_all(
        &mut self,
        ruleset: &Ruleset,
        components: &Components<'_>,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        let components = components.without_inactive();
        self.left = Left::default();
        let refusal = match self.make(ruleset, &components, force_observe) {
            Err(error) if error.is_of_nft() => error,
            made => return made,
        };
        // What is refused may be of one component: all else needs no other rules.
        self.left = Left {
            policy: true,
            services: true,
        };
        for (components, left) in components.with_one_as_it_is() {
            match self.make(ruleset, &components, force_observe) {
                Err(error) if error.is_of_nft() => {}
                made => {
                    self.left = left;
                    return Err(refusal.and(made.err()));
                }
            }
        }
        Err(refusal)
    }

    fn make(
        &mut self,
        ruleset: &Ruleset,
        components: &Components<'_>,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        self.prefixes = inner::prefixes(ruleset);
        let of_nodes = contents(&self.prefixes, ruleset);
        let mut contents = of_nodes.clone();
        let kept_policy = Kept::new(policy::provided());
        let kept_services = Kept::new(services::provided());
        let is_policed = self.enter_policy(components, &mut contents)?;
        let (timeouts, are_served) = self.enter_services(components)?;
        if timeouts.is_some() {
            contents.extend(services::contents());
        }
        let as_it_is = PolicyDesired {
            active: true,
            ..PolicyDesired::default()
        };
        let policy = match components.policy {
            Wanted::No => None,
            Wanted::AsItIs => is_policed.then_some(&as_it_is),
            Wanted::As(desired) => Some(desired),
        };
        let log = components.log;
        let policy = policy.map(|desired| Policy { desired, log });
        let skeleton = skeleton(ruleset, policy, timeouts.as_ref());
        // Sets of a component that is not in force yet begin empty.
        let provided = Provided {
            policy: is_policed.then(|| components.policy.provider(&kept_policy)),
            services: are_served.then(|| components.services.provider(&kept_services)),
        };
        let reconciler = &mut self.reconciler;
        let has_policy = is_policed || reconciler.earlier_has(policy::PREFIX);
        let has_services = are_served || reconciler.earlier_has(services::PREFIX);
        let unknown = components.unknown(has_policy, has_services);
        let left = reconciler.leave_earlier(&skeleton, &unknown, &of_nodes)?;
        self.keeps_earlier = left.is_some();
        let mut outcome = match left {
            Some(outcome) => outcome,
            None => reconciler.reconcile(&skeleton, contents, Some(&provided), force_observe)?,
        };
        self.lacks_policy = self.keeps_earlier && components.policy.is_no() && !has_policy;
        let (takes_policy, takes_services) = self.takes(components)?;
        let reconciler = &mut self.reconciler;
        let provider = &Provided {
            policy: Some(components.policy.provider(&kept_policy)),
            services: Some(components.services.provider(&kept_services)),
        };
        if let Wanted::AsItIs = components.policy {
            self.policy.sets.drop_suspicion();
        }
        if let Wanted::AsItIs = components.services {
            self.services.sets.drop_suspicion();
        }
        let mut failed = None;
        if let (Wanted::As(desired), true) = (components.policy, takes_policy) {
            let start = policy::Start {
                skeleton: &skeleton,
                desired,
                provider,
                force_observe,
            };
            // A refusal is no reason for Services to stay as they were.
            match self.policy.reconcile(reconciler, &start) {
                Ok(policy) => outcome = outcome + policy,
                Err(error) => failed = Some(error),
            }
        }
        if let (Wanted::As(desired), true) = (components.services, takes_services) {
            let start = services::Start {
                skeleton: &skeleton,
                desired,
                provider,
                force_observe,
            };
            match self.services.reconcile(reconciler, &start) {
                Ok(services) => outcome = outcome + services,
                Err(error) => {
                    failed = Some(match failed {
                        Some(first) => first.and(Some(error)),
                        None => error,
                    });
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(outcome),
        }
    }

    /// Whether the table takes the elements of policy, and those of Services: that of another
    /// version does if all sets of the component mean the same there.
    fn takes(&mut self, components: &Components<'_>) -> Result<(bool, bool), Error> {
        if !self.keeps_earlier {
            return Ok((true, true));
        }
        let reconciler = &mut self.reconciler;
        let is_alike = |sets: Vec<Set>| reconciler.declares_alike(&sets);
        let policy = is_alike(policy::declarations().collect());
        let mut services = is_alike(services::declarations().collect());
        if let Wanted::As(desired) = components.services {
            // Rules that stay have no chains for other timeouts of affinity.
            let used = self.services.used_timeouts(reconciler)?;
            services &= services::timeouts(desired).is_subset(&used);
        }
        Ok((policy, services))
    }

    /// Reads which generation of policy is in force, and puts its entry into `contents`.
    /// Returns whether there is one.
    fn enter_policy(
        &mut self,
        components: &Components<'_>,
        contents: &mut Contents,
    ) -> Result<bool, Error> {
        if components.policy.is_no() {
            self.policy.reset();
            return Ok(false);
        }
        let mut with_entry = contents.clone();
        let is_in_force = self.policy.enter(&mut self.reconciler, &mut with_entry)?;
        if is_in_force || matches!(components.policy, Wanted::As(_)) {
            *contents = with_entry;
        }
        Ok(is_in_force)
    }

    /// The timeouts of affinity that there are to be chains for, if Services are to be in
    /// the table; and whether they are in it.
    fn enter_services(
        &mut self,
        components: &Components<'_>,
    ) -> Result<(Option<BTreeSet<u32>>, bool), Error> {
        if components.services.is_no() {
            self.services.reset();
            return Ok((None, false));
        }
        let reconciler = &mut self.reconciler;
        let is_in_force = self.services.is_in_force(reconciler)?;
        let mut timeouts = match is_in_force {
            true => Some(self.services.used_timeouts(reconciler)?),
            false => None,
        };
        if let Wanted::As(desired) = components.services {
            let used = timeouts.get_or_insert_default();
            used.extend(services::timeouts(desired));
        }
        Ok((timeouts, is_in_force))
    }

    /// Makes the sets of policy follow a change of the plan, in one transaction, or in
    /// several where that makes no difference to packets. None if they are not known to hold
    /// what was desired before, or policy is not in force: then [`Self::reconcile`] has to look.
    /// It is None too if somebody else changes the table between two transactions: a part of
    /// the change is in the sets then.
    ///
    /// # Errors
    /// The change was not written, or only a part of it; the next call of [`Self::reconcile`]
    /// then compares all sets of policy.
    pub fn follow_policy(&mut self, delta: &PolicyDelta) -> Result<Option<Outcome>, Error> {
        let followed = self.policy.follow(&mut self.reconciler, delta);
        if followed.is_err() {
            self.forget_policy();
        }
        followed
    }

    /// Makes the sets of Services follow a change of the plan, in one transaction, or in
    /// three where source ranges change. None if they are not known to hold what was desired
    /// before, or a timeout of affinity is new: then [`Self::reconcile_all`] has to look. It
    /// is None too if somebody else changes the table between two transactions: a part of the
    /// change is in the sets then.
    ///
    /// # Errors
    /// The change was not written, or only a part of it; the next call of
    /// [`Self::reconcile_all`] then compares all sets of Services.
    pub fn follow_services(&mut self, delta: &ServicesDelta) -> Result<Option<Outcome>, Error> {
        let followed = self.services.follow(&mut self.reconciler, delta);
        if followed.is_err() {
            self.forget_services();
        }
        followed
    }

    /// Whether the table has a pod CIDR of this node, and so protects pods: that of an
    /// earlier run does, or one that was made with a network.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn has_local_cidrs(&mut self) -> Result<bool, Error> {
        for set in sets::of_local_cidrs() {
            let is_there = self.reconciler.has_set(&set.name)?;
            if is_there && self.reconciler.elements(&set)? != Some(Elements::default()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What the numbers of Services mean that the table has, from an earlier run too, and
    /// what its groups hold: the first plan takes them over, so that clients keep their
    /// endpoints and nothing is written again. Each map is listed once.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn service_numbers(&mut self) -> Result<KnownNumbers, Error> {
        self.services.known_numbers(&mut self.reconciler)
    }

    /// Which endpoints a group of Services of a family has in the table, from an earlier run
    /// too.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    pub fn service_endpoints(
        &mut self,
        family: Family,
        group: Number,
    ) -> Result<BTreeSet<Endpoint>, Error> {
        let reconciler = &mut self.reconciler;
        self.services.known_endpoints(reconciler, family, group)
    }

    /// Says that what policy desires has changed and it is not known how: the next
    /// [`Self::reconcile`] compares all its sets, and judges all flows anew if one differs.
    pub fn forget_policy(&mut self) {
        self.policy.sets.forget();
    }

    /// Whether the last reconcile has left the rules of another version in force, because it
    /// is not known yet what a component should have whose sets are others there.
    #[must_use]
    pub fn keeps_earlier(&self) -> bool {
        self.keeps_earlier
    }

    /// Whether the sets of policy are known to hold what was last desired: where something
    /// else of the table was refused, too.
    #[must_use]
    pub fn knows_policy(&self) -> bool {
        let is_known = self.lacks_policy || self.policy.sets.are_known(&self.reconciler);
        !self.left.policy && is_known
    }

    /// Whether the sets of Services are known to hold what was last desired: where something
    /// else of the table was refused, too.
    #[must_use]
    pub fn knows_services(&self) -> bool {
        !self.left.services && self.services.sets.are_known(&self.reconciler)
    }

    /// Says that what Services desire has changed and it is not known how: the next
    /// [`Self::reconcile_all`] compares all their sets.
    pub fn forget_services(&mut self) {
        self.services.sets.forget();
    }

    /// Makes the sets follow a change of the Nodes: elements of `removed` that
    /// `added` has not are deleted, those of `added` are added. None if the sets are
    /// not known to hold what was desired before, or one is missing for a prefix that
    /// is new, or a look has found a difference: then [`Self::reconcile`] has to look. A
    /// set whose last element goes stays until then.
    ///
    /// # Errors
    /// The change was refused; the next call then looks at everything again.
    pub fn follow(&mut self, removed: &Ruleset, added: &Ruleset) -> Result<Option<Outcome>, Error> {
        if self.take_up_looks()? {
            return Ok(None);
        }
        let prefixes = &self.prefixes;
        if !inner::prefixes_of_sources(added).all(|prefix| prefixes.contains(&prefix)) {
            return Ok(None);
        }
        let changes = diff(&contents(prefixes, removed), &contents(prefixes, added));
        self.reconciler.follow(&sets(prefixes), changes)
    }
}

impl AsFd for Table {
    /// Readable when notifications are there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reconciler.as_fd()
    }
}
