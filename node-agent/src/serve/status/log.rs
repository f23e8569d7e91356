//! Which lines the log gets of problems that begin, change and end. Pure.
//!
//! A problem whose effect changes is logged at once. One whose message or cure changes is
//! logged too, but a message may have a number in it that differs each time: the next line
//! of that problem follows after [`MESSAGE_GAP`], with what it says then.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tweed_core::problem::{Effect, Problem, ProblemKind};

/// Minimum time between two lines of a problem with the same effect.
const MESSAGE_GAP: Duration = Duration::from_secs(60);

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// A problem that is new, or says something else.
    Problem(Problem),
    /// A problem that is resolved.
    Resolved(Problem),
}

/// What the log says of each problem that is not over.
#[derive(Debug, Default)]
pub(super) struct ProblemLog {
    logged: BTreeMap<(ProblemKind, String), Logged>,
    /// When the first change that was held back is to be logged.
    due_at: Option<Instant>,
}

#[derive(Debug)]
struct Logged {
    problem: Problem,
    at: Instant,
    /// Whether the problem still exists.
    exists: bool,
}

impl ProblemLog {
    /// Whether a change that was held back is to be logged.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due_at.is_some_and(|at| at <= now)
    }

    /// Takes the current problems, the worst first, and gives what is to be logged.
    pub(super) fn observe(&mut self, problems: &[Problem], now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        self.due_at = None;
        for logged in self.logged.values_mut() {
            logged.exists = false;
        }
        for problem in problems {
            let key = (problem.kind, problem.object.clone());
            let Some(logged) = self.logged.get_mut(&key) else {
                lines.push(Line::Problem(problem.clone()));
                let logged = Logged {
                    problem: problem.clone(),
                    at: now,
                    exists: true,
                };
                self.logged.insert(key, logged);
                continue;
            };
            // Two reporters may have it, with different effects: the worst comes first.
            if std::mem::replace(&mut logged.exists, true) {
                continue;
            }
            if logged.problem == *problem {
                continue;
            }
            let next = logged.at + MESSAGE_GAP;
            if logged.problem.effect != problem.effect || next <= now {
                lines.push(Line::Problem(problem.clone()));
                logged.problem = problem.clone();
                logged.at = now;
            } else {
                self.due_at = Some(self.due_at.map_or(next, |at| at.min(next)));
            }
        }
        // What is wrong still, or now, comes last. That the start is over says `ready`, or what
        // is wrong.
        let gone = self.logged.extract_if(.., |_, logged| !logged.exists);
        let over = gone.filter(|((kind, _), _)| *kind != ProblemKind::Starting);
        let resolved = over.map(|(_, logged)| Line::Resolved(logged.problem));
        resolved.chain(lines).collect()
    }
}

