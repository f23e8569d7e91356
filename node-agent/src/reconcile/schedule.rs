//! When to reconcile, and what to read again then: pure, the clock is an
//! argument.
//!
//! - A change of what is wanted is reconciled at once. One of which the kernel tells waits
//!   some milliseconds for others: an ADD makes many. Under a storm of changes a pause follows each reconcile, so that the
//!   thread uses at most half a CPU.
//! - What has no notification is polled every second.
//! - A notification may be lost, so everything else is read again too: one
//!   [`ResyncTarget`] at a time, so that a change never waits for all of them.
//! - After a failure everything is read again in one full resync, at first soon,
//!   then less and less often. Changes wait for that, as they may be what fails, except
//!   those that can be written without a reconcile ([`Schedule::backs_off`]).

use std::time::{Duration, Instant};

use super::kernel::mirror::MirrorPart;

/// Interval at which what has no notification (sysctls, stores) is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time in which every [`ResyncTarget`] is read again once. A lost notification
/// may cost half a minute; the rest is reserve for reconciles that take long.
const RESYNC_PERIOD: Duration = Duration::from_secs(27);
/// Time from the first notification to the reconcile for it and those after it. All of an
/// ADD come in it, so that the ADD does not share the processors with several reconciles.
const GATHERING: Duration = Duration::from_millis(3);
/// Pause after a reconcile for changes, as a multiple of the time that it took:
/// with 1, a storm of changes uses half of the time, and each reconcile handles
/// all that has come meanwhile. No pause follows polls and resyncs: they are
/// rare, and a Node must not wait for them twice.
const PAUSE_FACTOR: u32 = 1;
/// Part of the pending pause that is not waited for: changes that come alone, or
/// a few at once, are reconciled without any.
const PAUSE_ALLOWANCE: Duration = Duration::from_millis(20);
/// Maximum pause, however long a reconcile took: it delays the next change, which may come while
/// what others have very many of is written.
const MAX_PAUSE: Duration = Duration::from_millis(25);
/// Wait before the full resync after a first failure; it doubles with each
/// further one.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// Maximum wait before the full resync after a failure.
const BACKOFF_MAX: Duration = Duration::from_secs(15);

/// What has changed since the last reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Changes {
    /// Nothing that is known.
    None,
    /// Nothing but what the kernel tells of.
    Notified,
    /// What the kernel should hold, or a pod waits to be enforced.
    Wanted,
}

/// What is read again by itself in a resync. Links are none: each poll reads
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResyncTarget {
    /// A part of the kernel's mirror.
    Kernel(MirrorPart),
    /// The address stores, and in them the pods.
    Pods,
    /// The table `inet tweed`.
    Nftables,
    /// Rules of others of whose changes nothing is heard: iptables-legacy, and which
    /// routes the kernel takes for packets of pods.
    ForeignRules,
}

impl ResyncTarget {
    /// In the order in which they are read again.
    const ALL: [Self; 9] = [
        Self::Kernel(MirrorPart::Addresses),
        Self::Kernel(MirrorPart::Connected),
        Self::Kernel(MirrorPart::Routes),
        Self::Kernel(MirrorPart::ForeignRoutes),
        Self::Kernel(MirrorPart::Neighbours),
        Self::Kernel(MirrorPart::Fdb),
        Self::Pods,
        Self::Nftables,
        Self::ForeignRules,
    ];
}

/// Time from one target to the next: it follows from their number, so that one
/// more does not make the period longer.
fn resync_interval() -> Duration {
    let targets = u32::try_from(ResyncTarget::ALL.len()).unwrap_or(1);
    RESYNC_PERIOD / targets
}

/// What a reconcile has to read besides what is known to have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Whether to read what has no notification.
    pub poll: bool,
    /// What to read again although no change of it is known.
    pub resync: &'static [ResyncTarget],
}

impl Due {
    /// Whether it is a full resync.
    fn is_full(self) -> bool {
        self.resync.len() == ResyncTarget::ALL.len()
    }

    /// Whether `target` is to be read again.
    #[must_use]
    pub fn has(self, target: ResyncTarget) -> bool {
        self.resync.contains(&target)
    }

    /// The parts of the mirror that are to be read again.
    pub fn mirror_parts(self) -> impl Iterator<Item = MirrorPart> {
        self.resync.iter().filter_map(|target| match target {
            ResyncTarget::Kernel(part) => Some(*part),
            _ => None,
        })
    }
}

/// When reconciles are due.
#[derive(Debug, Clone)]
pub struct Schedule {
    poll_at: Instant,
    resync_at: Instant,
    /// Index of the target that is read then; none for a full resync.
    target: Option<usize>,
    /// Changes are reconciled from here on.
    changes_at: Instant,
    /// And those of which the kernel tells, from here on, since it was told of one.
    gathered_at: Option<Instant>,
    /// The pause after the last reconcile ends here.
    paused_until: Instant,
    /// The pause that was pending when the last reconcile had ended, at this time.
    pending: (Duration, Instant),
    failures: u32,
}

