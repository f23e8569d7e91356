//! A signal removes all labs of this process and then ends it.
//!
//! The handler runs on its own thread while other threads may create or drop
//! objects. A lock separates them: the handler takes it before it removes the
//! first object and never releases it, so that every other thread that needs it
//! waits until the process ends.

use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::LabError;
use crate::lab::LabCore;
use crate::teardown::take_down;

/// The labs of this process; `None` until the signal handler is installed.
static LIVE: Mutex<Option<Vec<Weak<LabCore>>>> = Mutex::new(None);

/// Held for reading by every thread that creates an object and its journal entry,
/// or removes them; taken for writing, for ever, by the signal handler.
static SHUTDOWN: RwLock<()> = RwLock::new(());

/// Delays the signal handler until the guard is dropped. During a shutdown it does
/// not return.
pub(crate) fn delay_shutdown() -> RwLockReadGuard<'static, ()> {
    SHUTDOWN.read().unwrap_or_else(PoisonError::into_inner)
}

/// To be called before an error is reported or an object is removed. During a
/// shutdown it does not return: the shutdown is the cause of the error, which then
/// nobody needs to see.
pub fn block_if_shutting_down() {
    drop(delay_shutdown());
}

/// Registers `lab` to be removed when a signal ends this process. The first call
/// starts the thread that waits for signals.
pub(crate) fn on_signal(lab: Weak<LabCore>) -> Result<(), LabError> {
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let labs = match live.as_mut() {
        Some(labs) => labs,
        None => {
            wait_for_signals()?;
            live.insert(Vec::new())
        }
    };
    labs.retain(|other| other.strong_count() > 0);
    labs.push(lab);
    Ok(())
}

fn wait_for_signals() -> Result<(), LabError> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(|source| LabError::Start {
            command: "the thread that waits for signals".to_owned(),
            source,
        })?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            shut_down(signal);
        }
    });
    Ok(())
}

#[expect(
    clippy::print_stderr,
    reason = "a program that a signal ends reports here what it removes"
)]
fn shut_down(signal: i32) {
    let _never_released = SHUTDOWN.write().unwrap_or_else(PoisonError::into_inner);
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    for lab in live.iter().flatten().filter_map(Weak::upgrade) {
        if !lab.is_kept() {
            eprintln!("\nsignal {signal}: removing the lab {}", lab.name());
            if let Err(error) = take_down(lab.name()) {
                eprintln!("{}", error.chain());
            }
        }
        // Dropping the last handle here would wait for this thread itself.
        std::mem::forget(lab);
    }
    std::process::exit(128 + signal);
}
