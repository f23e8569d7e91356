//! When a source was last heard of.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When a source was last heard of: an answer or an event of the API server,
/// bookmarks included, or a look at the file. A source that says nothing new is
/// thereby told from one that says nothing. Clones share the time.
#[derive(Debug, Clone)]
pub struct LastContact(Arc<Mutex<Instant>>);

impl Default for LastContact {
    /// A source that is new: it counts as heard of now.
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl LastContact {
    /// Time since then.
    pub fn age(&self) -> Duration {
        // A time is whole whoever panicked.
        let at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        at.elapsed()
    }

    /// The source was heard of now.
    pub(crate) fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}
