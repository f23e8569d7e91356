//! A deadline for a system call that has none of its own.
//!
//! flock(2) waits without a limit, in a fair queue. Polling instead costs some
//! thousand wake-ups a second when a hundred processes wait, and the queue's order.
//! So the waiting thread lets the kernel send it a signal at the deadline, which
//! ends the call with EINTR. The signal is SIGURG, which a process ignores by
//! default.

use std::io;
use std::time::{Duration, Instant};

use nix::sys::signal::{
    SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, SigmaskHow, Signal, sigaction,
};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::{libc::c_int, time::ClockId, unistd::gettid};

/// Interval at which the signal is repeated: the first may arrive before the system
/// call begins.
const AGAIN: Duration = Duration::from_millis(10);

/// Interrupts system calls of the thread that made it, from its deadline on and
/// until it is dropped.
pub(super) struct Alarm {
    // Dropped in this order, so that no signal of the timer stays pending.
    _timer: Timer,
    _unblocked: Unblocked,
}

/// Unblocks the signal for this thread, as the process may have been started with it
/// blocked. Restores the thread's signal mask on drop.
struct Unblocked {
    before: SigSet,
}

impl Unblocked {
    fn begin() -> nix::Result<Self> {
        let before = SigSet::from(Signal::SIGURG).thread_swap_mask(SigmaskHow::SIG_UNBLOCK)?;
        Ok(Self { before })
    }
}

impl Drop for Unblocked {
    fn drop(&mut self) {
        // It cannot fail, as the mask came from the kernel.
        let _ = self.before.thread_set_mask();
    }
}

impl Alarm {
    /// Interrupts from `deadline` on.
    pub(super) fn at(deadline: Instant) -> io::Result<Self> {
        extern "C" fn interrupt(_: c_int) {}
        let action = SigAction::new(
            SigHandler::Handler(interrupt),
            // Without SA_RESTART, as the call must end.
            SaFlags::empty(),
            SigSet::empty(),
        );
        #[expect(unsafe_code, reason = "sigaction(2) is unsafe by its handler")]
        // SAFETY: the handler does nothing, so it is safe in any context.
        unsafe { sigaction(Signal::SIGURG, &action) }?;
        let unblocked = Unblocked::begin()?;
        let event = SigEvent::new(SigevNotify::SigevThreadId {
            signal: Signal::SIGURG,
            thread_id: gettid().as_raw(),
            si_value: 0,
        });
        let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, event)?;
        // A zero would disarm the timer.
        let first = deadline
            .saturating_duration_since(Instant::now())
            .max(Duration::from_nanos(1));
        let expiration = Expiration::IntervalDelayed(first.into(), AGAIN.into());
        timer.set(expiration, TimerSetTimeFlags::empty())?;
        Ok(Self {
            _timer: timer,
            _unblocked: unblocked,
        })
    }
}
