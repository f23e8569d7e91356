//! When each request is to be sent.

use std::time::{Duration, Instant};

/// Time between the requests of one ping.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);

/// Into how many parts of the interval the pings are spread, so that not all
/// send at once.
const PARTS: u32 = 10;

/// The moments of one ping: an interval apart, counted from its start and not
/// from when the last request was sent.
#[derive(Debug)]
pub(super) struct Schedule {
    next: Instant,
}

impl Schedule {
    /// For the ping of this index among those that begin at `start`.
    pub(super) fn new(start: Instant, index: u32) -> Self {
        Self {
            next: start + INTERVAL / PARTS * (index % PARTS),
        }
    }

    /// The next moment.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Goes on from the next moment, which has come, to the first that has not;
    /// how many others that leaves out. Whoever comes late sends one request and
    /// does not catch up: hundreds at once would overflow a queue, and look like
    /// a loss.
    pub(super) fn pass(&mut self, now: Instant) -> u32 {
        let late = now.saturating_duration_since(self.next);
        let missed = late.as_nanos() / INTERVAL.as_nanos();
        let missed = u32::try_from(missed).unwrap_or(u32::MAX - 1);
        self.next += INTERVAL * (missed + 1);
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_small_delay_does_not_add_up() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 0);
        for index in 0..1000 {
            assert_eq!(schedule.next(), start + INTERVAL * index);
            assert_eq!(schedule.pass(schedule.next() + 9 * MS), 0);
        }
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 0);
        assert_eq!(schedule.pass(start + 10 * MS), 1);
        assert_eq!(schedule.next(), start + 20 * MS);
        assert_eq!(schedule.pass(start + 1025 * MS), 100);
        assert_eq!(schedule.next(), start + 1030 * MS);
    }

    #[test]
    fn pings_are_spread_over_the_interval() {
        let start = Instant::now();
        let first = |index| Schedule::new(start, index).next() - start;
        assert_eq!((first(0), first(1)), (Duration::ZERO, MS));
        assert_eq!(
            (first(9), first(10), first(123)),
            (9 * MS, Duration::ZERO, 3 * MS)
        );
    }
}
