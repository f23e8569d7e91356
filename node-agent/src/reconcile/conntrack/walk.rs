//! One walk through conntrack: its thread, and what that asks.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tweed_core::family::Family;
use tweed_netlink::nf::conntrack::{Conntrack, Entry, Ports, ProtocolFilter, Tuple};
use tweed_netlink::nf::idle::Idle;
use tweed_planner::services::desired::Endpoint;
use tweed_planner::services::stale::{Flow, Judge, PROTOCOL, PROTOCOLS};

/// A walk that is under way, or has ended and was not looked at.
#[derive(Debug)]
pub struct Walk {
    /// When it began.
    pub began: Instant,
    /// How long it took to make its judge.
    pub preparing: Duration,
    /// Whether this machine's addresses have been known to all of its judges.
    pub knows_addresses: bool,
    thread: JoinHandle<Ended>,
    is_over: Arc<AtomicBool>,
}

/// What has become of a walk.
#[derive(Debug)]
pub struct Ended {
    /// The number of entries that were deleted.
    pub deleted: Result<usize, tweed_netlink::Error>,
    /// How long that took.
    pub took: Duration,
}

impl Walk {
    /// Begins one through the table of the calling thread's network namespace. `idle` keeps
    /// its sockets. `ended` is called at its end, after which [`Self::is_over`] holds.
    ///
    /// # Errors
    /// No socket, or no thread, as a text.
    pub fn begin(
        judge: SharedJudge,
        idle: &Idle<Conntrack>,
        preparing: Duration,
        now: Instant,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Self, String> {
        let mut conntrack = idle.take().map_err(|error| error.to_string())?;
        let idle = idle.clone();
        let walk = move || {
            let began = Instant::now();
            let deleted = delete_stale(&mut conntrack, &judge);
            let took = began.elapsed();
            if deleted.is_ok() {
                idle.give_back(conntrack);
            }
            Ended { deleted, took }
        };
        Self::spawn(preparing, now, walk, ended)
            .map_err(|error| format!("cannot start a thread: {error}"))
    }

    /// One whose thread does that.
    pub(super) fn spawn(
        preparing: Duration,
        now: Instant,
        walk: impl FnOnce() -> Ended + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let tells = Arc::clone(&is_over);
        let builder = Builder::new().name("conntrack".to_owned());
        let thread = builder.spawn(move || {
            let result = walk();
            // A thread is over only some time after it could tell so.
            tells.store(true, Ordering::Release);
            ended();
            result
        })?;
        Ok(Self {
            began: now,
            preparing,
            knows_addresses: true,
            thread,
            is_over,
        })
    }

    /// Whether [`Self::end`] does not wait.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire) || self.thread.is_finished()
    }

    /// What has become of it.
    pub fn end(self) -> Ended {
        let ended = self.thread.join();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// What the thread of a walk asks.
#[derive(Debug, Clone, Default)]
pub struct SharedJudge(Arc<Suspendable>);

#[derive(Debug, Default)]
struct Suspendable {
    /// None while nothing may be deleted.
    judge: RwLock<Option<Judge>>,
    /// Whether that was asked of an entry, which has to be looked at again.
    passed_over: AtomicBool,
}

impl SharedJudge {
    /// Changes who judges from now on.
    pub fn set(&self, judge: Option<Judge>) {
        *self.0.judge.write().unwrap_or_else(PoisonError::into_inner) = judge;
    }

    /// Whether a flow is stale.
    pub fn is_stale(&self, flow: &Flow) -> bool {
        let judge = self.0.judge.read().unwrap_or_else(PoisonError::into_inner);
        if judge.is_none() {
            self.0.passed_over.store(true, Ordering::Relaxed);
        }
        judge.as_ref().is_some_and(|judge| judge.is_stale(flow))
    }

    /// Whether flows of a protocol and family may be stale. A judge that is set later does not
    /// matter: the change that brings it has a walk of its own.
    fn concerns(&self, protocol: u8, family: Family) -> bool {
        let judge = self.0.judge.read().unwrap_or_else(PoisonError::into_inner);
        judge
            .as_ref()
            .is_none_or(|judge| judge.concerns(protocol, family))
    }

    /// Whether it was asked while nothing could be deleted, since this was last called.
    /// What a thread has asked is known here once it is joined.
    pub fn take_passed_over(&self) -> bool {
        self.0.passed_over.swap(false, Ordering::Relaxed)
    }
}

/// Deletes all stale entries. Returns their number. The kernel looks at every entry of all
/// families for a dump of one, and gives none of all that has a protocol.
fn delete_stale(
    conntrack: &mut Conntrack,
    judge: &SharedJudge,
) -> Result<usize, tweed_netlink::Error> {
    let mut deleted = 0;
    let families = [Family::V4, Family::V6].into_iter();
    for (family, protocol) in families.flat_map(|family| PROTOCOLS.map(|of| (family, of))) {
        if !judge.concerns(protocol, family) {
            continue;
        }
        let filter = ProtocolFilter {
            family,
            protocol,
            unanswered: protocol != PROTOCOL,
        };
        let is_stale = |entry: &Entry| flow(entry).is_some_and(|flow| judge.is_stale(&flow));
        deleted += conntrack.delete_all_that(filter, is_stale)?.changed;
    }
    Ok(deleted)
}

/// What counts of an entry. Nothing of a connection that somebody has answered, and nothing of
/// one in a zone: it is of somebody who tracks the same packets once more, before or after the
/// rules of Services.
pub fn flow(entry: &Entry) -> Option<Flow> {
    let is_default = entry.zone == 0 && entry.original.zone.is_none();
    let Tuple { protocol, .. } = entry.original;
    let (Ports::Pair(_, to), Ports::Pair(from, _)) = (entry.original.ports, entry.reply.ports)
    else {
        return None;
    };
    let may_be_stale = protocol == PROTOCOL || !entry.is_answered();
    (is_default && may_be_stale).then_some(Flow {
        protocol,
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
