//! Which Events are to be told, and when: pure, the clock is an argument.
//!
//! For each reason there is one Event, however often it comes back: it is
//! written when the trouble has lasted for a while, counted up when it comes
//! again, and, if it keeps pods from being served, renewed before the API server
//! forgets it. So the count of writes is bound by that of reasons, whatever
//! happens on the node.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::words;
use super::{SETTLED, condition};
use tweed_core::problem::{Problem, ProblemKind};

/// Between two writes of one Event.
const GAP: Duration = Duration::from_secs(60);
/// An API server keeps an Event for an hour, unless it is told otherwise.
const RENEW: Duration = Duration::from_secs(30 * 60);

/// An Event to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telling {
    /// `TweedIsUp`, or the problem's kind as a reason.
    pub reason: String,
    /// What is wrong, or no longer.
    pub message: String,
    /// Whether it is a trouble.
    pub warning: bool,
    /// How often it has come; none while it was never written by this run.
    pub count: Option<i32>,
}

/// What was told, and what is to be.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    message: String,
    warning: bool,
    /// Whether it is worth being told for as long as it lasts.
    outage: bool,
    /// Since when it lasts, or, if it is no trouble, when it came; none when it
    /// is over.
    since: Option<Instant>,
    /// How often it came and was not told.
    untold: i32,
    told: Option<Told>,
}

#[derive(Debug)]
struct Told {
    at: Instant,
    message: String,
    count: i32,
}

impl Ledger {
    /// Takes in what is wrong now.
    pub fn see(&mut self, problems: &[Problem], now: Instant) {
        let mut by_kind: BTreeMap<ProblemKind, Vec<&Problem>> = BTreeMap::new();
        for problem in problems.iter().filter(|problem| words::is_event(problem)) {
            by_kind.entry(problem.kind).or_default().push(problem);
        }
        for (kind, problems) in &by_kind {
            let entry = self.entry(kind.reason(), true);
            entry.message = words::message(problems);
            entry.outage = problems.iter().any(|problem| words::is_outage(problem));
            if entry.since.is_none() {
                entry.since = Some(now);
                entry.untold = entry.untold.saturating_add(1);
            }
        }
        let lasting: Vec<&str> = by_kind.keys().map(|kind| kind.reason()).collect();
        for (reason, entry) in &mut self.entries {
            if entry.warning && !lasting.contains(&reason.as_str()) {
                entry.end();
            }
        }
        self.entries.retain(|_, entry| entry.is_of_use(now));
    }

    /// The network has come up.
    pub fn came_up(&mut self, now: Instant) {
        let entry = self.entry(condition::UP, false);
        entry.message = condition::UP_MESSAGE.to_owned();
        entry.since = Some(now);
        entry.untold = entry.untold.saturating_add(1);
    }

    /// The Node is another from now on, which has heard of nothing.
    pub fn another_node(&mut self) {
        self.entries.retain(|_, entry| entry.warning);
        for entry in self.entries.values_mut() {
            entry.told = None;
        }
    }

    /// The next Event that is due.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Telling> {
        let due = |entry: &Entry| entry.due_at().is_some_and(|at| at <= now);
        let (reason, entry) = self.entries.iter().find(|(_, entry)| due(entry))?;
        let told = entry.told.as_ref();
        Some(Telling {
            reason: reason.clone(),
            message: entry.message.clone(),
            warning: entry.warning,
            count: told.map(|told| told.count.saturating_add(entry.untold)),
        })
    }

    /// When the next Event is due.
    #[must_use]
    pub fn due_at(&self) -> Option<Instant> {
        self.entries.values().filter_map(Entry::due_at).min()
    }

    /// `telling` was written, and stands at the API server as the `count`-th.
    pub fn told(&mut self, telling: &Telling, count: i32, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&telling.reason) {
            entry.untold = 0;
            entry.told = Some(Told {
                at: now,
                message: telling.message.clone(),
                count,
            });
        }
    }

    fn entry(&mut self, reason: &str, warning: bool) -> &mut Entry {
        self.entries.entry(reason.to_owned()).or_insert(Entry {
            message: String::new(),
            warning,
            outage: false,
            since: None,
            untold: 0,
            told: None,
        })
    }
}

impl Entry {
    /// It is over. What did not last was nothing to tell of.
    fn end(&mut self) {
        self.since = None;
        self.untold = 0;
    }

    fn due_at(&self) -> Option<Instant> {
        let since = self.since?;
        let first = if self.warning { since + SETTLED } else { since };
        match &self.told {
            None => Some(first),
            Some(told) if self.untold > 0 || told.message != self.message => {
                Some(first.max(told.at + GAP))
            }
            Some(told) if self.outage => Some(first.max(told.at + RENEW)),
            Some(_) => None,
        }
    }

