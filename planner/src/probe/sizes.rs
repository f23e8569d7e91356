//! How large packets may be on a way: one of full size is tried now and then, and where it
//! is lost, the largest that passes is found by halving.

/// How often a packet of full size is lost before the largest is looked for, and how many of
/// them have to pass afterwards.
const MISSES: u32 = 3;
const ANSWERS: u32 = 2;
/// How often one of another size is tried: one lost by chance must not decide.
const TRIES: u32 = 2;

/// What is known of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Those of full size pass as far as is known.
    Full { passed: bool, missed: u32 },
    /// The largest is between these two: `low` passes, and `high` does not.
    Halving { low: u32, high: u32, tries: u32 },
    /// This is the largest.
    Limited { mtu: u32, answers: u32 },
}

impl Default for Sizes {
    fn default() -> Self {
        Self::Full {
            passed: false,
            missed: 0,
        }
    }
}

impl Sizes {
    /// The size to be tried, if the largest that pods send is `full`.
    pub(super) fn next(self, full: u32) -> u32 {
        match self {
            Self::Full { .. } | Self::Limited { .. } => full,
            Self::Halving { low, high, .. } => low.midpoint(high),
        }
    }

    /// Whether more is to be known soon.
    pub(super) fn is_urgent(self) -> bool {
        match self {
            Self::Full { missed, .. } => missed > 0,
            Self::Halving { .. } => true,
            Self::Limited { answers, .. } => answers > 0,
        }
    }

    /// Whether nothing speaks against packets of full size.
    pub(super) fn is_full(self) -> bool {
        matches!(self, Self::Full { missed: 0, .. })
    }

    /// The largest size, where it is less than pods send.
    pub(super) fn limit(self) -> Option<u32> {
        match self {
            Self::Limited { mtu, .. } => Some(mtu),
            Self::Full { .. } | Self::Halving { .. } => None,
        }
    }

    /// What follows from a packet of the size [`Self::next`] that was answered or not, while
    /// one of size `small` is.
    pub(super) fn tried(self, answered: bool, small: u32, full: u32) -> Self {
        match (self, answered) {
            (Self::Full { .. }, true) => Self::Full {
                passed: true,
                missed: 0,
            },
            (Self::Full { passed, missed }, false) if missed + 1 < MISSES => Self::Full {
                passed,
                missed: missed + 1,
            },
            (Self::Full { .. }, false) => Self::between(small, full),
            (Self::Halving { high, .. }, true) => Self::between(self.next(full), high),
            (Self::Halving { low, high, tries }, false) if tries + 1 < TRIES => Self::Halving {
                low,
                high,
                tries: tries + 1,
            },
            (Self::Halving { low, .. }, false) => Self::between(low, self.next(full)),
            (Self::Limited { answers, .. }, true) if answers + 1 >= ANSWERS => Self::Full {
                passed: true,
                missed: 0,
            },
            (Self::Limited { mtu, answers }, true) => Self::Limited {
                mtu,
                answers: answers + 1,
            },
            (Self::Limited { mtu, .. }, false) => Self::Limited { mtu, answers: 0 },
        }
    }

    fn between(low: u32, high: u32) -> Self {
        if low + 1 >= high {
            Self::Limited {
                mtu: low,
                answers: 0,
            }
        } else {
            Self::Halving {
                low,
                high,
                tries: 0,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_largest_that_passes_is_found_and_forgotten_when_all_pass(
            full in 70..9000u32,
            limit in 68..9000u32,
        ) {
            let mut sizes = Sizes::default();
            let mut tried = 0;
            while sizes.limit().is_none() && sizes != (Sizes::Full { passed: true, missed: 0 }) {
                sizes = sizes.tried(sizes.next(full) <= limit, 68, full);
                tried += 1;
            }
            prop_assert_eq!(sizes.limit(), (limit < full).then_some(limit));
            prop_assert!(tried <= 3 + 2 * 14, "{}", tried);
            for _ in 0..ANSWERS {
                sizes = sizes.tried(true, 68, full);
            }
            prop_assert_eq!(sizes.limit(), None);
        }
    }
}
