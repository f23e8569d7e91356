//! How the tables of policies, Services and the overlay are planned and written. Pods that
//! wait to be judged, and clients of Services, are served before all else.

use std::{sync::Arc, time::Instant};

use tweed_component::Progress;
use tweed_planner::policy::Delta as PolicyDelta;
use tweed_planner::services::desired::Delta as ServicesDelta;

use super::kernel::mirror::MirrorPart;
use super::outcome::Outcome;
use super::schedule::{Due, ResyncTarget};
use super::{Reconcilers, tables::Planned};
use crate::judgements::Verdict;
use crate::policy::index::PolicyIndex;
use crate::serve::status::Reporter;
use crate::services::index::ServiceIndex;

impl Reconcilers {
    /// Judges pods that were added, and those that wait for something that is known by
    /// now, and answers for them: by their records alone, while all else stays as it is.
    /// An ADD waits for this, so it comes before and within a reconcile. What it cannot
    /// do is left to the next reconcile.
    pub fn judge_added(&mut self) {
        let state = Arc::clone(&self.state);
        let judgements = state.judgements();
        if !judgements.has_any() {
            return;
        }
        let Some(mut index) = state.policy() else {
            return;
        };
        let is_known = self.policy.is_in_force(&index);
        let is_due = judgements.has_new() || index.has_changed();
        if self.judges_later || !is_known || !is_due {
            return;
        }
        let added = judgements.take_up_new();
        if let Err(error) = self.pods.read_records(&added) {
            // The stores are read again by the next reconcile, which reports it.
            tracing::debug!(%error, "a pod that was added is judged by the next reconcile");
            self.judges_later = true;
            return;
        }
        self.write_policy(&mut index);
    }

    /// Whether [`Self::follow_policy`] has anything to do.
    pub fn can_follow_policy(&self) -> bool {
        if self.judges_later {
            return false;
        }
        let index = self.state.policy();
        index.is_some_and(|index| index.has_changed() && self.policy.is_in_force(&index))
    }

    /// Makes the table follow the policies, while all else stays as it is and a reconcile is
    /// put off because something else fails: what was denied would pass for so long. What it
    /// cannot do is left to the reconcile. Says whether there was anything to do.
    pub fn follow_policy(&mut self) -> bool {
        if !self.can_follow_policy() {
            return false;
        }
        let state = Arc::clone(&self.state);
        let Some(mut index) = state.policy() else {
            return false;
        };
        self.write_policy(&mut index);
        true
    }

    /// Plans policies, writes what has changed, and answers for pods that wait for it.
    fn write_policy(&mut self, index: &mut PolicyIndex) {
        let planned = self.plan_policy(index);
        if self.tables.follow_policy(&planned) {
            self.policy.written(Some(index));
        } else {
            self.judges_later = true;
        }
        let judgements = self.state.judgements();
        judgements.settle(|judge| self.policy.verdict(index, judge));
    }

    /// Whether [`Self::follow_services`] has anything to do.
    pub fn can_follow_services(&self) -> bool {
        let is_known = self.services.is_in_force();
        let index = is_known.then(|| self.state.services()).flatten();
        index.is_some_and(|index| index.has_changed())
    }

    /// Makes the table follow the Services, while all else stays as it is: clients wait for
    /// this, so it comes before a reconcile, and while one is put off because something else
    /// fails. What it cannot do is left to the reconcile. Says whether there was anything to
    /// do.
    pub fn follow_services(&mut self) -> bool {
        if !self.can_follow_services() {
            return false;
        }
        let state = Arc::clone(&self.state);
        let Some(mut index) = state.services() else {
            return false;
        };
        let planned = self.plan_services(&mut index);
        if self.tables.follow_services(&planned) {
            self.services.written(&index);
            self.delete_stale_flows(&index, false);
        }
        true
    }

    /// When [`Self::walk_conntrack`] has something to do, if it is not woken before.
    pub fn walk_at(&self, now: Instant) -> Option<Instant> {
        let at = self.conntrack.due_at(now);
        at.filter(|_| self.services.is_in_force())
    }

    /// Takes up a walk through conntrack that has ended, and begins one that is due: flows
    /// to endpoints that are gone wait for it, whatever else fails.
    pub fn walk_conntrack(&mut self, now: Instant) {
        if !self.conntrack.is_due(now) {
            return;
        }
        let state = Arc::clone(&self.state);
        if let Some(index) = state.services() {
            self.delete_stale_flows(&index, false);
        }
    }

    /// Gives the planner of Services what it needs of the Nodes, and has it plan. Meanwhile the runtime's
    /// thread can read the stores: a plan may take long.
    fn plan_services(&mut self, index: &mut ServiceIndex) -> Planned<ServicesDelta> {
        let (planner, state) = (&self.planner, &self.state);
        (self.services).update_nodes(index, &state.read().nodes, planner);
        (self.services).plan(index, &mut self.tables, &mut self.conntrack)
    }

    /// Has conntrack forget what does not lead to endpoints, if the plan of Services is in
    /// force. With `look` that does not depend on what has changed.
    fn delete_stale_flows(&mut self, index: &ServiceIndex, look: bool) {
        if self.services.is_in_force() {
            // After a failure the mirror may be empty until the next reconcile: then flows to
            // node ports would not be known as such.
            let knows_addresses = self.kernel.is_known(MirrorPart::Addresses);
            let addresses = self.kernel.mirror().addresses.keys();
            let addresses = addresses.map(|key| key.network.ip());
            let addresses = knows_addresses.then_some(addresses);
            let desired = index.planner.desired();
            (self.conntrack).reconcile(desired, addresses, look, Instant::now());
        }
    }

