//! What one thread sees and another waits for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;

/// A state that is changed and waited for.
#[derive(Default)]
pub struct Awaited<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T> Awaited<T> {
    /// The state as it is; who waits is not told of what is changed by it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and tells who waits.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `check` finds what it looks for. What it gives instead says
    /// what is missing; if it fails, waiting is of no use.
    pub fn wait<V>(
        &self,
        limit: Duration,
        check: impl Fn(&T) -> anyhow::Result<Result<V, String>>,
    ) -> anyhow::Result<V> {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            let missing = match check(&state)? {
                Ok(found) => return Ok(found),
                Err(missing) => missing,
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("{missing} within {} s", limit.as_secs());
            }
            (state, _) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
