//! Links on their way out that nobody takes away: pure, the clock is an
//! argument.
//!
//! A DEL puts its link aside, and a detached copy of the plugin, the finisher,
//! deletes all that gather in one request and one grace period of the kernel.
//! It is on duty ([`tweed_core::leaving`]) until then. Who can go on duty while
//! a link has been aside for longer than a finisher takes to be called knows that
//! nobody else is: a DEL that comes meanwhile calls no other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// So long a link is left to its DEL, which calls a finisher within
/// milliseconds, and to others of its kind, to gather.
const GATHER: Duration = Duration::from_millis(400);
/// Between two looks whether the finisher on duty is still there.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A finisher gathers for 0.3 s, and deletes in less. One that is on duty for
/// this long hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// The links that were seen on their way out, by index, and since when.
#[derive(Debug, Default)]
pub struct Leaving(BTreeMap<u32, Instant>);

/// What there is to do about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// There is none.
    Nothing,
    /// To look again then.
    Wait(Instant),
    /// To delete them if nobody else is on duty, and to look again then if
    /// somebody is.
    Try(Instant),
    /// To delete them, whoever is on duty.
    Finish,
}

impl Leaving {
    /// What to do about `links`, which are all that are on their way out now.
    pub fn turn(&mut self, links: &BTreeSet<u32>, now: Instant) -> Turn {
        self.0.retain(|index, _| links.contains(index));
        for index in links {
            self.0.entry(*index).or_insert(now);
        }
        let Some(oldest) = self.0.values().min() else {
            return Turn::Nothing;
        };
        match now.saturating_duration_since(*oldest) {
            age if age < GATHER => Turn::Wait(*oldest + GATHER),
            age if age < PATIENCE => Turn::Try(now + LOOK_AGAIN),
            _ => Turn::Finish,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_left_to_a_finisher_that_is_on_duty() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut leaving = Leaving::default();
        let mut turn = |links: &[u32], milliseconds| {
            leaving.turn(&links.iter().copied().collect(), at(milliseconds))
        };
        assert_eq!(turn(&[], 0), Turn::Nothing);
        assert_eq!(turn(&[7], 0), Turn::Wait(at(400)));
        assert_eq!(turn(&[7, 9], 399), Turn::Wait(at(400)));
        assert_eq!(turn(&[7, 9], 400), Turn::Try(at(500)));
        assert_eq!(turn(&[7, 9], 1999), Turn::Try(at(2099)));
        assert_eq!(turn(&[7, 9], 2000), Turn::Finish);
        assert_eq!(turn(&[9], 2000), Turn::Try(at(2100)));
        // Deleted, and its number given to another.
        assert_eq!(turn(&[], 2001), Turn::Nothing);
        assert_eq!(turn(&[9], 2500), Turn::Wait(at(2900)));
    }
}