impl Line {
    /// Writes it to the log.
    pub(super) fn write(&self) {
        match self {
            Self::Problem(problem) => {
                let (kind, message) = (problem.kind.word(), &problem.message);
                let (object, cure) = (&problem.object, &problem.cure);
                if problem.effect == Effect::Warning {
                    tracing::warn!(kind, object, cure, "{message}");
                } else {
                    tracing::error!(kind, object, cure, "{message}");
                }
            }
            Self::Resolved(problem) => tracing::info!(
                kind = problem.kind.word(),
                object = problem.object,
                "resolved: {}",
                problem.message
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log, and the time of its start.
    struct Log {
        log: ProblemLog,
        start: Instant,
    }

    impl Log {
        fn new() -> Self {
            Self {
                log: ProblemLog::default(),
                start: Instant::now(),
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        /// The lines of the log, by the problems' messages.
        fn observe(&mut self, seconds: u64, problems: &[Problem]) -> Vec<String> {
            let lines = self.log.observe(problems, self.at(seconds));
            let text = |line| match line {
                Line::Problem(problem) => problem.message,
                Line::Resolved(problem) => format!("resolved: {}", problem.message),
            };
            lines.into_iter().map(text).collect()
        }
    }

    fn problem(message: &str) -> Problem {
        Problem::new(ProblemKind::NotReported, "Kubernetes", message)
    }

    #[test]
    fn a_problem_is_logged_when_it_begins_and_when_it_ends() {
        let mut log = Log::new();
        assert_eq!(log.observe(0, &[problem("a")]), ["a"]);
        assert_eq!(log.observe(99, &[problem("a")]), [""; 0]);
        assert_eq!(log.observe(99, &[]), ["resolved: a"]);
        assert_eq!(log.observe(99, &[]), [""; 0]);
        assert_eq!(log.observe(99, &[problem("a")]), ["a"]);
    }

    /// The level that each line has in the log.
    fn levels(write: impl FnOnce()) -> String {
        #[derive(Clone, Default)]
        struct Buffer(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl std::io::Write for Buffer {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let kept = Buffer::default();
        let writer = kept.clone();
        let plain = tracing_subscriber::fmt().with_ansi(false).without_time();
        let subscriber = plain.with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, write);
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let words = text
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_keeps_pods_from_being_served_is_an_error() {
        let effects = [Effect::Warning, Effect::NewPods, Effect::RunningPods];
        let lines = effects.map(|effect| Line::Problem(problem("a").with_effect(effect)));
        let written = levels(|| lines.iter().for_each(Line::write));
        assert_eq!(written, "WARN ERROR ERROR");
    }

    #[test]
    fn a_failed_start_ends_with_what_is_wrong() {
        let mut log = Log::new();
        let starting = Problem::new(ProblemKind::Starting, "tweed-agent", "starting");
        log.log.observe(std::slice::from_ref(&starting), log.start);
        assert_eq!(log.observe(1, &[problem("a"), starting]), ["a"]);
        assert_eq!(log.observe(2, &[problem("a")]), [""; 0]);
        let other = Problem::new(ProblemKind::RangeFull, "n1", "x");
        assert_eq!(log.observe(3, &[other]), ["resolved: a", "x"]);
    }

    #[test]
    fn a_problem_that_becomes_worse_is_logged_at_once() {
        let mut log = Log::new();
        let worse = problem("a").with_effect(Effect::RunningPods);
        assert_eq!(log.observe(0, &[problem("a")]), ["a"]);
        assert_eq!(log.observe(1, std::slice::from_ref(&worse)), ["a"]);
        assert_eq!(log.observe(2, &[worse]), [""; 0]);
    }

    #[test]
    fn a_problem_that_two_reporters_have_is_logged_once() {
        let mut log = Log::new();
        let both = [problem("a").with_effect(Effect::RunningPods), problem("b")];
        assert_eq!(log.observe(0, &both), ["a"]);
        assert_eq!(log.observe(99, &both), [""; 0]);
    }

    #[test]
    fn another_message_is_logged_but_no_more_than_once_a_minute() {
        let mut log = Log::new();
        let lines = (0..=130).flat_map(|seconds| {
            let message = format!("{seconds} s");
            log.observe(seconds, &[problem(&message)])
        });
        assert_eq!(lines.collect::<Vec<_>>(), ["0 s", "60 s", "120 s"]);
    }

    #[test]
    fn a_message_that_was_held_back_is_logged_later_if_it_still_holds() {
        let mut log = Log::new();
        log.observe(0, &[problem("a")]);
        assert_eq!(log.observe(1, &[problem("b")]), [""; 0]);
        assert!(!log.log.is_due(log.at(59)) && log.log.is_due(log.at(60)));
        assert_eq!(log.observe(60, &[problem("b")]), ["b"]);
        assert!(!log.log.is_due(log.at(999)));
        // One that is back to what the log says needs no line.
        assert_eq!(log.observe(61, &[problem("c")]), [""; 0]);
        assert_eq!(log.observe(62, &[problem("b")]), [""; 0]);
        assert!(!log.log.is_due(log.at(999)));
    }

    #[test]
    fn a_change_of_one_problem_is_held_back_for_itself_alone() {
        let mut log = Log::new();
        let other = |message: &str| Problem::new(ProblemKind::RangeFull, "n1", message);
        log.observe(0, &[problem("a")]);
        assert_eq!(log.observe(30, &[problem("a"), other("x")]), ["x"]);
        assert_eq!(log.observe(70, &[problem("b"), other("y")]), ["b"]);
        assert_eq!(log.observe(90, &[problem("b"), other("y")]), ["y"]);
    }
}
