//! What the kernel thread is told of the fast path by people, and what it tells them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tweed_component::message::FastPathSwitch;
use tweed_core::agent_state::FastPathState;

/// That the fast path is off for a while, and how it is.
#[derive(Debug, Default)]
pub struct FastPathSwitches(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    pause: Option<Pause>,
    state: Option<FastPathState>,
}

/// The fast path is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Until then; none until it is switched on.
    pub until: Option<Instant>,
}

impl Pause {
    fn is_over(self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl FastPathSwitches {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Each change of it is whole before anything could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody has switched it.
    pub fn switch(&self, to: FastPathSwitch, now: Instant) {
        self.inner().pause = match to {
            FastPathSwitch::On {} => None,
            FastPathSwitch::Off { seconds } => Some(Pause {
                // Longer than the clock goes is for ever.
                until: seconds.and_then(|time| now.checked_add(Duration::from_secs(time))),
            }),
        };
    }

    /// For how long it is off at this time, if it is.
    pub fn pause(&self, now: Instant) -> Option<Pause> {
        self.inner().pause.filter(|pause| !pause.is_over(now))
    }

    /// How it is; none as long as that is not known, or if the agent has none.
    pub fn state(&self) -> Option<FastPathState> {
        self.inner().state.clone()
    }

    /// It is so by now.
    pub fn set_state(&self, state: Option<FastPathState>) {
        self.inner().state = state;
    }
}
