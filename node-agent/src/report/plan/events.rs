//! The Events of the own Node.
//!
//! There is one Event for each reason. It is written when its problem has lasted
//! for [`SETTLED`], counted up when the problem comes back, and, if the problem
//! keeps pods from being served, renewed before the API server forgets it. So
//! the number of writes is limited by the number of reasons, whatever happens on
//! the node.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tweed_core::problem::{Problem, ProblemKind};

use super::problems::{is_event, is_outage, message};
use super::{RENEW, SETTLED, condition};

/// Minimum time between two writes of one Event.
const MIN_GAP: Duration = Duration::from_secs(60);

/// An Event to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventWrite {
    /// `TweedIsUp`, or the reason of the problem's kind.
    pub reason: String,
    /// What is wrong and what to do, or that the network is available.
    pub message: String,
    /// Whether its type is `Warning`; otherwise it is `Normal`.
    pub warning: bool,
    /// Its count. `None` if this run of the agent has not written it yet.
    pub count: Option<i32>,
}

/// The Events of the own Node, by reason.
#[derive(Debug, Default)]
pub struct EventPlan {
    series: BTreeMap<String, Series>,
}

/// The occurrences of one reason.
#[derive(Debug, Default)]
struct Series {
    message: String,
    warning: bool,
    /// Whether it is renewed for as long as it lasts.
    outage: bool,
    /// Start of the current occurrence, if there is one.
    since: Option<Instant>,
    /// Occurrences since the last write.
    unwritten: i32,
    written: Option<Written>,
    /// When it was last tried in vain, if it was not written after that.
    failed_at: Option<Instant>,
}

#[derive(Debug)]
struct Written {
    at: Instant,
    message: String,
    count: i32,
}

impl EventPlan {
    /// Takes the current problems.
    pub fn observe(&mut self, problems: &[Problem], now: Instant) {
        let mut by_kind: BTreeMap<ProblemKind, Vec<&Problem>> = BTreeMap::new();
        for problem in problems.iter().filter(|problem| is_event(problem)) {
            by_kind.entry(problem.kind).or_default().push(problem);
        }
        let current: Vec<&str> = by_kind.keys().map(|kind| kind.reason()).collect();
        for (reason, series) in &mut self.series {
            if series.warning && !current.contains(&reason.as_str()) {
                // An occurrence that was too short to be written is not counted.
                series.since = None;
                series.unwritten = 0;
            }
        }
        for (kind, problems) in by_kind {
            let series = self.series(kind.reason(), true);
            series.message = message(&problems);
            series.outage = problems.iter().any(|problem| is_outage(problem));
            if series.since.is_none() {
                series.begin(now);
            }
        }
        self.series.retain(|_, series| series.is_current(now));
    }

    /// The network has become available.
    pub fn came_up(&mut self, now: Instant) {
        let series = self.series(condition::UP, false);
        condition::UP_MESSAGE.clone_into(&mut series.message);
        series.begin(now);
    }

    /// The own Node was replaced by another one, which has no Events yet.
    pub fn node_replaced(&mut self) {
        self.series.retain(|_, series| series.warning);
        for series in self.series.values_mut() {
            series.written = None;
        }
    }

    /// The next Event that is due. One that was tried in vain leaves a turn to each other one:
    /// where there is a quota, a new Event is refused and the renewal of one is not.
    pub fn due(&self, now: Instant) -> Option<EventWrite> {
        let due = |series: &Series| series.due_at().is_some_and(|at| at <= now);
        let due = self.series.iter().filter(|(_, series)| due(series));
        let (reason, series) = due.min_by_key(|(_, series)| series.failed_at)?;
        let written = series.written.as_ref();
        Some(EventWrite {
            reason: reason.clone(),
            message: series.message.clone(),
            warning: series.warning,
            count: written.map(|written| written.count.saturating_add(series.unwritten)),
        })
    }

    /// When the next Event is due.
    pub fn due_at(&self) -> Option<Instant> {
        self.series.values().filter_map(Series::due_at).min()
    }

    /// `event` was written and has this count at the API server.
    pub fn written(&mut self, event: &EventWrite, count: i32, now: Instant) {
        if let Some(series) = self.series.get_mut(&event.reason) {
            series.unwritten = 0;
            series.failed_at = None;
            series.written = Some(Written {
                at: now,
                message: event.message.clone(),
                count,
            });
        }
    }

    /// `event` could not be written.
    pub fn failed(&mut self, event: &EventWrite, now: Instant) {
        if let Some(series) = self.series.get_mut(&event.reason) {
            series.failed_at = Some(now);
        }
    }

    fn series(&mut self, reason: &str, warning: bool) -> &mut Series {
        self.series.entry(reason.to_owned()).or_insert(Series {
            warning,
            ..Series::default()
        })
    }
}

impl Series {
    fn begin(&mut self, now: Instant) {
        self.since = Some(now);
        self.unwritten = self.unwritten.saturating_add(1);
    }

    fn due_at(&self) -> Option<Instant> {
        let since = self.since?;
        let first = if self.warning { since + SETTLED } else { since };
        match &self.written {
            None => Some(first),
            Some(written) if self.unwritten > 0 || written.message != self.message => {
                Some(first.max(written.at + MIN_GAP))
            }
            Some(written) if self.outage => Some(first.max(written.at + RENEW)),
            Some(_) => None,
        }
    }

