//! UIDs of pods, as small as the index of a whole cluster's pods needs them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// A hash of a UID, to be compared only. The API server and the kubelet choose UIDs, so
/// nobody can bring about that two have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid(u64);

impl Uid {
    /// That of this text.
    pub fn of(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self(hasher.finish())
    }
}
