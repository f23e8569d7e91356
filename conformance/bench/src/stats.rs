//! Medians, their intervals of confidence, percentiles, and the order of turns.
//! Pure.

use std::time::Duration;

/// The middle of some numbers, and where the true middle lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// The median of `samples`, and where the true median lies with at least 95 %
    /// confidence: from the `k`th lowest to the `k`th highest, with the largest
    /// `k` that the sign test allows. It assumes only that the numbers do not
    /// depend on each other. Fewer than six numbers give no such confidence: then
    /// it is the range from the lowest to the highest.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let skipped = ranks_to_skip(sorted.len());
        Some(Self {
            median: percentile(&sorted, 0.5)?,
            low: *sorted.get(skipped)?,
            high: *sorted.get(sorted.len().checked_sub(skipped + 1)?)?,
        })
    }

    /// Of `above` divided by `below`, round by round.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = above.iter().zip(below).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }
}

/// How many of `count` sorted numbers are left out at each end of the interval:
/// so many that fewer of `count` tossed coins show heads with a probability of at
/// most 2.5 %.
fn ranks_to_skip(count: usize) -> usize {
    const ONE_SIDE: f64 = 0.025;
    let mut exactly = 0.5_f64.powf(count as f64);
    let mut at_most = 0.0;
    for heads in 0..count / 2 {
        at_most += exactly;
        if at_most > ONE_SIDE {
            return heads.saturating_sub(1);
        }
        exactly *= (count - heads) as f64 / (heads + 1) as f64;
    }
    0
}

/// The value below which `share` of the sorted numbers are, by linear
/// interpolation between the two nearest ranks.
pub fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let (low, high) = (sorted.get(below)?, sorted.get(above)?);
    Some(low + (high - low) * (place - below as f64))
}

/// The order in which `count` subjects take their turns in a round: each round
/// begins with another one, and in every second one they follow each other
/// backwards, so that none always follows the same other one.
pub fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| {
        let at = (round / 2 + turn) % count;
        if round.is_multiple_of(2) {
            at
        } else {
            count - 1 - at
        }
    })
}

/// A duration in milliseconds.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_ranks_of_the_sign_test() {
        for (count, ranks) in [
            (1, 0),
            (5, 0),
            (6, 0),
            (8, 0),
            (9, 1),
            (15, 3),
            (20, 5),
            (25, 7),
        ] {
            assert_eq!(ranks_to_skip(count), ranks, "{count}");
        }
        // In any order.
        let samples: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        let interval = Interval::of(&samples).unwrap();
        assert_eq!(
            (interval.low, interval.median, interval.high),
            (6.0, 10.5, 15.0)
        );
        assert_eq!(Interval::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was half as fast in the second round.
        let ratio = Interval::of_ratios(&[10.0, 20.0], &[2.0, 4.0]).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (5.0, 5.0, 5.0));
    }

    #[test]
    fn every_subject_has_a_turn_in_every_round_and_predecessors_change() {
        for count in 1..9 {
            for round in 0..20 {
                let mut order: Vec<usize> = turns(round, count).collect();
                order.sort_unstable();
                assert_eq!(order, (0..count).collect::<Vec<_>>());
            }
        }
        assert_eq!(turns(0, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(turns(1, 3).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(turns(2, 3).collect::<Vec<_>>(), [1, 2, 0]);
    }
}