    /// Whether it lasts, or was written so recently that its count must be kept.
    fn is_current(&self, now: Instant) -> bool {
        let recent = |written: &Written| now.saturating_duration_since(written.at) < 2 * RENEW;
        self.since.is_some() || self.written.as_ref().is_some_and(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Node {
        plan: EventPlan,
        start: Instant,
    }

    impl Node {
        fn new() -> Self {
            Self {
                plan: EventPlan::default(),
                start: Instant::now(),
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn observe(&mut self, seconds: u64, messages: &[&str]) {
            let problem = |message: &&str| Problem::new(ProblemKind::NoPodCidr, "a", *message);
            let problems: Vec<Problem> = messages.iter().map(problem).collect();
            let now = self.at(seconds);
            self.plan.observe(&problems, now);
        }

        /// Makes the writes that are due; returns the reason and the count of each.
        fn write(&mut self, seconds: u64) -> Vec<(String, i32)> {
            let now = self.at(seconds);
            let mut written = Vec::new();
            while let Some(event) = self.plan.due(now) {
                let count = event.count.unwrap_or(1);
                self.plan.written(&event, count, now);
                written.push((event.reason, count));
            }
            written
        }

        fn due_in(&self, seconds: u64) -> Option<Duration> {
            let due = self.plan.due_at()?;
            Some(due.saturating_duration_since(self.at(seconds)))
        }
    }

    fn no_pod_cidr(count: i32) -> Vec<(String, i32)> {
        vec![("NoPodCidr".to_owned(), count)]
    }

    #[test]
    fn a_short_problem_is_not_written_and_a_lasting_one_is_written_once() {
        let mut node = Node::new();
        node.observe(0, &["none"]);
        assert_eq!(node.due_in(0), Some(SETTLED));
        assert_eq!(node.write(4), []);
        node.observe(4, &[]);
        assert_eq!(node.due_in(4), None);
        node.observe(10, &["none"]);
        assert_eq!(node.write(15), no_pod_cidr(1));
        for second in 16..1800 {
            node.observe(second, &["none"]);
            assert_eq!(node.write(second), [], "{second}");
        }
    }

    #[test]
    fn the_event_of_an_outage_is_renewed_while_it_lasts() {
        let mut node = Node::new();
        node.observe(0, &["none"]);
        assert_eq!(node.write(5), no_pod_cidr(1));
        assert_eq!(node.write(1805), no_pod_cidr(1));
        node.observe(1900, &[]);
        assert_eq!(node.write(10_000), []);
    }

    #[test]
    fn a_warning_is_written_once_however_long_it_lasts() {
        let mut node = Node::new();
        let warning = Problem::new(ProblemKind::MtuTooBig, "a", "it is");
        node.plan.observe(&[warning], node.start);
        assert_eq!(node.write(5), vec![("MtuTooBig".to_owned(), 1)]);
        assert_eq!(node.due_in(5), None);
    }

    #[test]
    fn a_problem_that_comes_back_is_counted_at_most_once_a_minute() {
        let mut node = Node::new();
        node.observe(0, &["none"]);
        assert_eq!(node.write(5), no_pod_cidr(1));
        for round in 1..5 {
            node.observe(round * 10, &[]);
            node.observe(round * 10 + 1, &["none"]);
        }
        assert_eq!(node.write(64), []);
        assert_eq!(node.write(65), no_pod_cidr(2));
    }

    #[test]
    fn another_message_changes_the_event_and_many_problems_of_a_kind_are_one() {
        let mut node = Node::new();
        node.observe(0, &["first"]);
        assert_eq!(node.write(5), no_pod_cidr(1));
        node.observe(6, &["second", "third"]);
        let due = node.plan.due(node.at(65)).unwrap();
        assert!(due.message.starts_with("second (a)"), "{}", due.message);
        assert!(due.message.contains("1 more"), "{}", due.message);
        assert_eq!(due.count, Some(1));
    }

    #[test]
    fn an_event_that_is_refused_leaves_a_turn_to_each_other_one() {
        let mut node = Node::new();
        // By name this one is the first.
        node.observe(0, &["none"]);
        node.plan.came_up(node.start);
        let reason = |node: &Node, seconds| {
            let due = node.plan.due(node.at(seconds));
            due.map(|event| (event.reason.clone(), event))
        };
        let (first, refused) = reason(&node, 5).unwrap();
        node.plan.failed(&refused, node.at(5));
        let (second, written) = reason(&node, 6).unwrap();
        assert_eq!(
            (first.as_str(), second.as_str()),
            ("NoPodCidr", condition::UP)
        );
        node.plan.failed(&written, node.at(6));
        assert_eq!(reason(&node, 7).unwrap().0, "NoPodCidr");
        node.plan.failed(&refused, node.at(7));
        let (third, written) = reason(&node, 8).unwrap();
        node.plan.written(&written, 1, node.at(8));
        assert_eq!(third, condition::UP);
        assert_eq!(node.write(9), no_pod_cidr(1));
    }

    #[test]
    fn each_coming_up_of_the_network_is_written_and_never_renewed() {
        let mut node = Node::new();
        let up = |count| vec![(condition::UP.to_owned(), count)];
        node.plan.came_up(node.start);
        assert_eq!(node.write(0), up(1));
        assert_eq!(node.due_in(0), None);
        node.observe(1, &[]);
        node.plan.came_up(node.at(10));
        node.plan.came_up(node.at(20));
        assert_eq!(node.write(59), []);
        assert_eq!(node.write(60), up(3));
        assert_eq!(node.write(90_000), []);
    }
}
