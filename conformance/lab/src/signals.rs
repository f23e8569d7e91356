//! What a signal does: the labs of this process are taken down, then it ends.
//!
//! The handler runs on a thread of its own while others may be building or
//! dropping things. A gate keeps them apart: it is closed for good before the
//! first thing is taken away, and whoever comes to it then waits for the end.

use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::LabError;
use crate::lab::LabCore;
use crate::teardown::take_down;

/// The labs of this process, for the signal handler; none before there is one.
static LIVE: Mutex<Option<Vec<Weak<LabCore>>>> = Mutex::new(None);

/// Held for reading by whoever makes something and writes it into a journal,
/// or takes it away; taken for writing, for good, by the signal handler:
/// nothing happens behind its back.
static GATE: RwLock<()> = RwLock::new(());

/// Keeps the signal handler waiting; waits for the end if that is at work.
pub(crate) fn gate() -> RwLockReadGuard<'static, ()> {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// To be called where something failed: if the signal handler is taking the
/// lab away, that is why, and nobody wants to hear of it.
pub fn end_here_if_leaving() {
    drop(gate());
}

/// Has `lab` taken down if a signal ends this process. The first call starts
/// the thread that waits for signals.
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
            leave(signal);
        }
    });
    Ok(())
}

#[expect(
    clippy::print_stderr,
    reason = "the last words of a program that a signal ends"
)]
fn leave(signal: i32) {
    let _for_good = GATE.write().unwrap_or_else(PoisonError::into_inner);
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    for lab in live.iter().flatten().filter_map(Weak::upgrade) {
        if !lab.is_kept() {
            eprintln!("\nsignal {signal}: taking the lab {} down", lab.name());
            if let Err(error) = take_down(lab.name()) {
                eprintln!("{}", error.chain());
            }
        }
        // The last handle's drop would wait for this thread.
        std::mem::forget(lab);
    }
    std::process::exit(128 + signal);
}
