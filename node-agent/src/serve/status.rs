//! The status board: the current problems, by reporter.
//!
//! Each reporter replaces its whole list, so a problem is over when it is not
//! reported again. Problems that begin, change or end and changes of readiness are
//! logged here; a report that changes nothing logs nothing ([`log`]).

mod log;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use tweed_core::problem::{Effect, Problem, ProblemKind};

use log::{Line, ProblemLog};

/// Time without a heartbeat after which the loop counts as stuck. It sends one
/// every second, but a run may have to wait for the kernel or for `nft`.
const STUCK_AFTER: Duration = Duration::from_secs(90);

/// Who found a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reporter {
    /// The reconcile loop: source, cluster, kernel, nftables, pods.
    Pass,
    /// The files that others read.
    Publish,
    /// The HTTP server of whose address the kind is the problem.
    Listener(ProblemKind),
    /// The reviews of who may read metrics.
    MetricsAuth,
    /// The reports to Kubernetes.
    Report,
    /// The search for another agent of this node.
    OtherAgent,
    /// The log of dropped packets.
    DropLog,
    /// The servers of health checks of Services.
    ServiceHealthPorts,
    /// The probes of other nodes.
    Probes,
    /// The fast path.
    FastPath,
}

/// The current problems of all reporters, and since when readiness is unchanged.
#[derive(Debug)]
pub struct StatusBoard {
    inner: Mutex<Inner>,
    changes: watch::Sender<()>,
}

#[derive(Debug)]
struct Inner {
    problems: BTreeMap<Reporter, Vec<Problem>>,
    log: ProblemLog,
    notes: BTreeMap<Reporter, Vec<String>>,
    last_heartbeat: Instant,
    readiness_since: Instant,
    own_uid: String,
    /// Whether the UID changed after the last notification.
    own_is_new: bool,
    /// Whether it was noticed that the loop is stuck.
    noticed_stuck: bool,
}

/// The state of the board at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// All problems, the worst first.
    pub problems: Vec<Problem>,
    /// What else a person should know, a sentence each.
    pub notes: Vec<String>,
    /// How long readiness has been unchanged.
    pub unchanged_for: Duration,
}

impl Status {
    /// Whether new pods are served.
    pub fn ready(&self) -> bool {
        !self.any_at_least(Effect::NewPods)
    }

    /// Whether running pods are affected too.
    pub fn affects_running(&self) -> bool {
        self.any_at_least(Effect::RunningPods)
    }

    fn any_at_least(&self, effect: Effect) -> bool {
        self.problems.iter().any(|problem| problem.effect >= effect)
    }
}

impl StatusBoard {
    /// A board that says `starting` until the loop's first report.
    pub fn new(now: Instant) -> Self {
        let starting = Problem::new(
            ProblemKind::Starting,
            "tweed-agent",
            "the agent has started and has not reconciled yet",
        );
        let mut log = ProblemLog::default();
        // Each start is logged anyway.
        log.observe(std::slice::from_ref(&starting), now);
        Self {
            inner: Mutex::new(Inner {
                problems: BTreeMap::from([(Reporter::Pass, vec![starting])]),
                log,
                notes: BTreeMap::new(),
                last_heartbeat: now,
                readiness_since: now,
                own_uid: String::new(),
                own_is_new: false,
                noticed_stuck: false,
            }),
            changes: watch::Sender::new(()),
        }
    }

    /// Records that the loop runs. To be called on every turn of the loop, whether
    /// or not the API server answers and reconciling succeeds.
    pub fn heartbeat(&self, now: Instant) {
        self.inner().last_heartbeat = now;
    }

    /// Notices whether the loop runs, which it does not report if it does not: the log and
    /// listeners get to know. To be called now and then.
    pub fn notice_loop(&self, now: Instant) {
        let mut inner = self.inner();
        let is_stuck = inner.stuck_for(now).is_some();
        if std::mem::replace(&mut inner.noticed_stuck, is_stuck) == is_stuck {
            return;
        }
        let problems = status(&inner, now).problems;
        let lines = inner.log.observe(&problems, now);
        drop(inner);
        self.changes.send_replace(());
        lines.iter().for_each(Line::write);
    }

