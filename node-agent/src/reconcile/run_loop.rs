//! The kernel thread: waits for news or the clock, and goes through.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::watch;

use super::Passes;
use super::schedule::Schedule;
use crate::agent::Report;
use crate::state::Inbox;

/// Starts the thread. It ends when the inbox says so or nobody listens.
pub(crate) fn start(
    passes: Passes,
    inbox: Arc<Inbox>,
    reports: watch::Sender<Report>,
) -> io::Result<JoinHandle<()>> {
    Builder::new()
        .name("kernel".to_owned())
        .spawn(move || run(passes, &inbox, &reports))
}

/// A source mostly says its first word at once: a pass before it would be one
/// over nothing, and a warning about that.
const FIRST_WORD: Duration = Duration::from_secs(1);

fn run(mut passes: Passes, inbox: &Inbox, reports: &watch::Sender<Report>) {
    let mut schedule = Schedule::new(Instant::now() + FIRST_WORD);
    let mut silent = true;
    let mut news = false;
    loop {
        wait(&passes, inbox, schedule.wait(Instant::now(), news), news);
        inbox.answer();
        let (stop, spoken) = {
            let told = inbox.told();
            (told.stop, told.spoken)
        };
        if stop || reports.is_closed() {
            return;
        }
        if silent && spoken {
            silent = false;
            schedule = Schedule::new(Instant::now());
        }
        news = passes.news();
        let now = Instant::now();
        passes.beat(now);
        if let Some(due) = schedule.due(now, news) {
            let outcome = passes.go(due);
            let ended = Instant::now();
            schedule.passed(ended, ended - now, due, outcome.failed);
            if let Some(at) = outcome.look_at {
                schedule.look_by(at);
            }
            news = passes.news();
            reports.send_replace(outcome.report);
            if !news {
                passes.prepare();
            }
        }
    }
}

/// Waits until there may be something to do. With news that is known already
/// only the bell is listened to: the rest would wake the thread at once.
fn wait(passes: &Passes, inbox: &Inbox, time: Duration, news: bool) {
    let mut fds = vec![inbox.as_fd()];
    if !news {
        fds.extend(passes.fds());
    }
    let mut fds: Vec<PollFd<'_>> = fds
        .into_iter()
        .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
        .collect();
    // Rounded up: a wait that is a moment short would turn the loop in vain.
    let time = time + Duration::from_micros(999);
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
    // A signal may end it early; the loop then looks and waits again.
    let _ = poll(&mut fds, timeout);
}
