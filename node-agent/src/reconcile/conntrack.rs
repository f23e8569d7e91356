//! Has conntrack forget flows that do not lead to an endpoint that serves their Service;
//! [`tweed_planner::services::stale`] says which they are.
//!
//! The kernel walks through the connections of all network namespaces for it, so a thread
//! of its own does that, and the kernel thread does not wait. It walks
//!
//! - after a change by which flows may be stale was written, and not before: the next
//!   packet of the client would only make the same entry again. An endpoint that comes makes
//!   none stale, and the kernel's walk delays other work of its CPU by milliseconds;
//! - once more [`SETTLE`] later: nf_tables does not wait for packets that have met the old
//!   elements, and an entry is in the table only when its packet has left the node or
//!   reached a socket, which others may delay (a queue to a program, for example);
//! - when it is told to: flows may have come while rules or elements were damaged;
//! - when this machine's addresses are known again: without them no flow is judged that may
//!   be one to a node port.
//!
//! Meanwhile plans go on. A flow to an endpoint that is just being added must not be taken
//! for stale, so nothing is deleted from when a change is planned until it is written, and
//! from then on by what was written. A walk that met an entry in between does not count. A
//! change that is never written changes nothing here: what it would have removed is
//! remembered until a write succeeds.

mod remembered;
mod timing;
mod walk;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tweed_core::problem::{Problem, ProblemKind};
use tweed_netlink::nf::conntrack::Conntrack;
use tweed_netlink::nf::idle::Idle;
use tweed_planner::services::Step;
use tweed_planner::services::desired::Desired;
use tweed_planner::services::stale::{FlowEffect, Judge, PastFrontends};

use crate::serve::metrics::Metrics;
use crate::state::State;
use remembered::Remembered;
use timing::{SETTLE, Timing};
use walk::{Ended, SharedJudge, Walk};

/// Maximum number of frontends that have come, and of endpoints, each counted for each of its
/// frontends, of such as were changed or removed, that are remembered: some 5 MB. Walks or writes
/// that fail for hours must not fill the memory.
const MAX_REMEMBERED: usize = 65_536;

/// Deletes stale entries of conntrack.
pub struct ConntrackReconciler {
    metrics: Metrics,
    /// Whose thread takes up walks that have ended.
    state: Arc<State>,
    /// What has been planned, and may not have been written yet.
    planned: Planned,
    /// What was removed by what was written, until a walk has begun [`SETTLE`] later.
    written: Remembered,
    timing: Timing,
    /// Whether a walk has ended since one was wanted by which flows to node ports were
    /// passed over.
    lacked_addresses: bool,
    /// Of the walk that is under way.
    judge: SharedJudge,
    walk: Option<Walk>,
    /// What walks ask with.
    conntrack: Idle<Conntrack>,
    problem: Option<Problem>,
    /// How many walks have ended.
    walks: u64,
}

#[derive(Debug, Default)]
struct Planned {
    past: PastFrontends,
    effect: FlowEffect,
}

impl ConntrackReconciler {
    /// One that has nothing to do yet. It wakes the kernel thread of `state` when a walk has
    /// ended.
    pub fn new(metrics: Metrics, state: &Arc<State>) -> Self {
        Self {
            metrics,
            state: Arc::clone(state),
            planned: Planned::default(),
            written: Remembered::default(),
            timing: Timing::default(),
            lacked_addresses: false,
            judge: SharedJudge::default(),
            walk: None,
            conntrack: Idle::default(),
            problem: None,
            walks: 0,
        }
    }

    /// How many walks have ended.
    pub fn walks(&self) -> u64 {
        self.walks
    }

    /// Takes note of a step of the plan, which is `desired` now, before it is written. Of the
    /// first one `past` is what it has no more of an earlier run's.
    pub fn note(&mut self, step: &Step, desired: &Desired, past: &PastFrontends) {
        if self.planned.past.len() > MAX_REMEMBERED {
            self.planned.past = PastFrontends::default();
        }
        self.planned.past.extend(past);
        let effect = match step {
            Step::Full => {
                self.planned.past.note_first(desired);
                FlowEffect::Ends
            }
            Step::Delta(delta) => self.planned.past.note(delta, desired),
            Step::Hold(_) | Step::Unchanged => FlowEffect::None,
        };
        self.planned.effect = self.planned.effect.max(effect);
        if effect > FlowEffect::None {
            self.judge.set(None);
        }
    }

