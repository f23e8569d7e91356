//! What policies, Services and the overlay have in common: the table `inet tweed`. Pods
//! that wait to be judged, and clients of Services, are served before all else.

use std::{sync::Arc, time::Instant};

use tweed_planner::policy::Step;
use tweed_planner::services::Step as ServiceStep;

use super::kernel::mirror::MirrorPart;
use super::nft::Targets;
use super::outcome::Outcome;
use super::schedule::{Due, ResyncTarget};
use super::{Reconcilers, target::Target};
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
        let is_known = self.policy.is_in_force(&index) && self.nft.agrees_with_policy();
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
        if self.judges_later || !self.nft.agrees_with_policy() {
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
        let step = self.plan_policy(index);
        let target = self.policy.target(index, &step);
        if self.nft.follow_policy(target) {
            self.policy.written(Some(index));
        } else {
            self.judges_later = true;
        }
        let judgements = self.state.judgements();
        judgements.settle(|judge| self.policy.verdict(index, judge));
    }

    /// Whether [`Self::follow_services`] has anything to do.
    pub fn can_follow_services(&self) -> bool {
        let is_known = self.services.is_in_force() && self.nft.agrees_with_services();
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
        let step = self.plan_services(&mut index);
        let target = self.services.target(&index, &step);
        if self.nft.follow_services(target) {
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
    fn plan_services(&mut self, index: &mut ServiceIndex) -> ServiceStep {
        let (planner, state) = (&self.planner, &self.state);
        (self.services).update_nodes(index, &state.read().nodes, planner);
        (self.services).plan(index, &mut self.nft, &mut self.conntrack)
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
    fn plan_policy(&mut self, index: &mut PolicyIndex) -> Step {
        let network = self.planner.network().map(Arc::as_ref);
        (self.policy).update_nodes(index, &self.state.read().nodes, &self.planner);
        (self.policy).update_local(index, &self.pods, network, &self.kernel);
        self.policy.plan(index, Instant::now())
    }

    /// Plans policies and Services and makes the table as all plans say. A pod's first
    /// packet meets an isolated address whatever the order, so policies need no turn
    /// before the pods' routes.
    pub(super) fn reconcile_table(&mut self, due: Due) -> Outcome {
        let mut outcome = Outcome::default();
        let state = Arc::clone(&self.state);
        let links = self.pods.links(&self.kernel);
        let resync = due.has(ResyncTarget::Nftables);
        let mut policies = state.policy();
        if let Some(index) = &mut policies {
            let has_rules = || self.nft.has_policies();
            let asks = state.judgements();
            outcome.merge(self.policy.mark(index, &mut self.pods, asks, has_rules));
        }
        let step = policies.as_mut().map(|index| self.plan_policy(index));
        let policy = match (&policies, &step) {
            (Some(index), Some(step)) => self.policy.target(index, step),
            _ => Target::Off,
        };
        let mut services = state.services();
        let step = services.as_mut().map(|index| self.plan_services(index));
        // If the table is gone, the next one has no elements of Services to begin with.
        self.services.observe(&mut self.nft);
        let targets = Targets {
            policy,
            services: match (&services, &step) {
                (Some(index), Some(step)) => self.services.target(index, step),
                _ => Target::Off,
            },
        };
        let network = self.planner.network().map(Arc::as_ref);
        // What gives the node its pod CIDR or address may be a client of a Service. A table
        // that protects pods already stays as an earlier run has left it.
        let serves = matches!(targets.services, Target::Planned { .. });
        self.keeps_table = network.is_some() || serves && !self.nft.has_local_cidrs();
        let has_network = network.is_some() || !self.keeps_table;
        self.metrics.service_sync.set_network(has_network);
        if self.keeps_table {
            let table = (self.nft).reconcile(&self.planner, network, &links, targets, resync);
            // What was refused may be Services alone.
            if self.nft.agrees_with_policy() {
                let problem = self.policy.written(policies.as_deref());
                outcome.problems.extend(problem);
            }
            match &services {
                // What was refused may be policy alone.
                Some(index) if self.nft.agrees_with_services() => {
                    self.services.written(index);
                    // What is put back had let flows through that nobody translated.
                    let look = resync || !table.written.is_empty();
                    self.delete_stale_flows(index, look);
                }
                // They wait until it is known which policies there are.
                _ if self.nft.keeps_earlier() && !table.failed() => {
                    self.metrics.service_sync.waits(Instant::now());
                }
                _ => {
                    self.services.failed();
                    self.services.observe(&mut self.nft);
                }
            }
            outcome.merge(table);
        } else {
            self.metrics.service_sync.waits(Instant::now());
        }
        let waits = self.nft.keeps_earlier();
        if let Some(index) = &policies {
            if let Some(dropped) = due.poll.then(|| self.nft.dropped()).flatten() {
                self.policy.count_dropped(dropped);
            }
            outcome.merge(self.policy.report(index, Instant::now()));
            self.sources_reported &= self.policy.has_reported(index, waits);
        }
        if let Some(index) = &services {
            if let Some(refused) = due.poll.then(|| self.nft.refused()).flatten() {
                self.services.count_refused(refused);
            }
            outcome.merge(self.services.report(index));
            outcome.problems.extend(self.conntrack.report());
            self.sources_reported &= self.services.has_reported(index, waits);
        }
        let of_policies = policies.iter().flat_map(|index| index.absent());
        let of_services = services.iter().flat_map(|index| index.absent());
        let notes = of_policies.chain(of_services);
        self.board.set_notes(Reporter::Pass, notes.collect());
        outcome
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