    fn is_of_use(&self, now: Instant) -> bool {
        let fresh = |told: &Told| now.saturating_duration_since(told.at) < 2 * RENEW;
        self.since.is_some() || self.told.as_ref().is_some_and(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Node {
        ledger: Ledger,
        start: Instant,
    }

    impl Node {
        fn new() -> Self {
            Self {
                ledger: Ledger::default(),
                start: Instant::now(),
            }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn see(&mut self, seconds: u64, messages: &[&str]) {
            let problem = |message: &&str| Problem::new(ProblemKind::NoPodCidr, "a", *message);
            let problems: Vec<Problem> = messages.iter().map(problem).collect();
            let now = self.at(seconds);
            self.ledger.see(&problems, now);
        }

        /// Writes what is due: reason and count of each.
        fn tell(&mut self, seconds: u64) -> Vec<(String, i32)> {
            let now = self.at(seconds);
            let mut told = Vec::new();
            while let Some(telling) = self.ledger.due(now) {
                let count = telling.count.unwrap_or(1);
                self.ledger.told(&telling, count, now);
                told.push((telling.reason, count));
            }
            told
        }

        fn due_in(&self, seconds: u64) -> Option<Duration> {
            let due = self.ledger.due_at()?;
            Some(due.saturating_duration_since(self.at(seconds)))
        }
    }

    fn no_pod_cidr(count: i32) -> Vec<(String, i32)> {
        vec![("NoPodCidr".to_owned(), count)]
    }

    #[test]
    fn a_moment_s_trouble_is_not_told_and_one_that_lasts_is_told_once() {
        let mut node = Node::new();
        node.see(0, &["none"]);
        assert_eq!(node.due_in(0), Some(SETTLED));
        assert_eq!(node.tell(4), []);
        node.see(4, &[]);
        assert_eq!(node.due_in(4), None);
        node.see(10, &["none"]);
        assert_eq!(node.tell(15), no_pod_cidr(1));
        for second in 16..1800 {
            node.see(second, &["none"]);
            assert_eq!(node.tell(second), [], "{second}");
        }
    }

    #[test]
    fn an_outage_is_renewed_while_it_lasts_before_the_server_forgets_it() {
        let mut node = Node::new();
        node.see(0, &["none"]);
        assert_eq!(node.tell(5), no_pod_cidr(1));
        assert_eq!(node.tell(1805), no_pod_cidr(1));
        node.see(1900, &[]);
        assert_eq!(node.tell(10_000), []);
    }

    #[test]
    fn a_warning_is_told_once_however_long_it_lasts() {
        let mut node = Node::new();
        let warning = Problem::new(ProblemKind::MtuTooBig, "a", "it is");
        node.ledger.see(&[warning], node.start);
        assert_eq!(node.tell(5), vec![("MtuTooBig".to_owned(), 1)]);
        assert_eq!(node.due_in(5), None);
    }

    #[test]
    fn what_comes_back_is_counted_on_the_same_event_at_most_once_a_minute() {
        let mut node = Node::new();
        node.see(0, &["none"]);
        assert_eq!(node.tell(5), no_pod_cidr(1));
        for round in 1..5 {
            node.see(round * 10, &[]);
            node.see(round * 10 + 1, &["none"]);
        }
        assert_eq!(node.tell(64), []);
        assert_eq!(node.tell(65), no_pod_cidr(2));
    }

    #[test]
    fn other_words_change_the_event_and_many_problems_of_a_kind_are_one() {
        let mut node = Node::new();
        node.see(0, &["first"]);
        assert_eq!(node.tell(5), no_pod_cidr(1));
        node.see(6, &["second", "third"]);
        let due = node.ledger.due(node.at(65)).unwrap();
        assert!(due.message.starts_with("second (a)"), "{}", due.message);
        assert!(due.message.contains("1 more"), "{}", due.message);
        assert_eq!(due.count, Some(1));
    }

    #[test]
    fn the_network_s_coming_up_is_told_each_time_and_never_renewed() {
        let mut node = Node::new();
        let up = |count| vec![(condition::UP.to_owned(), count)];
        node.ledger.came_up(node.start);
        assert_eq!(node.tell(0), up(1));
        assert_eq!(node.due_in(0), None);
        node.see(1, &[]);
        node.ledger.came_up(node.at(10));
        node.ledger.came_up(node.at(20));
        assert_eq!(node.tell(59), []);
        assert_eq!(node.tell(60), up(3));
        assert_eq!(node.tell(90_000), []);
    }
}
