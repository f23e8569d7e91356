//! A deadline for a system call that has none of its own.
//!
//! flock(2) waits for ever, in a fair queue; trying again and again instead costs
//! a process some thousand wake-ups a second when a hundred wait, and the order.
//! So the waiting thread has the kernel send it a signal when the time is over,
//! which ends the call with EINTR. The signal is SIGURG: whoever else gets one
//! ignores it by default.

use std::io;
use std::time::{Duration, Instant};

use nix::libc::c_int;
use nix::sys::signal::{
    SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, SigmaskHow, Signal, sigaction,
};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::gettid;

/// The signal comes again and again: the first may come before the call.
const AGAIN: Duration = Duration::from_millis(10);

/// Interrupts system calls of the thread that made it, from its deadline on and
/// until it is dropped.
pub(super) struct Alarm {
    // Dropped in this order, so that no signal of the timer's stays pending.
    _timer: Timer,
    _unblocked: Unblocked,
}

/// The signal gets through to the thread, whatever who started the process has
/// blocked; dropped, the thread's mask is what it was.
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
        // It cannot fail: the mask is one that the kernel gave.
        let _ = self.before.thread_set_mask();
    }
}

impl Alarm {
    /// Goes off at `deadline`.
    pub(super) fn at(deadline: Instant) -> io::Result<Self> {
        extern "C" fn interrupt(_: c_int) {}
        let action = SigAction::new(
            SigHandler::Handler(interrupt),
            // Without SA_RESTART: the call is to end.
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
        // Zero would switch it off.
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
