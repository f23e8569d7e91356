//! Which pods say that they have an address: of several only one is seen.

use super::PodId;

/// The pods that say that an address is theirs.
#[derive(Debug)]
pub enum Claims {
    /// A single one, as of nearly every address.
    One(PodId),
    /// More than one.
    Several(Vec<PodId>),
}

impl Claims {
    /// All of them.
    pub fn all(&self) -> &[PodId] {
        match self {
            Self::One(pod) => std::slice::from_ref(pod),
            Self::Several(pods) => pods,
        }
    }

    /// One more pod says so.
    pub fn add(&mut self, id: PodId) {
        if !self.all().contains(&id) {
            *self = Self::Several(self.all().iter().copied().chain([id]).collect());
        }
    }
}
