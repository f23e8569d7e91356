//! When the next pass is due: pure, the clock is an argument.
//!
//! News makes a pass come sooner; without any, what has no notification is
//! looked at every second. The rest is read again too, though nothing was told
//! of it: one [`Share`] at a time, so that each comes round within half a
//! minute and news never waits for all of them. After a failure everything is
//! looked at again in one pass, soon at first, then less often.

use std::time::{Duration, Instant};

use crate::reconcile::kernel::notification::Part;

/// What has no notification (sysctls, the store) is looked at this often.
const LOOK: Duration = Duration::from_secs(1);
/// From one share to the next: all of them come round in less than the half
/// minute that a lost notification may cost.
const SHARE: Duration = Duration::from_secs(3);
/// Rest after a pass for news, in times of what it took: in a storm of news the
/// passes take half of the time, and each sees to all that has come meanwhile.
/// What the clock asks for owes none: it comes seldom enough by itself, and a
/// Node must not wait for it twice.
const REST: u32 = 1;
/// So much rest may be owed: news that comes alone, or a few at once, is seen
/// to without any.
const CREDIT: Duration = Duration::from_millis(20);
/// No rest is longer than this, whatever a pass took.
const LONGEST_REST: Duration = Duration::from_millis(50);
/// Wait after the first failure; it doubles with each further one.
const BACK_OFF: Duration = Duration::from_millis(250);
/// Longest wait after a failure.
const BACK_OFF_MAX: Duration = Duration::from_secs(15);

/// What is read again by itself. Links are not among them: each look reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// A part of the kernel's mirror.
    Kernel(Part),
    /// The stores of pods.
    Pods,
    /// The table `inet tweed`.
    Table,
    /// What the old iptables drops.
    Legacy,
}

impl Share {
    /// In the order of their turns.
    const ALL: [Self; 8] = [
        Self::Kernel(Part::Addresses),
        Self::Kernel(Part::Connected),
        Self::Kernel(Part::Routes),
        Self::Kernel(Part::Neighbours),
        Self::Kernel(Part::Fdb),
        Self::Pods,
        Self::Table,
        Self::Legacy,
    ];
}

/// What a pass has to look at besides the news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// What has no notification.
    pub look: bool,
    /// What is read again, whatever was told.
    pub again: &'static [Share],
}

impl Due {
    /// Whether everything is.
    fn is_full(self) -> bool {
        self.again.len() == Share::ALL.len()
    }

    /// Whether it is this one's turn.
    #[must_use]
    pub fn has(self, share: Share) -> bool {
        self.again.contains(&share)
    }
}

/// When passes are due.
#[derive(Debug, Clone)]
pub struct Schedule {
    look_at: Instant,
    again_at: Instant,
    /// The share that is read then; none for all of them.
    turn: Option<usize>,
    news_at: Instant,
    /// The rest that was owed when the last pass had ended, at this time.
    owed: (Duration, Instant),
    failures: u32,
}

