//! Has conntrack forget flows of UDP that do not lead to an endpoint that serves their
//! Service; [`tweed_planner::services::stale`] says which they are.
//!
//! The kernel walks through the connections of all network namespaces for it, so a thread
//! of its own does that, and the kernel thread does not wait. It walks
//!
//! - after a change by which flows may be stale was written, and not before: the next
//!   packet of the client would only make the same entry again;
//! - once more [`SETTLE`] later: nf_tables does not wait for packets that have met the old
//!   elements, and an entry is in the table only when its packet has left the node or
//!   reached a socket, which others may delay (a queue to a program, for example);
//! - when it is told to: flows may have come while rules or elements were damaged.
//!
//! Meanwhile plans go on. A flow to an endpoint that is just being added must not be taken
//! for stale, so nothing is deleted from when a change is planned until it is written, and
//! from then on by what was written. A change that is never written changes nothing here:
//! what it would have removed is remembered until a write succeeds.

use std::net::IpAddr;
use std::panic::resume_unwind;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_netlink::nf::conntrack::{Conntrack, Entry, Ports, ProtocolFilter, Tuple};
use tweed_planner::services::Step;
use tweed_planner::services::desired::{Desired, Endpoint};
use tweed_planner::services::stale::{Flow, Former, Judge, PROTOCOL};

use super::outcome::Outcome;
use crate::serve::metrics::Metrics;

/// How long after a change was written its last walk begins.
const SETTLE: Duration = Duration::from_secs(1);
/// How long no walk begins after one, as a multiple of the time that it took: walks then
/// use at most a fifth of a CPU.
const REST_FACTOR: u32 = 4;
/// Wait before a walk that has failed is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// How long the kernel thread does not look whether a walk has ended, if another one is
/// due then.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Deletes stale entries of conntrack.
#[derive(Debug)]
pub struct ConntrackReconciler {
    metrics: Metrics,
    /// What has been planned, and may not have been written yet.
    planned: Planned,
    /// What was removed by what was written at these times, until a walk has begun
    /// [`SETTLE`] later.
    written: Vec<(Instant, Former)>,
    timing: Timing,
    judge: SharedJudge,
    walk: Option<Walk>,
    problem: Option<Problem>,
}

#[derive(Debug, Default)]
struct Planned {
    former: Former,
    /// Whether flows may be stale by it.
    matters: bool,
}

/// A walk that is under way, or has ended and was not looked at.
#[derive(Debug)]
struct Walk {
    began: Instant,
    thread: JoinHandle<Ended>,
}

#[derive(Debug)]
struct Ended {
    /// The number of entries that were deleted.
    deleted: Result<usize, tweed_netlink::Error>,
    took: Duration,
}

/// None while nothing may be deleted.
#[derive(Debug, Clone, Default)]
struct SharedJudge(Arc<RwLock<Option<Judge>>>);

impl SharedJudge {
    fn set(&self, judge: Option<Judge>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = judge;
    }

    fn is_stale(&self, flow: &Flow) -> bool {
        let judge = self.0.read().unwrap_or_else(PoisonError::into_inner);
        judge.as_ref().is_some_and(|judge| judge.is_stale(flow))
    }
}

