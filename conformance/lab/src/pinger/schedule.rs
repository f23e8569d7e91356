//! The times at which requests are sent.

use std::time::{Duration, Instant};

/// Time between the requests of one ping.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);

/// Number of offsets within the interval over which the pings of a set are spread,
/// so that not all of them send at the same time.
const PARTS: u32 = 10;

/// The times of one ping's requests: one interval apart, counted from its start and
/// not from the previous request, so that delays do not add up.
#[derive(Debug)]
pub(super) struct Schedule {
    next: Instant,
}

impl Schedule {
    /// The schedule of the ping with this index in a set that begins at `start`.
    pub(super) fn new(start: Instant, index: u32) -> Self {
        Self {
            next: start + INTERVAL / PARTS * (index % PARTS),
        }
    }

    /// The time of the next request.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Moves to the first time after `now`, when the next one has passed. Returns how
    /// many others were skipped. A late ping sends one request and does not catch
    /// up: hundreds of requests at once would overflow a queue, which looks like
    /// packet loss.
    pub(super) fn advance(&mut self, now: Instant) -> u32 {
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
            assert_eq!(schedule.advance(schedule.next() + 9 * MS), 0);
        }
    }

    #[test]
    fn skipped_requests_are_counted() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 0);
        assert_eq!(schedule.advance(start + 10 * MS), 1);
        assert_eq!(schedule.next(), start + 20 * MS);
        assert_eq!(schedule.advance(start + 1025 * MS), 100);
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