    /// Begins a walk if one is due, and does not wait for it. Only while `desired`, the
    /// planner's last, is in force: all steps that have been noted are written.
    /// `addresses` are this machine's, if they are known: if not, flows to node ports are
    /// left to a walk that begins when they are. With `look` a walk is due in any case.
    pub fn reconcile(
        &mut self,
        desired: &Desired,
        addresses: Option<impl IntoIterator<Item = IpAddr>>,
        look: bool,
        now: Instant,
    ) {
        self.end_walk(now);
        let knows_addresses = addresses.is_some();
        if knows_addresses {
            self.timing.wanted |= std::mem::take(&mut self.lacked_addresses);
        }
        let planned = std::mem::take(&mut self.planned);
        if planned.effect == FlowEffect::Ends {
            self.timing.changed = Some(now);
            self.written.add(&planned.past, now);
        }
        self.timing.wanted |= look;
        let begins = self.walk.is_none() && self.timing.next(now).is_some_and(|at| at <= now);
        if begins || (planned.effect > FlowEffect::None && self.walk.is_some()) {
            let preparing = Instant::now();
            let judge = Judge::new(desired, addresses, self.written.past());
            self.judge.set(Some(judge));
            if begins {
                self.begin_walk(preparing.elapsed(), now);
            }
            if let Some(walk) = &mut self.walk {
                walk.knows_addresses &= knows_addresses;
            }
        }
    }

    /// When the next walk is due, if none is under way: the end of that wakes the kernel
    /// thread.
    pub fn due_at(&self, now: Instant) -> Option<Instant> {
        match self.walk {
            Some(_) => None,
            None => self.timing.next(now),
        }
    }

    /// Whether [`Self::reconcile`] has to take up a walk that has ended, or to begin one.
    pub fn is_due(&self, now: Instant) -> bool {
        let has_ended = self.walk.as_ref().is_some_and(Walk::is_over);
        has_ended || self.due_at(now).is_some_and(|at| at <= now)
    }

    /// What is wrong.
    pub fn report(&self) -> Option<Problem> {
        self.problem.clone()
    }

    fn begin_walk(&mut self, preparing: Duration, now: Instant) {
        let state = Arc::clone(&self.state);
        let (judge, idle) = (self.judge.clone(), &self.conntrack);
        match Walk::begin(judge, idle, preparing, now, move || state.wake()) {
            Ok(walk) => {
                self.timing.begin(now);
                self.walk = Some(walk);
            }
            Err(error) => self.failed(&error, now, preparing),
        }
    }

    fn end_walk(&mut self, now: Instant) {
        let Some(walk) = self.walk.take_if(|walk| walk.is_over()) else {
            return;
        };
        let Walk {
            began,
            preparing,
            knows_addresses,
            ..
        } = walk;
        let Ended { deleted, took } = walk.end();
        self.walks += 1;
        self.judge.set(None);
        let is_complete = !self.judge.take_passed_over();
        match deleted {
            Ok(deleted) => {
                self.timing.ended(now, preparing + took, is_complete);
                if !knows_addresses {
                    self.lacked_addresses = true;
                } else if is_complete {
                    self.written.forget_before(began);
                }
                self.problem = None;
                self.metrics.stale_flows_deleted.inc_by(deleted as u64);
                let sync = &self.metrics.service_sync;
                sync.conntrack_reconciled(took, deleted as u64);
                if deleted > 0 {
                    let took = took.as_millis();
                    tracing::info!(deleted, took, "stale flows of Services deleted");
                }
            }
            Err(error) => self.failed(&error.to_string(), now, preparing + took),
        }
    }

    fn failed(&mut self, error: &str, now: Instant, cost: Duration) {
        self.timing.failed(now, cost);
        let problem = Problem::new(ProblemKind::Conntrack, "stale flows of Services", error);
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(error, "stale flows of Services cannot be deleted");
        }
        self.problem = Some(problem);
    }
}

#[cfg(test)]
mod tests;
