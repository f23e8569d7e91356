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

    /// Where the true median of what gave these numbers lies, with 95 %
    /// confidence or a little more: from the `k`th lowest to the `k`th highest,
    /// with the largest `k` for which fewer than `k` of as many tossed coins
    /// show heads in at most 2.5 % of all throws. It takes nothing for granted
    /// but that the numbers do not depend on each other. Of fewer than six
    /// numbers nothing is that sure: then from the lowest to the highest.
    pub fn confidence(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let skipped = sure_ranks(sorted.len());
        Some(Self {
            median: percentile(&sorted, 0.5)?,
            low: *sorted.get(skipped)?,
            high: *sorted.get(sorted.len().checked_sub(skipped + 1)?)?,
        })
    }

    /// Of `above` divided by `below`, round by round.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Option<Self> {
        Self::of(&ratios(above, below))
    }
}

/// `above` divided by `below`, round by round.
pub fn ratios(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(a, b)| a / b).collect()
}

/// How many of `count` sorted numbers may be left out at each end of
/// [`Spread::confidence`].
fn sure_ranks(count: usize) -> usize {
    const ONE_SIDE: f64 = 0.025;
    // Of `count` coins exactly `heads` show heads: each chance from the one
    // before.
    let mut exactly = 0.5_f64.powf(count as f64);
    let mut fewer = 0.0;
    for heads in 0..count / 2 {
        fewer += exactly;
        if fewer > ONE_SIDE {
            return heads.saturating_sub(1);
        }
        exactly *= (count - heads) as f64 / (heads + 1) as f64;
    }
    0
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
    fn an_interval_of_confidence_has_the_ranks_of_the_books() {
        // The sign test's tables, 5 % on both sides together.
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
            assert_eq!(sure_ranks(count), ranks, "{count}");
        }
        let samples: Vec<f64> = (1..=20).map(f64::from).collect();
        let interval = Spread::confidence(&samples).unwrap();
        assert_eq!(
            (interval.low, interval.median, interval.high),
            (6.0, 10.5, 15.0)
        );
        assert_eq!(Spread::confidence(&[]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was half as fast in the second round: no matter.
        let ratio = Spread::of_ratios(&[10.0, 20.0], &[2.0, 4.0]).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (5.0, 5.0, 5.0));
    }
}
