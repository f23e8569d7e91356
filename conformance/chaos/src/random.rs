//! Numbers that follow from a seed: SplitMix64, which needs no more than a counter. They
//! choose faults; nothing secret depends on them.

/// A sequence of numbers that is the same for the same seed and stream.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence number `stream` of a seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut start = Self(seed);
        let base = start.next();
        Self(base ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        pick(self.next(), limit)
    }
}

/// One of `limit` choices by a number; 0 if there are none.
pub fn pick(number: u64, limit: usize) -> usize {
    let Ok(limit) = u64::try_from(limit.max(1)) else {
        return 0;
    };
    usize::try_from(number % limit).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_stream_give_one_sequence() {
        let first = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [(); 8].map(|()| random.next())
        };
        assert_eq!(first(7, 1), first(7, 1));
        assert_ne!(first(7, 1), first(7, 2));
        assert_ne!(first(7, 1), first(8, 1));
    }

    #[test]
    fn every_choice_occurs() {
        let mut random = Random::new(1, 1);
        let mut seen = [false; 7];
        for _ in 0..200 {
            seen[random.below(7)] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(0), 0);
    }
}
