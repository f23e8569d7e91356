//! Medians, spreads and ratios. Pure.

use serde::Serialize;

/// The middle of some numbers and how far they spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The tenth percentile.
    pub low: f64,
    /// The ninetieth percentile.
    pub high: f64,
}

impl Spread {
    /// Of these numbers; none without any.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: percentile(&sorted, 0.5)?,
            low: percentile(&sorted, 0.1)?,
            high: percentile(&sorted, 0.9)?,
        })
    }

    /// Of one number that does not spread.
    pub fn exact(number: f64) -> Self {
        Self {
            median: number,
            low: number,
            high: number,
        }
    }

    /// Of `above` divided by `below`, round by round.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = above.iter().zip(below).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }
}

/// Below which `share` of the sorted numbers are: between the two nearest
/// ranks, by linear interpolation.
pub fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let (low, high) = (sorted.get(below)?, sorted.get(above)?);
    Some(low + (high - low) * (place - below as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_samples_does_not_matter() {
        let spread = Spread::of(&[9.0, 1.0, 5.0, 3.0, 7.0]).unwrap();
        assert_eq!(spread.median, 5.0);
        assert!((spread.low - 1.8).abs() < 1e-9, "{spread:?}");
        assert!((spread.high - 8.2).abs() < 1e-9, "{spread:?}");
    }

    #[test]
    fn one_sample_is_all_three() {
        let spread = Spread::of(&[2.0]).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 2.0, 2.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was half as fast in the second round: no matter.
        let ratio = Spread::of_ratios(&[10.0, 20.0], &[2.0, 4.0]).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (5.0, 5.0, 5.0));
    }
}
