//! When to delete links that a DEL left and nobody deletes: pure, the clock is
//! an argument.
//!
//! A DEL puts its link into the group of leaving links, and a detached copy of
//! the plugin, the finisher, deletes all that gather there in one request and
//! one grace period of the kernel. Until then it holds a lock
//! ([`tweed_core::leaving`]). Whoever gets the lock while a link has been in the
//! group for longer than a finisher takes to start knows that none runs, and a
//! DEL that comes while it is held starts none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time for which a link is left to its DEL, which starts a finisher within
/// milliseconds, and for others to gather beside it.
const GRACE: Duration = Duration::from_millis(400);
/// Interval of the attempts to get the lock of a running finisher.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);
/// Age of a link from which it is deleted although a finisher holds the lock: a
/// finisher gathers links for 0.3 s and deletes them in less, so this one hangs.
const TIMEOUT: Duration = Duration::from_secs(2);

/// When each leaving link was first seen, by index.
#[derive(Debug, Default)]
pub(super) struct Leaving(BTreeMap<u32, Instant>);

/// What to do about the leaving links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// There are none.
    None,
    /// Decide again at this time.
    Wait(Instant),
    /// Delete them if nobody else has the lock; decide again at this time if
    /// somebody has.
    DeleteIfUnlocked(Instant),
    /// Delete them without the lock.
    Delete,
}

impl Leaving {
    /// What to do about `links`, which are all leaving links of now.
    pub(super) fn next_step(&mut self, links: &BTreeSet<u32>, now: Instant) -> Step {
        self.0.retain(|index, _| links.contains(index));
        for index in links {
            self.0.entry(*index).or_insert(now);
        }
        let Some(oldest) = self.0.values().min() else {
            return Step::None;
        };
        match now.saturating_duration_since(*oldest) {
            age if age < GRACE => Step::Wait(*oldest + GRACE),
            age if age < TIMEOUT => Step::DeleteIfUnlocked(now + LOCK_INTERVAL),
            _ => Step::Delete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_left_to_a_finisher_that_holds_the_lock() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut leaving = Leaving::default();
        let mut step = |links: &[u32], milliseconds| {
            leaving.next_step(&links.iter().copied().collect(), at(milliseconds))
        };
        assert_eq!(step(&[], 0), Step::None);
        assert_eq!(step(&[7], 0), Step::Wait(at(400)));
        assert_eq!(step(&[7, 9], 399), Step::Wait(at(400)));
        assert_eq!(step(&[7, 9], 400), Step::DeleteIfUnlocked(at(500)));
        assert_eq!(step(&[7, 9], 1999), Step::DeleteIfUnlocked(at(2099)));
        assert_eq!(step(&[7, 9], 2000), Step::Delete);
        assert_eq!(step(&[9], 2000), Step::DeleteIfUnlocked(at(2100)));
        // Deleted, and its index given to another link.
        assert_eq!(step(&[], 2001), Step::None);
        assert_eq!(step(&[9], 2500), Step::Wait(at(2900)));
    }
}