    /// Replaces the problems of `reporter`.
    pub fn report(&self, reporter: Reporter, problems: Vec<Problem>, now: Instant) {
        let mut inner = self.inner();
        let before = status(&inner, now);
        inner.problems.insert(reporter, problems);
        let after = status(&inner, now);
        if before.ready() != after.ready() {
            inner.readiness_since = now;
        }
        let own_is_new = std::mem::take(&mut inner.own_is_new);
        let differs = before.problems != after.problems;
        // Only then, as each of 5,000 Nodes may have a problem.
        let lines = if differs || inner.log.is_due(now) {
            inner.log.observe(&after.problems, now)
        } else {
            Vec::new()
        };
        drop(inner);
        if own_is_new || differs {
            self.changes.send_replace(());
        }
        lines.iter().for_each(Line::write);
        match (before.ready(), after.ready()) {
            (false, true) => tracing::info!("ready"),
            (true, false) => tracing::warn!("not ready"),
            _ => {}
        }
    }

    /// Replaces what one reporter has to say that is no problem, and should be known all the
    /// same.
    pub fn set_notes(&self, reporter: Reporter, notes: Vec<String>) {
        self.inner().notes.insert(reporter, notes);
    }

    /// Sets the UID of the own Node; empty if the source has none. Listeners are
    /// notified with the next report, which describes that Node.
    pub fn own_node(&self, uid: &str) {
        let mut inner = self.inner();
        if inner.own_uid != uid {
            uid.clone_into(&mut inner.own_uid);
            inner.own_is_new = true;
        }
    }

    /// The UID of the own Node; empty while it is not known.
    pub fn own_uid(&self) -> String {
        self.inner().own_uid.clone()
    }

    /// A receiver that is notified of each change of the board.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The state of the board now.
    pub fn status(&self, now: Instant) -> Status {
        status(&self.inner(), now)
    }

    /// Whether no reporter but `reporter` has a problem that keeps new pods from
    /// being served.
    pub fn ready_but_for(&self, reporter: Reporter) -> bool {
        let inner = self.inner();
        let mut others = inner.problems.iter().filter(|(by, _)| **by != reporter);
        others.all(|(_, problems)| problems.iter().all(|p| p.effect < Effect::NewPods))
    }

