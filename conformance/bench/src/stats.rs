//! Medians, percentiles, and the order of turns.
//! Pure.

use std::time::Duration;

/// The middle of some numbers, and the range of their middle half.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lower quartile.
    pub low: f64,
    /// The upper quartile.
    pub high: f64,
}

impl Spread {
    /// None of no numbers.
    pub fn of(samples: &[f64]) -> Option<Self> {
        Some(Self {
            median: percentile(samples, 0.5)?,
            low: percentile(samples, 0.25)?,
            high: percentile(samples, 0.75)?,
        })
    }

    /// Of `above` divided by `below`, round by round.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = above.iter().zip(below).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }
}

/// The value below which `share` of the numbers are, by linear interpolation between the
/// two nearest ranks.
pub fn percentile(numbers: &[f64], share: f64) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = share * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let (low, high) = (sorted.get(below)?, sorted.get(above)?);
    Some(low + (high - low) * (place - below as f64))
}

/// The middle of some numbers; nothing of none.
pub fn median(numbers: &[f64]) -> f64 {
    percentile(numbers, 0.5).unwrap_or_default()
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
    fn a_spread_has_the_quartiles_of_numbers_in_any_order() {
        let spread = Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 3.0, 4.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was half as fast in the second round.
        let ratio = Spread::of_ratios(&[10.0, 20.0], &[2.0, 4.0]).unwrap();
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