impl Schedule {
    /// A schedule that begins with a full resync at `start`.
    pub fn new(start: Instant) -> Self {
        Self {
            poll_at: start,
            resync_at: start,
            target: None,
            changes_at: start,
            gathered_at: None,
            paused_until: start,
            pending: (Duration::ZERO, start),
            failures: 0,
        }
    }

    /// Takes note of what has changed.
    pub fn changed(&mut self, now: Instant, changes: Changes) {
        if changes > Changes::None {
            self.gathered_at.get_or_insert(now + GATHERING);
        }
    }

    /// What to reconcile now, where anything is due. `changes` says what has changed.
    pub fn due(&self, now: Instant, changes: Changes) -> Option<Due> {
        let resync: &[ResyncTarget] = match self.target {
            _ if now < self.resync_at => &[],
            Some(target) => ResyncTarget::ALL
                .get(target..=target)
                .unwrap_or(&ResyncTarget::ALL),
            None => &ResyncTarget::ALL,
        };
        let poll = now >= self.poll_at || !resync.is_empty();
        let changed = self.changes_due(changes).is_some_and(|at| now >= at);
        (poll || changed).then_some(Due { poll, resync })
    }

    /// How long nothing is due.
    pub fn wait(&self, now: Instant, changes: Changes) -> Duration {
        let next = self.poll_at.min(self.resync_at);
        let next = self.changes_due(changes).map_or(next, |at| at.min(next));
        next.saturating_duration_since(now)
    }

    /// When such changes are reconciled.
    fn changes_due(&self, changes: Changes) -> Option<Instant> {
        match changes {
            Changes::None => None,
            Changes::Notified => Some(self.changes_at.max(self.gathered_at?)),
            Changes::Wanted => Some(self.changes_at),
        }
    }

    /// Whether it is a failure that puts reconciles for changes off, and not the pause:
    /// changes that do not depend on what has failed need not wait for it.
    pub fn backs_off(&self, now: Instant) -> bool {
        now >= self.paused_until && now < self.changes_at
    }

    /// How long that is not so, though it may be later.
    pub fn pause(&self, now: Instant) -> Duration {
        self.paused_until.saturating_duration_since(now)
    }

    /// Changes were written without a reconcile, which took `took` and has ended `now`: the
    /// same pause follows.
    pub fn followed(&mut self, now: Instant, took: Duration) {
        self.pause_for(now, took, took.saturating_mul(PAUSE_FACTOR));
    }

    /// Has the next poll come no later than `at`.
    pub fn poll_by(&mut self, at: Instant) {
        self.poll_at = self.poll_at.min(at);
    }

    /// The reconcile that was `due` and took `took` has ended `now`.
    pub fn ended(&mut self, now: Instant, took: Duration, due: Due, failed: bool) {
        self.gathered_at = None;
        let more = if due.poll {
            Duration::ZERO
        } else {
            took.saturating_mul(PAUSE_FACTOR)
        };
        self.pause_for(now, took, more);
        self.changes_at = self.paused_until;
        if due.poll {
            self.poll_at = now + POLL_INTERVAL;
        }
        if failed {
            let doubled = BACKOFF_MIN.saturating_mul(1 << self.failures.min(16));
            let backoff = doubled.min(BACKOFF_MAX);
            // What failed may still count as a change: without this wait the
            // loop would try it again without end. The polls between take changes along.
            self.changes_at = now + backoff;
            // A poll that fails while a full resync waits does not put it off:
            // a lasting failure would put it off for ever.
            if due.is_full() || self.failures == 0 {
                self.target = None;
                self.resync_at = now + backoff;
                self.failures = self.failures.saturating_add(1);
            }
        } else {
            if !due.resync.is_empty() {
                let next = self.target.map_or(0, |target| target + 1);
                self.target = Some(next % ResyncTarget::ALL.len());
                self.resync_at = now + resync_interval();
            } else if self.failures > 0 {
                // What failed works again: the full resync is due now.
                self.resync_at = self.resync_at.min(self.paused_until);
            }
            self.failures = 0;
        }
    }

    /// Begins the pause after work that took `took`, which adds `more` to what is pending.
    fn pause_for(&mut self, now: Instant, took: Duration, more: Duration) {
        let (before, since) = self.pending;
        let idle = now.saturating_duration_since(since).saturating_sub(took);
        let left = before.saturating_sub(idle);
        let pending = (left + more).min(PAUSE_ALLOWANCE + MAX_PAUSE);
        self.pending = (pending, now);
        self.paused_until = now + pending.saturating_sub(PAUSE_ALLOWANCE);
    }
}

#[cfg(test)]
mod tests;
