//! What ends threads that run as long as something is looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends its threads when it is dropped.
#[derive(Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// What such a thread asks.
#[derive(Debug, Clone)]
pub struct Stopped(Arc<AtomicBool>);

impl Stop {
    /// For one more thread.
    pub fn stopped(&self) -> Stopped {
        Stopped(Arc::clone(&self.0))
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Stopped {
    /// Whether the thread is to end.
    pub fn now(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