impl ConntrackReconciler {
    /// One that has nothing to do yet.
    pub fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            planned: Planned::default(),
            written: Vec::new(),
            timing: Timing::default(),
            judge: SharedJudge::default(),
            walk: None,
            problem: None,
        }
    }

    /// Takes note of a step of the plan, before it is written. Of the first one `former` is
    /// what it has no more of an earlier run's.
    pub fn note(&mut self, step: &Step, former: &Former) {
        self.planned.former.extend(former);
        let matters = match step {
            Step::Full => true,
            Step::Delta(delta) => self.planned.former.note(delta),
            Step::Hold(_) | Step::Unchanged => false,
        };
        if matters {
            self.planned.matters = true;
            self.judge.set(None);
        }
    }

    /// Begins a walk if one is due, and does not wait for it. Only while `desired`, the
    /// planner's last, is in force: all steps that have been noted are written.
    /// `addresses` are this machine's. With `look` a walk is due in any case.
    pub fn reconcile(
        &mut self,
        desired: &Desired,
        addresses: impl IntoIterator<Item = IpAddr>,
        look: bool,
        now: Instant,
    ) {
        self.end_walk(now);
        let planned = std::mem::take(&mut self.planned);
        if planned.matters {
            self.timing.changed = Some(now);
            self.written.push((now, planned.former));
        }
        self.timing.wanted |= look;
        let begins = self.walk.is_none() && self.timing.next(now).is_some_and(|at| at <= now);
        if planned.matters || begins {
            let mut former = Former::default();
            for (_, more) in &self.written {
                former.extend(more);
            }
            let judge = Judge::new(desired, addresses, former);
            self.judge.set(Some(judge));
        }
        if begins {
            self.begin_walk(now);
        }
    }

    /// What is wrong, and when [`Self::reconcile`] should be called again.
    pub fn report(&self, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.problems.extend(self.problem.clone());
        let next = self.timing.next(now);
        outcome.retry.poll_by = match self.walk {
            Some(_) => next.map(|at| at.max(now + LOOK_AGAIN)),
            None => next,
        };
        outcome
    }

    fn begin_walk(&mut self, now: Instant) {
        // Opened here, in the network namespace of this thread.
        let conntrack = Conntrack::open();
        let judge = self.judge.clone();
        let started = conntrack.map_err(|error| error.to_string());
        let started = started.and_then(|mut conntrack| {
            let thread = Builder::new().name("conntrack".to_owned());
            let walk = move || {
                let began = Instant::now();
                let deleted = delete_stale(&mut conntrack, &judge);
                let took = began.elapsed();
                Ended { deleted, took }
            };
            let refused = |error| format!("cannot start a thread: {error}");
            thread.spawn(walk).map_err(refused)
        });
        match started {
            Ok(thread) => {
                self.timing.begin();
                self.walk = Some(Walk { began: now, thread });
            }
            Err(error) => self.failed(&error, now),
        }
    }

    fn end_walk(&mut self, now: Instant) {
        let is_over = |walk: &mut Walk| walk.thread.is_finished();
        let Some(Walk { began, thread }) = self.walk.take_if(is_over) else {
            return;
        };
        let Ended { deleted, took } = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        match deleted {
            Ok(deleted) => {
                self.timing.ended(began, now + took * REST_FACTOR);
                self.written.retain(|(at, _)| *at + SETTLE > began);
                self.problem = None;
                self.metrics.stale_flows_deleted(deleted as u64);
                let sync = &self.metrics.service_sync;
                sync.conntrack_reconciled(took, deleted as u64);
                if deleted > 0 {
                    let took = took.as_millis();
                    tracing::info!(deleted, took, "stale flows of Services deleted");
                }
            }
            Err(error) => self.failed(&error.to_string(), now),
        }
    }

    fn failed(&mut self, error: &str, now: Instant) {
        self.timing.failed(now + RETRY);
        let problem = Problem::new(ProblemKind::Conntrack, "stale flows of Services", error);
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(error, "stale flows of Services cannot be deleted");
        }
        self.problem = Some(problem);
    }
}

/// When walks are due: pure.
#[derive(Debug, Clone, Copy, Default)]
struct Timing {
    /// When a change was written last.
    changed: Option<Instant>,
    /// When the last walk began that did not fail.
    walked: Option<Instant>,
    /// Whether one is due in any case.
    wanted: bool,
    /// None begins before that.
    rests_until: Option<Instant>,
}

impl Timing {
    /// When the next walk is due, if any.
    fn next(&self, now: Instant) -> Option<Instant> {
        let of_change = self.changed.and_then(|changed| {
            let times = [changed, changed + SETTLE];
            let is_ahead = |at: &Instant| self.walked.is_none_or(|walked| walked < *at);
            times.into_iter().find(is_ahead)
        });
        let due = match self.wanted {
            true => now,
            false => of_change?,
        };
        Some(self.rests_until.map_or(due, |rest| due.max(rest)))
    }

    fn begin(&mut self) {
        self.wanted = false;
    }

    fn ended(&mut self, began: Instant, rests_until: Instant) {
        self.walked = Some(began);
        self.rests_until = Some(rests_until);
    }

    fn failed(&mut self, rests_until: Instant) {
        self.wanted = true;
        self.rests_until = Some(rests_until);
    }
}

/// Deletes all stale entries. Returns their number.
fn delete_stale(
    conntrack: &mut Conntrack,
    judge: &SharedJudge,
) -> Result<usize, tweed_netlink::Error> {
    let mut deleted = 0;
    for family in [Family::V4, Family::V6] {
        let filter = ProtocolFilter {
            family,
            protocol: PROTOCOL,
        };
        let is_stale = |entry: &Entry| flow(entry).is_some_and(|flow| judge.is_stale(&flow));
        deleted += conntrack.delete_all_that(filter, is_stale)?.changed;
    }
    Ok(deleted)
}

/// What counts of an entry. Nothing of one in a zone: it is of somebody who tracks the same
/// packets once more, before or after the rules of Services.
fn flow(entry: &Entry) -> Option<Flow> {
    let is_default = entry.zone == 0 && entry.original.zone.is_none();
    let Tuple { protocol, .. } = entry.original;
    let (Ports::Pair(_, to), Ports::Pair(from, _)) = (entry.original.ports, entry.reply.ports)
    else {
        return None;
    };
    (is_default && protocol == PROTOCOL).then_some(Flow {
        destination: Endpoint {
            address: entry.original.destination,
            port: to,
        },
        answered_by: Endpoint {
            address: entry.reply.source,
            port: from,
        },
    })
}

#[cfg(test)]
mod tests;
