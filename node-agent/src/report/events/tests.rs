mod policies;

use super::*;
use tweed_core::problem::ProblemKind;

fn plan(node: &str) -> EventPlan {
    let second = Duration::from_secs(1);
    EventPlan::new(
        node,
        Pauses {
            min: second,
            max: second * 60,
        },
    )
}

fn refusal() -> Failure {
    answer(403)
}

fn answer(code: u16) -> Failure {
    Failure::Answered {
        url: "https://api".to_owned(),
        code,
        message: "exceeded quota".to_owned(),
        retry_after: None,
    }
}

struct Node {
    plan: EventPlan,
    start: Instant,
}

impl Node {
    fn new() -> Self {
        Self {
            plan: plan("n1"),
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
            written.push((event.reason.to_owned(), count));
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
    node.observe(0, &["none"]);
    node.plan.came_up(node.start);
    let mut tried = Vec::new();
    for second in 5..8 {
        while let Some(event) = node.plan.due(node.at(second)) {
            node.plan.failed(&event, &refusal(), true, node.at(second));
            tried.push((second, event.reason));
        }
    }
    // Each after a pause of its own; at first the one that was due first.
    let (up, down) = (condition::UP, "NoPodCidr");
    assert_eq!(tried, [(5, up), (5, down), (6, down), (6, up)]);
    let text = node.plan.problem(node.at(8)).unwrap().message.clone();
    assert!(text.contains("exceeded quota"), "{text}");
    while let Some(event) = node.plan.due(node.at(20)) {
        node.plan.written(&event, 1, node.at(20));
    }
    assert_eq!(node.plan.problem(node.at(20)), None);
}

/// Not even if that one has been due for longer.
#[test]
fn an_event_that_was_never_tried_comes_before_those_that_failed() {
    let mut node = Node::new();
    node.plan.came_up(node.start);
    let up = node.plan.due(node.start).unwrap();
    node.plan.failed(&up, &answer(500), true, node.start);
    node.observe(0, &["none"]);
    assert_eq!(node.plan.due(node.at(60)).unwrap().reason, "NoPodCidr");
}

/// A webhook for Events cannot be reached: an attempt at each would be many.
#[test]
fn an_error_of_the_server_delays_all_events() {
    let mut node = Node::new();
    node.observe(0, &["none"]);
    node.plan.came_up(node.start);
    let event = node.plan.due(node.at(5)).unwrap();
    node.plan.failed(&event, &answer(500), true, node.at(5));
    assert_eq!(node.plan.due(node.at(5)), None);
    assert_eq!(node.due_in(5), Some(Duration::from_secs(1)));
    let other = node.plan.due(node.at(6)).unwrap();
    assert_ne!(other.reason, event.reason);
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
