//! When walks through conntrack are due. Pure.

use std::time::{Duration, Instant};

/// How long after a change was written its last walk begins.
pub const SETTLE: Duration = Duration::from_secs(1);
/// How long walks rest for what one took, as a multiple of that: together they then use at
/// most a fifth of a CPU.
const REST_FACTOR: u32 = 4;
/// Time without walks for which later ones need not rest: a change that comes alone, or a
/// few, are followed at once.
const SPARED: Duration = Duration::from_secs(1);
/// Wait before a walk that has failed is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// The walks so far, and what they have to follow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timing {
    /// When a change was written last.
    pub changed: Option<Instant>,
    /// When the last walk began that was complete.
    walked: Option<Instant>,
    /// When the one began that is under way. It is taken for complete until it has ended.
    walking: Option<Instant>,
    /// Whether one is due in any case.
    pub wanted: bool,
    /// None begins before that.
    rests_until: Option<Instant>,
}

impl Timing {
    /// When the next walk is due, if any.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let of_change = self.changed.and_then(|changed| {
            let times = [changed, changed + SETTLE];
            let walked = self.walking.or(self.walked);
            let is_ahead = |at: &Instant| walked.is_none_or(|walked| walked < *at);
            times.into_iter().find(is_ahead)
        });
        let due = if self.wanted { now } else { of_change? };
        Some(self.rests_until.map_or(due, |rest| due.max(rest)))
    }

    /// One begins.
    pub fn begin(&mut self, now: Instant) {
        self.wanted = false;
        self.walking = Some(now);
    }

    /// The one that was under way has ended `now`, and has looked at all entries or not. It
    /// took `cost`, with what it was prepared by.
    pub fn ended(&mut self, now: Instant, cost: Duration, is_complete: bool) {
        self.rest_for(now, cost);
        self.walk_is_over(is_complete);
    }

    /// The one that was under way, or could not begin, has failed `now`, after that `cost`.
    pub fn failed(&mut self, now: Instant, cost: Duration) {
        self.rest_for(now, cost);
        self.rests_until = self.rests_until.max(Some(now + RETRY));
        self.walk_is_over(false);
    }

    fn rest_for(&mut self, now: Instant, cost: Duration) {
        let spared = now.checked_sub(SPARED);
        // The rest after a walk before it may last still, as far as it was spared.
        let from = self.rests_until.max(spared).unwrap_or(now);
        self.rests_until = Some(from + cost * (REST_FACTOR + 1));
    }

    fn walk_is_over(&mut self, is_complete: bool) {
        let walking = self.walking.take();
        if is_complete {
            self.walked = walking
        } else {
            self.wanted = true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Times in milliseconds at which walks begin that take no time, until nothing is due.
    fn walks(timing: &mut Timing, start: Instant) -> Vec<u128> {
        let mut times = Vec::new();
        let mut now = start;
        while let Some(at) = timing.next(now) {
            now = at.max(now);
            timing.begin(now);
            timing.ended(now, Duration::ZERO, true);
            times.push((now - start).as_millis());
        }
        times
    }

    #[test]
    fn a_change_is_followed_by_two_walks_the_second_after_packets_under_way_have_settled() {
        let start = Instant::now();
        let mut timing = Timing::default();
        assert_eq!(timing.next(start), None);
        timing.changed = Some(start);
        assert_eq!(walks(&mut timing, start), [0, 1000]);
        // One that began before the change does not count.
        timing.changed = Some(start + ms(5000));
        timing.begin(start + ms(4999));
        timing.ended(start + ms(5001), Duration::ZERO, true);
        assert_eq!(walks(&mut timing, start), [5000, 6000]);
    }

    /// Changes every millisecond, for a minute, and walks of 20 ms.
    #[test]
    fn changes_that_go_on_put_no_walk_off_and_walks_use_a_fifth_of_a_cpu() {
        let start = Instant::now();
        let mut timing = Timing::default();
        let mut walking = None;
        let mut began = Vec::new();
        for step in 0..60_000 {
            let now = start + ms(step);
            timing.changed = Some(now);
            if walking.is_some_and(|since| now >= since + ms(20)) {
                walking = None;
                timing.ended(now, ms(20), true);
            }
            if walking.is_none() && timing.next(now).is_some_and(|at| at <= now) {
                timing.begin(now);
                walking = Some(now);
                began.push(step);
            }
        }
        let rests = |pair: &[u64]| pair[1] - pair[0];
        let pairs: Vec<u64> = began.windows(2).map(rests).collect();
        assert!(pairs[..10].iter().all(|rest| *rest <= 21), "{pairs:?}");
        assert!(pairs[20..].iter().all(|rest| *rest >= 99), "{pairs:?}");
        assert!((600..620).contains(&began.len()), "{}", began.len());
    }

    /// As when endpoints come and go all the time on a machine whose conntrack takes long.
    #[test]
    fn a_change_now_and_then_is_followed_at_once() {
        let start = Instant::now();
        let mut timing = Timing::default();
        for step in 0..100 {
            let now = start + ms(step * 300);
            timing.changed = Some(now);
            assert!(timing.next(now).is_some_and(|at| at <= now), "{step}");
            timing.begin(now);
            timing.ended(now + ms(30), ms(30), true);
        }
    }

    #[test]
    fn what_has_failed_is_tried_again_after_a_rest() {
        let start = Instant::now();
        let mut timing = Timing {
            wanted: true,
            ..Timing::default()
        };
        timing.begin(start);
        timing.failed(start, ms(30));
        assert_eq!(timing.next(start + ms(10)), Some(start + RETRY));
        assert_eq!(walks(&mut timing, start), [1000]);
        // Those of a table that takes long rest as long as if they had not failed.
        timing.wanted = true;
        timing.begin(start + ms(10_000));
        timing.failed(start + ms(13_000), ms(3000));
        assert_eq!(timing.next(start), Some(start + ms(27_000)));
    }
}
