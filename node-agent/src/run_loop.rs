//! The kernel thread: waits for changes or the time, and reconciles.

use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, os::fd::AsFd, sync::Arc};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::watch;

use crate::reconcile::schedule::{Changes, Schedule};
use crate::reconcile::{Progress, Reconcilers};
use crate::{serve::status::StatusBoard, state::State};

/// Maximum wait for the first report of the sources, which mostly comes at once:
/// a reconcile before it would have nothing to plan, and would warn of that.
const FIRST_REPORT: Duration = Duration::from_secs(1);

/// Starts the thread. It ends when the state says so or nobody receives
/// `progress`.
pub fn start(
    reconcilers: Reconcilers,
    state: Arc<State>,
    board: Arc<StatusBoard>,
    progress: watch::Sender<Progress>,
) -> io::Result<JoinHandle<()>> {
    Builder::new()
        .name("kernel".to_owned())
        .spawn(move || run(reconcilers, &state, &board, &progress))
}

fn run(
    mut reconcilers: Reconcilers,
    state: &State,
    board: &StatusBoard,
    progress: &watch::Sender<Progress>,
) {
    let mut schedule = Schedule::new(Instant::now() + FIRST_REPORT);
    let mut waits_for_report = true;
    let mut changes = Changes::None;
    loop {
        let now = Instant::now();
        let mut time = schedule.wait(now, changes);
        let has_changes = changes > Changes::None;
        if has_changes && reconcilers.can_follow() {
            time = time.min(schedule.pause(now));
        }
        let others = [reconcilers.walk_at(now), reconcilers.fast_path_look_at()];
        for at in others.into_iter().flatten() {
            time = time.min(at.saturating_duration_since(now));
        }
        wait(&reconcilers, state, time, has_changes);
        state.acknowledge();
        // ADDs wait for these: neither a pause nor the rest of a reconcile is for them.
        reconcilers.enforce_added();
        // Policies and Services do not wait: what has failed may last, and is mostly
        // something else.
        let now = Instant::now();
        if schedule.backs_off(now) && reconcilers.follow() {
            let ended = Instant::now();
            schedule.followed(ended, ended - now);
        }
        reconcilers.walk_conntrack(Instant::now());
        reconcilers.look_at_fast_path(Instant::now());
        let (stop, reported) = {
            // This may wait for a thread that applies events, so it comes before the
            // stores are taken.
            let policies = state.policy().is_none_or(|index| index.has_reported());
            let services = state.services().is_none_or(|index| index.has_reported());
            let stores = state.read();
            (stores.stop, stores.nodes_reported && policies && services)
        };
        if stop || progress.is_closed() {
            return;
        }
        if waits_for_report && reported {
            waits_for_report = false;
            schedule = Schedule::new(Instant::now());
        }
        changes = reconcilers.changes();
        let now = Instant::now();
        schedule.changed(now, changes);
        board.heartbeat(now);
        if let Some(due) = schedule.due(now, changes) {
            let (retry, after) = reconcilers.reconcile(due);
            let ended = Instant::now();
            schedule.ended(ended, ended - now, due, retry.resync);
            if let Some(at) = retry.poll_by {
                schedule.poll_by(at);
            }
            changes = reconcilers.changes();
            schedule.changed(ended, changes);
            progress.send_replace(after);
            if changes == Changes::None {
                reconcilers.prepare();
                reconcilers.tell_peers(ended);
            }
        }
    }
}

/// Waits until there may be something to do. With `changes` known already, which
/// wait for the end of a pause, only the state is polled: notifications would
/// end the wait at once.
fn wait(reconcilers: &Reconcilers, state: &State, time: Duration, changes: bool) {
    let mut watched = vec![state.as_fd()];
    if !changes {
        watched.extend(reconcilers.fds());
    }
    let mut fds: Vec<PollFd<'_>> = watched
        .into_iter()
        .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
        .collect();
    // Rounded up to whole milliseconds: a shorter wait would end before anything
    // is due.
    let time = time + Duration::from_micros(999);
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
    // A signal may end it early; the loop then finds nothing due and waits again.
    let _ = poll(&mut fds, timeout);
}
