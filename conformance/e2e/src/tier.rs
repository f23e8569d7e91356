//! How much of each scenario is run.

/// The size at which scenarios run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Small enough to test every change: all scenarios take some minutes.
    Ci,
    /// Full size: an hour.
    Full,
}

impl Tier {
    /// The size of something in each of them.
    pub fn size<T>(self, ci: T, full: T) -> T {
        match self {
            Self::Ci => ci,
            Self::Full => full,
        }
    }

    /// Its name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ci => "ci",
            Self::Full => "full",
        }
    }
}
