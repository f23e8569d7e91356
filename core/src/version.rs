//! Versions of state: whether somebody has seen the latest change of it.

/// A number that grows with each change of some state. Whoever has acted on a
/// version need not act again while the version is the same. Versions of
/// different states have nothing to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u64);

impl Version {
    /// Makes it the next version, because the state has changed.
    pub fn bump(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }

    /// Whether exactly one change lies between `earlier` and this version: then
    /// a delta of that change is enough for whoever has acted on `earlier`.
    #[must_use]
    pub fn follows(self, earlier: Self) -> bool {
        earlier.0.wrapping_add(1) == self.0
    }
}
