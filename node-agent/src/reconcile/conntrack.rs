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

use std::net::IpAddr;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
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
use remembered::Remembered;

/// How long after a change was written its last walk begins.
const SETTLE: Duration = Duration::from_secs(1);
/// How long no walk begins after one, as a multiple of the time that it took: walks then
/// use at most a fifth of a CPU.
const REST_FACTOR: u32 = 4;
/// Wait before a walk that has failed is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// How long the kernel thread at least does not look, without another reason, whether a walk
/// that is due can begin; while another one goes on, as long as that has taken.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Maximum number of endpoints, each counted for each of its frontends, that are remembered
/// of frontends that were changed or removed: some 5 MB. Walks or writes that fail for hours
/// must not fill the memory.
const MAX_REMEMBERED: usize = 65_536;

/// Deletes stale entries of conntrack.
#[derive(Debug)]
pub struct ConntrackReconciler {
    metrics: Metrics,
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
    /// When [`Self::reconcile`] should be called again, since it was called last.
    again: Option<Instant>,
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
    /// How long it took to make its judge.
    preparing: Duration,
    /// Whether this machine's addresses have been known to all of its judges.
    knows_addresses: bool,
    thread: JoinHandle<Ended>,
}

#[derive(Debug)]
struct Ended {
    /// The number of entries that were deleted.
    deleted: Result<usize, tweed_netlink::Error>,
    took: Duration,
}

/// What the thread of a walk asks.
#[derive(Debug, Clone, Default)]
struct SharedJudge(Arc<Suspendable>);

#[derive(Debug, Default)]
struct Suspendable {
    /// None while nothing may be deleted.
    judge: RwLock<Option<Judge>>,
    /// Whether that was asked of an entry, which has to be looked at again.
    passed_over: AtomicBool,
}

impl SharedJudge {
    fn set(&self, judge: Option<Judge>) {
        *self.0.judge.write().unwrap_or_else(PoisonError::into_inner) = judge;
    }

    fn is_stale(&self, flow: &Flow) -> bool {
        let judge = self.0.judge.read().unwrap_or_else(PoisonError::into_inner);
        if judge.is_none() {
            self.0.passed_over.store(true, Ordering::Relaxed);
        }
        judge.as_ref().is_some_and(|judge| judge.is_stale(flow))
    }

    /// Whether it was asked while nothing could be deleted, since this was last called.
    /// What a thread has asked is known here once it is joined.
    fn take_passed_over(&self) -> bool {
        self.0.passed_over.swap(false, Ordering::Relaxed)
    }
}

impl ConntrackReconciler {
    /// One that has nothing to do yet.
    pub fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            planned: Planned::default(),
            written: Remembered::default(),
            timing: Timing::default(),
            lacked_addresses: false,
            judge: SharedJudge::default(),
            walk: None,
            again: None,
            problem: None,
        }
    }

    /// Takes note of a step of the plan, before it is written. Of the first one `former` is
    /// what it has no more of an earlier run's.
    pub fn note(&mut self, step: &Step, former: &Former) {
        if self.planned.former.len() > MAX_REMEMBERED {
            self.planned.former = Former::default();
        }
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
        if planned.matters {
            self.timing.changed = Some(now);
            self.written.add(&planned.former, now);
        }
        self.timing.wanted |= look;
        let begins = self.walk.is_none() && self.timing.next(now).is_some_and(|at| at <= now);
        if begins || (planned.matters && self.walk.is_some()) {
            let preparing = Instant::now();
            let judge = Judge::new(desired, addresses, self.written.former());
            self.judge.set(Some(judge));
            if begins {
                self.begin_walk(preparing.elapsed(), now);
            }
            if let Some(walk) = &mut self.walk {
                walk.knows_addresses &= knows_addresses;
            }
        }
        let took = self.walk.as_ref().map_or(Duration::ZERO, |walk| {
            now.saturating_duration_since(walk.began)
        });
        let next = self.timing.next(now);
        self.again = next.map(|at| at.max(now + took.max(LOOK_AGAIN)));
    }

    /// What is wrong, and when [`Self::reconcile`] should be called again. The latter only if
    /// it was called since this was: if it was not, the table could not be written, and when
    /// to try that again does not depend on conntrack.
    pub fn report(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.problems.extend(self.problem.clone());
        outcome.retry.poll_by = self.again.take();
        outcome
    }

    fn begin_walk(&mut self, preparing: Duration, now: Instant) {
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
                self.timing.begin(now);
                self.walk = Some(Walk {
                    began: now,
                    preparing,
                    knows_addresses: true,
                    thread,
                });
            }
            Err(error) => self.failed(&error, now),
        }
    }

    fn end_walk(&mut self, now: Instant) {
        let is_over = |walk: &mut Walk| walk.thread.is_finished();
        let Some(walk) = self.walk.take_if(is_over) else {
            return;
        };
        let ended = walk.thread.join();
        let Ended { deleted, took } = ended.unwrap_or_else(|panic| resume_unwind(panic));
        self.judge.set(None);
        let is_complete = !self.judge.take_passed_over();
        match deleted {
            Ok(deleted) => {
                let rest = (walk.preparing + took) * REST_FACTOR;
                self.timing.ended(now + rest, is_complete);
                match walk.knows_addresses {
                    false => self.lacked_addresses = true,
                    true if is_complete => self.written.forget_settled(walk.began),
                    true => {}
                }
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
        self.judge.set(None);
        self.timing.ended(now + RETRY, false);
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
    /// When the last walk began that was complete.
    walked: Option<Instant>,
    /// When the one began that is under way. It is taken for complete until it has ended.
    walking: Option<Instant>,
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
            let walked = self.walking.or(self.walked);
            let is_ahead = |at: &Instant| walked.is_none_or(|walked| walked < *at);
            times.into_iter().find(is_ahead)
        });
        let due = match self.wanted {
            true => now,
            false => of_change?,
        };
        Some(self.rests_until.map_or(due, |rest| due.max(rest)))
    }

    fn begin(&mut self, now: Instant) {
        self.wanted = false;
        self.walking = Some(now);
    }

    /// The walk that was under way, or could not begin, has looked at all entries or not.
    fn ended(&mut self, rests_until: Instant, is_complete: bool) {
        let walking = self.walking.take();
        match is_complete {
            true => self.walked = walking,
            false => self.wanted = true,
        }
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