    /// Whether the loop has sent a heartbeat recently.
    ///
    /// # Errors
    /// The time since the last heartbeat.
    pub fn alive(&self, now: Instant) -> Result<(), Duration> {
        match self.inner().stuck_for(now) {
            None => Ok(()),
            Some(silent) => Err(silent),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No writer can panic between two changes that belong together.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The time since the last heartbeat, if it is too long.
    fn stuck_for(&self, now: Instant) -> Option<Duration> {
        let silent = now.saturating_duration_since(self.last_heartbeat);
        (silent >= STUCK_AFTER).then_some(silent)
    }
}

fn stuck() -> Problem {
    let seconds = STUCK_AFTER.as_secs();
    let text = format!("the agent's loop has not run for {seconds} s or longer");
    Problem::new(ProblemKind::LoopStuck, "tweed-agent", text)
}

fn status(inner: &Inner, now: Instant) -> Status {
    let mut problems: Vec<Problem> = inner.problems.values().flatten().cloned().collect();
    problems.extend(inner.stuck_for(now).map(|_| stuck()));
    problems.sort_by(|a, b| b.effect.cmp(&a.effect).then_with(|| a.cmp(b)));
    problems.dedup_by(|a, b| identity(a) == identity(b));
    Status {
        problems,
        notes: inner.notes.values().flatten().cloned().collect(),
        unchanged_for: now.saturating_duration_since(inner.readiness_since),
    }
}

/// Problems with the same identity are the same problem.
fn identity(problem: &Problem) -> (ProblemKind, &str) {
    (problem.kind, &problem.object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: ProblemKind, effect: Effect) -> Problem {
        Problem::new(kind, "object", "it broke").with_effect(effect)
    }

    fn kinds(status: &Status) -> Vec<&'static str> {
        status.problems.iter().map(|p| p.kind.word()).collect()
    }

    #[test]
    fn it_is_not_ready_before_the_first_pass_and_ready_after_one_without_problems() {
        let start = Instant::now();
        let board = StatusBoard::new(start);
        assert_eq!(kinds(&board.status(start)), ["starting"]);
        assert!(!board.status(start).ready());
        board.report(
            Reporter::Listener(ProblemKind::MetricsAddr),
            Vec::new(),
            start,
        );
        assert!(!board.status(start).ready());
        let later = start + Duration::from_secs(2);
        board.report(Reporter::Pass, Vec::new(), later);
        assert!(board.status(later).ready());
        let much_later = start + Duration::from_secs(10);
        board.report(
            Reporter::Pass,
            vec![problem(ProblemKind::RangeFull, Effect::Warning)],
            much_later,
        );
        let status = board.status(much_later);
        assert_eq!(status.unchanged_for, Duration::from_secs(8));
        assert!(status.ready());
    }

    #[test]
    fn a_report_replaces_only_what_the_same_reporter_said() {
        let now = Instant::now();
        let board = StatusBoard::new(now);
        board.report(
            Reporter::Listener(ProblemKind::MetricsAddr),
            vec![problem(ProblemKind::MetricsAddr, Effect::Warning)],
            now,
        );
        board.report(
            Reporter::Pass,
            vec![problem(ProblemKind::UnderlayDown, Effect::RunningPods)],
            now,
        );
        assert_eq!(kinds(&board.status(now)), ["underlay-down", "metrics-addr"]);
        assert!(board.status(now).affects_running());
        board.report(Reporter::Pass, Vec::new(), now);
        assert_eq!(kinds(&board.status(now)), ["metrics-addr"]);
        assert!(!board.status(now).affects_running());
    }

    #[test]
    fn the_worst_comes_first_and_the_same_problem_once() {
        let now = Instant::now();
        let board = StatusBoard::new(now);
        let twice = || problem(ProblemKind::NoPodCidr, Effect::NewPods);
        board.report(
            Reporter::Pass,
            vec![problem(ProblemKind::MtuTooBig, Effect::Warning), twice()],
            now,
        );
        board.report(Reporter::Publish, vec![twice()], now);
        assert_eq!(kinds(&board.status(now)), ["no-pod-cidr", "mtu-too-big"]);
    }

    #[test]
    fn whoever_listens_is_told_of_what_changes_and_of_nothing_else() {
        let now = Instant::now();
        let board = StatusBoard::new(now);
        let mut changes = board.changes();
        let mut changed = || {
            let changed = changes.has_changed().unwrap();
            changes.mark_unchanged();
            changed
        };
        assert!(!changed());
        let trouble = || vec![problem(ProblemKind::UnderlayDown, Effect::RunningPods)];
        board.report(Reporter::Pass, trouble(), now);
        assert!(changed());
        board.report(Reporter::Pass, trouble(), now);
        assert!(!changed());
        board.own_node("uid");
        assert!(!changed());
        board.report(Reporter::Pass, trouble(), now);
        assert!(changed());
        board.own_node("uid");
        board.report(Reporter::Pass, trouble(), now);
        assert!(!changed());
        assert_eq!(board.own_uid(), "uid");
    }

    #[test]
    fn a_reporter_does_not_stand_in_its_own_way() {
        let now = Instant::now();
        let board = StatusBoard::new(now);
        assert!(!board.ready_but_for(Reporter::Publish));
        board.report(Reporter::Pass, Vec::new(), now);
        board.report(
            Reporter::Publish,
            vec![problem(ProblemKind::FileUnwritable, Effect::NewPods)],
            now,
        );
        assert!(board.ready_but_for(Reporter::Publish));
        assert!(!board.status(now).ready());
    }

    #[test]
    fn listeners_get_to_know_of_a_loop_that_has_stopped_and_of_one_that_runs_again() {
        let start = Instant::now();
        let board = StatusBoard::new(start);
        board.report(Reporter::Pass, Vec::new(), start);
        let mut changes = board.changes();
        let mut notices = |seconds| {
            let now = start + Duration::from_secs(seconds);
            board.notice_loop(now);
            let changed = changes.has_changed().unwrap();
            changes.mark_unchanged();
            (changed, kinds(&board.status(now)).join(" "))
        };
        assert_eq!(notices(89), (false, String::new()));
        assert_eq!(notices(90), (true, "loop-stuck".to_owned()));
        assert_eq!(notices(91), (false, "loop-stuck".to_owned()));
        board.heartbeat(start + Duration::from_secs(100));
        assert_eq!(notices(100), (true, String::new()));
        assert_eq!(notices(101), (false, String::new()));
        assert!(board.status(start + Duration::from_secs(200)).ready());
    }

    #[test]
    fn a_loop_without_a_heartbeat_for_ninety_seconds_is_not_alive() {
        let start = Instant::now();
        let board = StatusBoard::new(start);
        let just = start + Duration::from_secs(89);
        assert_eq!(board.alive(just), Ok(()));
        let silent = Duration::from_secs(90);
        assert_eq!(board.alive(start + silent), Err(silent));
        board.heartbeat(just);
        assert_eq!(board.alive(start + silent), Ok(()));
    }
}