    /// Gives the planner of policies what this machine knows, and has it plan.
    fn plan_policy(&mut self, index: &mut PolicyIndex) -> Planned<PolicyDelta> {
        let network = self.planner.network().map(Arc::as_ref);
        (self.policy).update_nodes(index, &self.state.read().nodes, &self.planner);
        (self.policy).update_local(index, &self.pods, network, &self.kernel);
        self.policy.plan(index, Instant::now())
    }

    /// Plans policies and Services and makes the tables as all plans say. A pod's first
    /// packet meets an isolated address whatever the order, so policies need no turn
    /// before the pods' routes.
    pub(super) fn reconcile_tables(&mut self, due: Due) -> Outcome {
        let mut outcome = Outcome::default();
        let resync = due.has(ResyncTarget::Nftables);
        // The table of an earlier version is replaced once all others are ready.
        let was_joint = self.tables.is_joint();
        if !was_joint {
            outcome.merge(self.reconcile_overlay(resync));
        }
        let state = Arc::clone(&self.state);
        let (mut policies, mut services) = (state.policy(), state.services());
        let off = (policies.is_none(), services.is_none());
        outcome.merge(self.tables.remove(off.0, off.1));
        if let Some(index) = &mut policies {
            outcome.merge(self.reconcile_policy(index, resync));
            if let Some(dropped) = due.poll.then(|| self.tables.dropped()).flatten() {
                self.policy.count_dropped(dropped);
            }
            outcome.merge(self.policy.report(index, Instant::now()));
            self.sources_reported &= self.policy.has_reported(index);
        }
        if let Some(index) = &mut services {
            outcome.merge(self.reconcile_services(index, resync));
            if let Some(refused) = due.poll.then(|| self.tables.refused()).flatten() {
                self.services.count_refused(refused);
            }
            outcome.merge(self.services.report(index));
            outcome.problems.extend(self.conntrack.report());
            self.sources_reported &= self.services.has_reported(index);
        }
        if was_joint {
            outcome.merge(self.reconcile_overlay(resync));
            // What the others have planned is in force with the next pass.
            let is_switched = !self.tables.is_joint();
            outcome.retry.poll_by = is_switched.then(Instant::now).or(outcome.retry.poll_by);
        }
        let of_policies = policies.iter().flat_map(|index| index.absent());
        let of_services = services.iter().flat_map(|index| index.absent());
        let notes = of_policies.chain(of_services);
        self.board.set_notes(Reporter::Pass, notes.collect());
        outcome
    }

    /// Writes the table of the overlay, if there is a network.
    fn reconcile_overlay(&mut self, resync: bool) -> Outcome {
        let Some(network) = self.planner.network().cloned() else {
            return Outcome::default();
        };
        let links = self.pods.links(&self.kernel);
        (self.tables).write_overlay(&self.planner, &network, &links, resync)
    }

    /// Plans policies and writes their table.
    fn reconcile_policy(&mut self, index: &mut PolicyIndex, resync: bool) -> Outcome {
        let has_rules = || self.tables.has_policies();
        let asks = self.state.judgements();
        let mut outcome = self.policy.mark(index, &mut self.pods, asks, has_rules);
        let planned = self.plan_policy(index);
        if self.policy.progress() == Progress::Unknown {
            return outcome;
        }
        let desired = index.planner.desired();
        let table = self.tables.write_policy(&planned, desired, resync);
        if table.failed() {
            self.policy.failed();
        } else if !self.tables.is_joint() {
            outcome.problems.extend(self.policy.written(Some(index)));
        }
        outcome.merge(table);
        outcome
    }

    /// Plans Services and writes their table.
    fn reconcile_services(&mut self, index: &mut ServiceIndex, resync: bool) -> Outcome {
        let planned = self.plan_services(index);
        // If the table is gone, the next one has no elements to begin with.
        self.services.observe(&mut self.tables);
        // What gives the node its pod CIDR or address may be a client of a Service. A table
        // that knows this node's pods stays until these are known.
        let has_network = self.planner.network().is_some();
        let stays = !has_network && self.tables.serves_local_pods();
        self.metrics.service_sync.set_network(has_network || stays);
        if stays {
            self.metrics.service_sync.waits(Instant::now());
            return Outcome::default();
        }
        if self.services.progress() == Progress::Unknown {
            return Outcome::default();
        }
        let desired = index.planner.desired();
        let table = self.tables.write_services(&planned, desired, resync);
        if table.failed() {
            self.services.failed();
            self.services.observe(&mut self.tables);
        } else if self.tables.is_joint() {
            self.metrics.service_sync.waits(Instant::now());
        } else {
            self.services.written(index);
            // What is put back had let flows through that nobody translated.
            let look = resync || !table.written.is_empty();
            self.delete_stale_flows(index, look);
        }
        table
    }

    /// Answers those who wait for a pod to be judged.
    pub(super) fn settle_judgements(&self) {
        let judgements = self.state.judgements();
        match self.state.policy() {
            Some(index) => judgements.settle(|judge| self.policy.verdict(&index, judge)),
            None => judgements.settle(|_| Verdict::NotInForce),
        }
    }
}
