//! Events on policies.

use super::*;

fn unsupported(object: &str, message: &str) -> Problem {
    Problem::new(ProblemKind::PolicyUnsupported, object, message)
}

fn names(events: &mut EventPlan, now: Instant) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(event) = events.due(now) {
        events.written(&event, 1, now);
        if let Subject::Policy {
            kind,
            namespace,
            name,
        } = event.subject
        {
            names.push(format!("{kind} {namespace}/{name}"));
        }
    }
    names.sort();
    names
}

#[test]
fn each_policy_has_one_event_for_each_text() {
    let start = Instant::now();
    let later = start + SETTLED + SPREAD;
    let mut events = plan("n1");
    let mut problems = vec![
        unsupported("NetworkPolicy shop/db", "a"),
        unsupported("ClusterNetworkPolicy admin", "b"),
        Problem::new(ProblemKind::NodesUnreadable, "n1", "none"),
    ];
    events.observe(&problems, start);
    assert!(events.due(start).is_none() && events.due_at().is_some());
    events.observe(&problems, later);
    let both = ["ClusterNetworkPolicy /admin", "NetworkPolicy shop/db"];
    assert_eq!(names(&mut events, later), both);
    events.observe(&problems, later);
    assert!(events.due_at() >= Some(later + RENEW / 2));
    problems[0] = unsupported("NetworkPolicy shop/db", "c");
    events.observe(&problems, later);
    assert_eq!(names(&mut events, later + SETTLED + SPREAD), both[1..]);
}

/// An API server deletes an Event after an hour.
#[test]
fn the_event_of_a_problem_that_lasts_is_written_again() {
    let start = Instant::now();
    let mut events = plan("n1");
    let problems = [unsupported("NetworkPolicy shop/db", "a")];
    let mut now = start + SETTLED + SPREAD;
    events.observe(&problems, start);
    let mut pauses = Vec::new();
    for _ in 0..5 {
        assert_eq!(names(&mut events, now), ["NetworkPolicy shop/db"]);
        let next = events.due_at().unwrap();
        pauses.push(next - now);
        now = next;
        events.observe(&problems, now);
    }
    assert!((RENEW / 2..RENEW * 3 / 2).contains(&pauses[0]));
    assert_eq!(pauses[1..], [pauses[0]; 4]);
    events.observe(&[], now);
    assert_eq!(events.due_at(), None);
}

/// All of them have the problem at the same moment, and another text of it.
#[test]
fn the_nodes_spread_the_later_attempts_over_the_half_hour() {
    let start = Instant::now();
    let third = |node: usize| {
        let mut events = plan(&format!("n{node}"));
        for text in ["a", "b"] {
            let problems = [unsupported("NetworkPolicy shop/db", text)];
            events.observe(&problems, start);
            let now = events.due_at().unwrap();
            assert_eq!(names(&mut events, now).len(), 1);
        }
        let now = events.due_at().unwrap();
        assert_eq!(names(&mut events, now).len(), 1);
        events.due_at().unwrap()
    };
    let mut attempts: Vec<Instant> = (0..1000).map(third).collect();
    attempts.sort();
    let of_a_minute = |first: &Instant| {
        let minute = *first..*first + Duration::from_secs(60);
        attempts.iter().filter(|at| minute.contains(*at)).count()
    };
    let most = attempts.iter().map(of_a_minute).max().unwrap();
    assert!(most < 80, "{most} of 1000 in a minute");
}

#[test]
fn a_problem_that_ends_early_is_not_written() {
    let start = Instant::now();
    let mut events = plan("n1");
    events.observe(&[unsupported("NetworkPolicy shop/db", "a")], start);
    events.observe(&[], start);
    assert_eq!(events.due_at(), None);
}

fn namespace(event: &EventWrite) -> &str {
    match &event.subject {
        Subject::Policy { namespace, .. } => namespace,
        Subject::Node => "",
    }
}

#[test]
fn an_event_that_is_refused_keeps_no_other_from_being_written() {
    let start = Instant::now();
    let mut events = plan("n1");
    let mut problems = vec![
        unsupported("NetworkPolicy full/a", "a"),
        unsupported("NetworkPolicy shop/db", "a"),
    ];
    events.observe(&problems, start);
    let mut now = start + SETTLED + SPREAD;
    let mut tried = Vec::new();
    while let Some(next) = events.due(now) {
        match namespace(&next) {
            "full" => events.failed(&next, &refusal(), true, now),
            _ => events.written(&next, 1, now),
        }
        tried.push(namespace(&next).to_owned());
    }
    tried.sort();
    assert_eq!(tried, ["full", "shop"]);
    let is_refused = |events: &EventPlan, now| events.problem(now).is_some();
    assert!(is_refused(&events, now));

    // Its pauses grow, and the other one is renewed meanwhile.
    let mut pauses = Vec::new();
    while pauses.len() < 8 {
        let next = events.due_at().unwrap();
        let event = events.due(next).unwrap();
        if namespace(&event) == "shop" {
            events.written(&event, 1, next);
            continue;
        }
        pauses.push(next - now);
        now = next;
        events.failed(&event, &refusal(), true, now);
    }
    let Pauses { min, max } = events.policy_pauses;
    assert_eq!(pauses[0], min);
    assert!(pauses.windows(2).all(|two| two[1] == max.min(two[0] * 2)));
    assert_eq!(pauses[7], max);
    assert!(is_refused(&events, now));

    // Another text has no shorter pauses, and one that is taken ends them.
    problems[0] = unsupported("NetworkPolicy full/a", "b");
    events.observe(&problems, now);
    now += max;
    assert!(is_refused(&events, now));
    assert!(names(&mut events, now).contains(&"NetworkPolicy full/a".to_owned()));
    assert!(!is_refused(&events, now));
}

/// The webhook of a namespace cannot be reached: each refusal of it delays all writes.
#[test]
fn many_events_that_are_refused_leave_a_turn_to_another_one() {
    let start = Instant::now();
    let mut events = plan("n1");
    let refused = (0..10).map(|number| unsupported(&format!("NetworkPolicy full/{number}"), "a"));
    let problems: Vec<Problem> = refused
        .chain([unsupported("NetworkPolicy shop/db", "a")])
        .collect();
    events.observe(&problems, start);
    let mut now = start + SETTLED + SPREAD;
    for _ in 0..20 {
        let next = events.due(now).unwrap();
        if namespace(&next) == "shop" {
            return;
        }
        events.failed(&next, &answer(500), true, now);
        now += Duration::from_secs(90);
    }
    panic!("it never had its turn");
}

#[test]
fn a_refusal_is_forgotten_with_its_policy() {
    let start = Instant::now();
    let mut events = plan("n1");
    events.observe(&[unsupported("NetworkPolicy shop/db", "a")], start);
    let now = start + SETTLED + SPREAD;
    let event = events.due(now).unwrap();
    events.failed(&event, &refusal(), true, now);
    assert!(events.problem(now).is_some());
    events.observe(&[], now);
    assert_eq!(events.problem(now), None);
}

#[test]
fn the_number_of_events_is_bounded() {
    let start = Instant::now();
    let mut events = plan("n1");
    let name = |n| unsupported(&format!("NetworkPolicy shop/p{n}"), "a");
    let many: Vec<Problem> = (0..1000).map(name).collect();
    events.observe(&many, start);
    let later = start + SETTLED + SPREAD;
    assert_eq!(names(&mut events, later).len(), MAX_POLICIES);
}
