//! The timeouts of session affinity. The rules have chains for each of them, so there are
//! few: a Service whose timeout is one too many gets the next longer one that there is.

use std::collections::BTreeMap;

/// The most timeouts at one time.
pub const MAX_TIMEOUTS: usize = 32;

/// The longest timeout in seconds, which is the longest that the API server lets through.
/// It always has a place, so that there is a longer one for each other.
pub const LONGEST: u32 = 86_400;

/// The timeouts in use, each with how many Service ports have it.
#[derive(Debug, Default)]
pub struct Timeouts(BTreeMap<u32, usize>);

impl Timeouts {
    /// One more user of a timeout, or of what there is in its place, which is returned.
    pub fn acquire(&mut self, wanted: u32) -> u32 {
        let wanted = wanted.clamp(1, LONGEST);
        let places = MAX_TIMEOUTS - usize::from(!self.0.contains_key(&LONGEST));
        let fits = wanted == LONGEST || self.0.contains_key(&wanted) || self.0.len() < places;
        let given = if fits {
            wanted
        } else {
            self.0
                .range(wanted..)
                .next()
                .map_or(LONGEST, |(one, _)| *one)
        };
        *self.0.entry(given).or_default() += 1;
        given
    }

    /// One user less of a timeout that was given.
    pub fn release(&mut self, given: u32) {
        let Some(users) = self.0.get_mut(&given) else {
            return;
        };
        *users -= 1;
        if *users == 0 {
            self.0.remove(&given);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_timeout_too_many_is_the_next_longer_one() {
        let mut timeouts = Timeouts::default();
        for wanted in 1..32 {
            assert_eq!(timeouts.acquire(wanted * 100), wanted * 100);
        }
        assert_eq!(timeouts.acquire(150), 200);
        assert_eq!(timeouts.acquire(3_200), LONGEST);
        assert_eq!(timeouts.acquire(LONGEST + 1), LONGEST);
        // Only the last of its users makes room.
        timeouts.release(200);
        assert_eq!(timeouts.acquire(150), 200);
        for _ in 0..2 {
            timeouts.release(200);
        }
        assert_eq!(timeouts.acquire(150), 150);
    }

    proptest! {
        #[test]
        fn there_are_never_too_many_and_none_is_shorter(
            steps in prop::collection::vec((any::<bool>(), 0..100_000u32), 0..300),
        ) {
            let mut timeouts = Timeouts::default();
            let mut given = Vec::new();
            for (is_more, number) in steps {
                if is_more || given.is_empty() {
                    given.push(timeouts.acquire(number));
                    prop_assert!(given.last() >= Some(&number.min(LONGEST)));
                } else {
                    timeouts.release(given.swap_remove(number as usize % given.len()));
                }
                prop_assert!(timeouts.0.len() <= MAX_TIMEOUTS);
                prop_assert_eq!(timeouts.0.values().sum::<usize>(), given.len());
            }
        }
    }
}