impl Schedule {
    /// A schedule whose first pass is a full one, now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            look_at: now,
            again_at: now,
            turn: None,
            news_at: now,
            owed: (Duration::ZERO, now),
            failures: 0,
        }
    }

    /// The pass that is due now, where one is.
    #[must_use]
    pub fn due(&self, now: Instant, news: bool) -> Option<Due> {
        let again: &[Share] = match self.turn {
            _ if now < self.again_at => &[],
            Some(turn) => Share::ALL.get(turn..=turn).unwrap_or(&Share::ALL),
            None => &Share::ALL,
        };
        let look = now >= self.look_at || !again.is_empty();
        (look || (news && now >= self.news_at)).then_some(Due { look, again })
    }

    /// How long nothing is due.
    #[must_use]
    pub fn wait(&self, now: Instant, news: bool) -> Duration {
        let mut next = self.look_at.min(self.again_at);
        if news {
            next = next.min(self.news_at);
        }
        next.saturating_duration_since(now)
    }

    /// Has the next look come no later than `at`.
    pub fn look_by(&mut self, at: Instant) {
        self.look_at = self.look_at.min(at);
    }

    /// A pass that took so long has ended `now`, with or without a failure.
    pub fn passed(&mut self, now: Instant, took: Duration, due: Due, failed: bool) {
        let (owed, since) = self.owed;
        let rested = now.saturating_duration_since(since).saturating_sub(took);
        let mut owed = owed.saturating_sub(rested);
        if !due.look {
            owed += took.saturating_mul(REST);
        }
        let owed = owed.min(CREDIT + LONGEST_REST);
        self.owed = (owed, now);
        let rest = owed.saturating_sub(CREDIT);
        self.news_at = now + rest;
        if due.look {
            self.look_at = now + LOOK;
        }
        if failed {
            let back_off = BACK_OFF.saturating_mul(1 << self.failures.min(16));
            let back_off = back_off.min(BACK_OFF_MAX);
            // What failed may be news still: it must not turn the loop at once.
            self.news_at = now + back_off.min(LOOK);
            // The full pass that is owed is put off by no look that fails
            // meanwhile: what fails for good would put it off for ever.
            if due.is_full() || self.failures == 0 {
                self.turn = None;
                self.again_at = now + back_off;
                self.failures = self.failures.saturating_add(1);
            }
        } else {
            if !due.again.is_empty() {
                let next = self.turn.map_or(0, |turn| turn + 1);
                self.turn = Some(next % Share::ALL.len());
                self.again_at = now + SHARE;
            } else if self.failures > 0 {
                // What failed works again: the full pass that is owed comes now.
                self.again_at = self.again_at.min(now + rest);
            }
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWS: Due = Due {
        look: false,
        again: &[],
    };
    const LOOKS: Due = Due {
        look: true,
        again: &[],
    };
    const WHOLE: Due = Due {
        look: true,
        again: &Share::ALL,
    };

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_first_pass_is_full_and_the_next_ones_look_every_second() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        assert_eq!(schedule.due(start, false), Some(WHOLE));
        schedule.passed(start, ms(1), WHOLE, false);
        assert_eq!(schedule.due(start + ms(999), false), None);
        assert_eq!(schedule.wait(start, false), ms(1000));
        assert_eq!(schedule.due(start + ms(1000), false), Some(LOOKS));
    }

    #[test]
    fn each_share_comes_round_within_half_a_minute_and_no_pass_has_two() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        let mut last = [start; Share::ALL.len()];
        schedule.passed(start, ms(20), WHOLE, false);
        let (mut now, mut passes) = (start, 0);
        while now < start + ms(120_000) {
            now += schedule.wait(now, false);
            let due = schedule.due(now, false).unwrap();
            assert!(due.look && due.again.len() <= 1, "{due:?}");
            for (share, last) in Share::ALL.into_iter().zip(&mut last) {
                if due.has(share) {
                    *last = now;
                }
                assert!(now - *last < ms(30_000), "{share:?}");
            }
            now += ms(6);
            passes += 1;
            schedule.passed(now, ms(6), due, false);
        }
        assert!(passes <= 121, "{passes} in two minutes");
    }

    #[test]
    fn a_share_that_fails_is_followed_by_a_full_pass() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.passed(start, ms(1), WHOLE, false);
        let then = start + ms(3000);
        let due = schedule.due(then, false).unwrap();
        assert_eq!(due.again, &Share::ALL[..1]);
        schedule.passed(then, ms(1), due, true);
        assert_eq!(schedule.due(then + ms(249), false), None);
        assert_eq!(schedule.due(then + ms(250), false), Some(WHOLE));
    }

    #[test]
    fn a_look_can_be_brought_forward_and_not_put_off() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.passed(start, ms(1), WHOLE, false);
        schedule.look_by(start + ms(5000));
        assert_eq!(schedule.wait(start, false), ms(1000));
        schedule.look_by(start + ms(400));
        assert_eq!(schedule.wait(start, false), ms(400));
    }

    #[test]
    fn news_that_comes_alone_is_seen_to_at_once() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.passed(start, ms(5), WHOLE, false);
        assert_eq!(schedule.due(start, true), Some(NEWS));
        // A pass for news does not put off the look.
        schedule.passed(start + ms(900), ms(1), NEWS, false);
        assert!(schedule.due(start + ms(1000), false).is_some());
    }

    #[test]
    fn a_long_pass_puts_news_off_for_a_while_and_no_longer() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.passed(start, Duration::ZERO, WHOLE, false);
        schedule.passed(start, ms(400), NEWS, false);
        assert_eq!(schedule.wait(start, true), ms(50));
        assert_eq!(schedule.due(start + ms(49), true), None);
        assert_eq!(schedule.due(start + ms(50), true), Some(NEWS));
        // What was owed is rested meanwhile.
        schedule.passed(start + ms(500), ms(1), NEWS, false);
        assert_eq!(schedule.due(start + ms(500), true), Some(NEWS));
    }

    #[test]
    fn what_the_clock_asks_for_puts_no_news_off() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.passed(start, ms(400), WHOLE, false);
        assert_eq!(schedule.due(start, true), Some(NEWS));
    }

    #[test]
    fn in_a_storm_of_news_the_passes_take_half_of_the_time() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.passed(start, Duration::ZERO, WHOLE, false);
        let (mut now, mut passes) = (start, 0);
        while now < start + ms(900) {
            now += schedule.wait(now, true);
            assert!(schedule.due(now, true).is_some());
            now += ms(2);
            passes += 1;
            schedule.passed(now, ms(2), NEWS, false);
        }
        // 4 ms each, and what the credit is good for.
        assert!((225..=231).contains(&passes), "{passes}");
    }

    #[test]
    fn after_a_failure_the_next_pass_is_full_and_later_each_time() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.passed(start, ms(1), WHOLE, true);
        assert_eq!(
            schedule.due(start + ms(249), true),
            None,
            "news may be the failure"
        );
        assert!(
            schedule
                .due(start + ms(250), false)
                .is_some_and(Due::is_full)
        );
        schedule.passed(start + ms(250), ms(1), WHOLE, true);
        assert!(
            !schedule
                .due(start + ms(700), true)
                .is_some_and(Due::is_full)
        );
        assert!(
            schedule
                .due(start + ms(750), false)
                .is_some_and(Due::is_full)
        );
        for _ in 0..40 {
            schedule.passed(start, ms(1), WHOLE, true);
        }
        assert!(
            schedule
                .due(start + ms(15_000), false)
                .is_some_and(Due::is_full)
        );
        schedule.passed(start, ms(1), WHOLE, false);
        assert!(
            !schedule
                .due(start + ms(15_000), false)
                .is_some_and(Due::is_full)
        );
    }
    #[test]
    fn looks_that_fail_for_good_do_not_put_the_full_pass_off() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        let mut full = 0;
        for second in 0..300 {
            let now = start + ms(second * 1000);
            if let Some(due) = schedule.due(now, false) {
                full += u32::from(due.is_full());
                schedule.passed(now, ms(1), due, true);
            }
        }
        assert!(full >= 300 / 16, "{full}");
    }
}
