//! Versions of state: whether what was seen is still what is there.

/// A number that grows with each change of some state. Two reads with the same
/// version saw the same; nothing else follows from the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u64);

impl Version {
    /// The state has changed.
    pub fn bump(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }

    /// Whether this is the version right after `earlier`.
    #[must_use]
    pub fn follows(self, earlier: Self) -> bool {
        earlier.0.wrapping_add(1) == self.0
    }
}
