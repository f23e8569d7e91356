//! When the components with a table of their own are planned and written. Pods that wait to
//! be enforced, and clients of Services, are served before all else.

use std::{sync::Arc, time::Instant};

use super::Reconcilers;
use super::component::{self, Component, Facts};
use super::outcome::Outcome;
use super::policy::PolicyReconciler;
use super::schedule::{Due, ResyncTarget};
use super::services::ServiceReconciler;
use crate::enforce::{self, Verdict};
use crate::index::PolicyIndex;
use crate::serve::status::Reporter;
use crate::state::State;

impl Reconcilers {
    /// The components, and what all of them are given.
    fn components<'a>(
        &'a mut self,
        state: &'a State,
    ) -> (
        &'a mut PolicyReconciler,
        &'a mut ServiceReconciler,
        Facts<'a>,
    ) {
        let facts = Facts {
            state,
            overlay: &self.planner,
            kernel: &self.kernel,
            pods: &mut self.pods,
            tables: &mut self.tables,
        };
        (&mut self.policy, &mut self.services, facts)
    }

    /// Judges pods that were added, and those that wait for something that is known by
    /// now, and answers for them: by their records alone, while all else stays as it is.
    /// An ADD waits for this, so it comes before and within a reconcile. What it cannot
    /// do is left to the next reconcile.
    pub fn enforce_added(&mut self) {
        let state = Arc::clone(&self.state);
        let waiting_pods = state.waiting_pods();
        if !waiting_pods.has_any() {
            return;
        }
        let Some(mut index) = state.policy() else {
            return;
        };
        let is_due = waiting_pods.has_new() || index.has_changed();
        if self.policy.enforces_later || !self.policy.is_in_force(&index) || !is_due {
            return;
        }
        waiting_pods.take_up();
        if self.pods.read_stores(false).failed() {
            // The next reconcile reads them again, and reports it.
            self.policy.enforces_later = true;
            return;
        }
        self.follow_policy(&state, &mut index);
    }

    /// Makes the table follow the policies, and answers for pods that wait for it.
    fn follow_policy(&mut self, state: &State, index: &mut PolicyIndex) {
        let (policy, _, mut facts) = self.components(state);
        let followed = component::follow(policy, index, &mut facts);
        policy.enforces_later |= !followed;
        let progress = policy.progress();
        (state.waiting_pods()).answer(|judge| enforce::verdict(progress, index, judge));
    }

    /// Whether [`Self::follow`] has anything to do.
    pub fn can_follow(&self) -> bool {
        let policy = self.state.policy();
        policy.is_some_and(|index| self.policy.can_follow(&index)) || {
            let services = self.state.services();
            services.is_some_and(|index| self.services.can_follow(&index))
        }
    }

    /// Makes the tables follow policies and Services, while all else stays as it is: what was
    /// denied would pass, and clients would wait, so it comes before a reconcile, and while
    /// one is put off because something else fails. What it cannot do is left to the
    /// reconcile. Says whether there was anything to do.
    pub fn follow(&mut self) -> bool {
        let state = Arc::clone(&self.state);
        let mut any = false;
        if let Some(mut index) = state.policy()
            && self.policy.can_follow(&index)
        {
            any = true;
            self.follow_policy(&state, &mut index);
        }
        if let Some(mut index) = state.services()
            && self.services.can_follow(&index)
        {
            any = true;
            let (_, services, mut facts) = self.components(&state);
            component::follow(services, &mut index, &mut facts);
        }
        any
    }

    /// When [`Self::walk_conntrack`] has something to do, if it is not woken before.
    pub fn walk_at(&self, now: Instant) -> Option<Instant> {
        self.services.walk_at(now)
    }

    /// Takes up a walk through conntrack that has ended, and begins one that is due: flows
    /// to endpoints that are gone wait for it, whatever else fails.
    pub fn walk_conntrack(&mut self, now: Instant) {
        if !self.services.walk_is_due(now) {
            return;
        }
        let state = Arc::clone(&self.state);
        if let Some(index) = state.services() {
            let desired = index.planner.desired();
            self.services
                .delete_stale_flows(desired, &self.kernel, false);
        }
        self.fast_path.walked(self.services.walks());
    }

    /// Plans all components and makes their tables as the plans say. A pod's first packet
    /// meets an isolated address whatever the order, so policies need no turn before the
    /// pods' routes.
    pub(super) fn reconcile_tables(&mut self, due: Due) -> Outcome {
        let mut outcome = self.reconcile_overlay(due);
        let state = Arc::clone(&self.state);
        let (policy, services, mut facts) = self.components(&state);
        let reported = [
            reconcile(policy, &state, &mut facts, due, &mut outcome),
            reconcile(services, &state, &mut facts, due, &mut outcome),
        ];
        self.sources_reported &= reported == [true, true];
        let (policies, services) = (state.policy(), state.services());
        let of_policies = policies.iter().flat_map(|index| index.absent());
        let of_services = services.iter().flat_map(|index| index.absent());
        let queued_policies = policies
            .iter()
            .map(|index| (index.planner.queued(), "policies"));
        let queued_services = services
            .iter()
            .map(|index| (index.planner.queued(), "Services"));
        let counts = queued_policies.chain(queued_services);
        let waiting = counts.filter(|(count, _)| *count > 0);
        let queued = waiting.map(|(count, of)| format!("{count} {of} wait for their turn"));
        let notes = of_policies.chain(of_services).chain(queued);
        self.board.set_notes(Reporter::Pass, notes.collect());
        outcome
    }

    /// Writes the table of the overlay, if there is a network.
    fn reconcile_overlay(&mut self, due: Due) -> Outcome {
        let Some(network) = self.planner.network().cloned() else {
            return Outcome::default();
        };
        let links = self.pods.links(&self.kernel);
        let resync = due.has(ResyncTarget::Nftables);
        (self.tables).write_overlay(&self.planner, &network, &links, resync)
    }

    /// Answers those who wait for a pod to be enforced.
    pub(super) fn answer_waiting(&self) {
        let waiting_pods = self.state.waiting_pods();
        let progress = self.policy.progress();
        match self.state.policy() {
            Some(index) => waiting_pods.answer(|judge| enforce::verdict(progress, &index, judge)),
            None => waiting_pods.answer(|_| Verdict::NotInForce),
        }
    }
}

/// Reconciles one component, or removes its table if it is switched off. Whether it is known
/// what there is, and in force.
fn reconcile<C: Component>(
    component: &mut C,
    state: &State,
    facts: &mut Facts<'_>,
    due: Due,
    outcome: &mut Outcome,
) -> bool {
    let Some(mut index) = state.index::<C::Objects>() else {
        outcome.merge(facts.tables.remove::<C::Table>());
        return true;
    };
    let resync = due.has(ResyncTarget::Nftables);
    outcome.merge(component::reconcile(component, &mut index, facts, resync));
    outcome.merge(component.report(&index, Instant::now()));
    component.has_reported(&index)
}
