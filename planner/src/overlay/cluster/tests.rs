use proptest::prelude::*;

use super::*;
use crate::tests::fixture::{NodeFixture as _, node};

fn names(cluster: &Cluster) -> Option<Vec<&str>> {
    let snapshot = cluster.snapshot()?;
    Some(snapshot.nodes().map(|node| node.name.as_str()).collect())
}

fn nodes(cluster: &Cluster) -> Option<Vec<Node>> {
    Some(cluster.snapshot()?.nodes().cloned().collect())
}

fn kinds(cluster: &Cluster) -> Vec<(&'static str, Effect)> {
    let problems = cluster.problems().into_iter();
    problems.map(|p| (p.kind.word(), p.effect)).collect()
}

fn list(cluster: &mut Cluster, nodes: impl IntoIterator<Item = Node>) -> bool {
    let _ = cluster.apply(Event::Init);
    for node in nodes {
        let _ = cluster.apply(Event::InitApply(node));
    }
    cluster.apply(Event::InitDone)
}

#[test]
fn there_is_no_snapshot_before_the_first_list_has_ended() {
    let mut cluster = Cluster::new("me");
    assert_eq!(kinds(&cluster), [("nodes-not-listed", Effect::NewPods)]);
    for event in [
        Event::Apply(node("me")),
        Event::Init,
        Event::InitApply(node("me")),
        Event::InitApply(node("a")),
    ] {
        assert!(!cluster.apply(event));
        assert_eq!(names(&cluster), None);
    }
    assert!(cluster.apply(Event::InitDone));
    assert_eq!(names(&cluster), Some(vec!["me", "a"]));
    assert_eq!(kinds(&cluster), []);
}

#[test]
fn the_nodes_of_an_earlier_run_count_until_the_first_list() {
    let mut cluster = Cluster::new("me").resumed([node("a"), node("me")]);
    assert_eq!(names(&cluster), Some(vec!["me", "a"]));
    assert_eq!(cluster.take_touched(), Touched::Everything);
    assert_eq!(kinds(&cluster), [("nodes-not-listed", Effect::Warning)]);
    assert!(cluster.apply(Event::Lost("no API server".into())));
    assert_eq!(kinds(&cluster), [("nodes-unreadable", Effect::Warning)]);
    assert!(cluster.problems()[0].message.contains("before the restart"));
    // A list that does not end, or is not this cluster's, removes nothing.
    let _ = cluster.apply(Event::Init);
    let _ = cluster.apply(Event::InitApply(node("x")));
    assert_eq!(names(&cluster), Some(vec!["me", "a"]));
    assert!(cluster.apply(Event::InitDone));
    assert_eq!(names(&cluster), Some(vec!["me", "a"]));
    assert!(!cluster.is_current());
    assert!(cluster.apply(Event::Restored));
    assert_eq!(kinds(&cluster), [("own-node-missing", Effect::Warning)]);

    assert!(list(&mut cluster, [node("me"), node("b")]));
    assert!(cluster.is_current());
    assert_eq!(names(&cluster), Some(vec!["me", "b"]));
    assert_eq!(cluster.take_touched(), Touched::Everything);
    assert_eq!(kinds(&cluster), []);
}

#[test]
fn nodes_of_an_earlier_run_without_the_own_one_are_no_snapshot() {
    let cluster = Cluster::new("me").resumed([node("a")]);
    assert_eq!(names(&cluster), None);
    assert_eq!(kinds(&cluster), [("nodes-not-listed", Effect::NewPods)]);
}

#[test]
fn a_complete_list_replaces_what_was_known() {
    let mut cluster = Cluster::new("me");
    assert!(list(&mut cluster, [node("me"), node("a"), node("b")]));
    assert!(list(&mut cluster, [node("me"), node("b"), node("c")]));
    assert_eq!(names(&cluster), Some(vec!["me", "b", "c"]));
}

#[test]
fn a_list_that_does_not_end_changes_nothing() {
    let mut cluster = Cluster::new("me");
    assert!(list(&mut cluster, [node("me"), node("a")]));
    for event in [
        Event::Init,
        Event::InitApply(node("x")),
        Event::Init,
        Event::InitApply(node("me")),
    ] {
        assert!(!cluster.apply(event));
    }
    assert_eq!(names(&cluster), Some(vec!["me", "a"]));
    assert!(cluster.apply(Event::InitDone));
    assert_eq!(names(&cluster), Some(vec!["me"]));
    assert!(!cluster.apply(Event::InitDone), "an end without a start");
    assert_eq!(names(&cluster), Some(vec!["me"]));
}

#[test]
fn what_changes_during_a_list_is_not_undone_by_its_end() {
    let mut cluster = Cluster::new("me");
    assert!(list(&mut cluster, [node("me"), node("a")]));
    let _ = cluster.apply(Event::Init);
    let _ = cluster.apply(Event::InitApply(node("me")));
    let _ = cluster.apply(Event::InitApply(node("a")));
    assert!(cluster.apply(Event::Apply(node("b"))));
    assert!(cluster.apply(Event::Delete("a".into())));
    assert!(!cluster.apply(Event::InitDone));
    assert_eq!(names(&cluster), Some(vec!["me", "b"]));
}

#[test]
fn heartbeats_and_equal_lists_are_no_change() {
    let mut cluster = Cluster::new("me");
    let a = || node("a").cidr("10.244.1.0/24");
    assert!(list(&mut cluster, [node("me"), a()]));
    assert!(!cluster.apply(Event::Apply(a())));
    assert!(!cluster.apply(Event::Apply(node("me"))));
    assert!(!cluster.apply(Event::Delete("unknown".into())));
    assert!(!list(&mut cluster, [a(), node("me")]));
    assert!(cluster.apply(Event::Apply(a().internal("192.0.2.1"))));
    assert!(cluster.apply(Event::Apply(node("me").created(1))));
    assert!(cluster.apply(Event::Delete("a".into())));
}

#[test]
fn an_empty_or_foreign_list_removes_nothing_and_is_reported() {
    for said in [vec![], vec![node("x"), node("y")]] {
        let mut cluster = Cluster::new("me");
        assert!(list(&mut cluster, [node("me"), node("a")]));
        assert!(list(&mut cluster, said.clone()));
        assert_eq!(names(&cluster), Some(vec!["me", "a"]));
        assert_eq!(kinds(&cluster), [("own-node-missing", Effect::Warning)]);
        assert!(!list(&mut cluster, said));
        assert!(list(&mut cluster, [node("me"), node("b")]));
        assert_eq!(names(&cluster), Some(vec!["me", "b"]));
        assert_eq!(kinds(&cluster), []);
    }
}

#[test]
fn a_first_list_without_the_own_node_is_no_snapshot() {
    let mut cluster = Cluster::new("me");
    assert!(list(&mut cluster, [node("a")]));
    assert_eq!(names(&cluster), None);
    assert_eq!(kinds(&cluster), [("own-node-missing", Effect::NewPods)]);
    assert!(cluster.apply(Event::Apply(node("me"))));
    assert_eq!(names(&cluster), Some(vec!["me", "a"]));
}

#[test]
fn the_own_node_deleted_holds_everything_until_it_is_back() {
    let mut cluster = Cluster::new("me");
    assert!(list(&mut cluster, [node("me"), node("a"), node("b")]));
    assert!(cluster.apply(Event::Delete("me".into())));
    let _ = cluster.apply(Event::Delete("a".into()));
    let _ = cluster.apply(Event::Apply(node("c")));
    assert_eq!(names(&cluster), Some(vec!["me", "a", "b"]));
    assert_eq!(kinds(&cluster), [("own-node-missing", Effect::Warning)]);
    assert!(cluster.apply(Event::Apply(node("me").created(7))));
    assert_eq!(names(&cluster), Some(vec!["me", "b", "c"]));
}

#[test]
fn a_lost_source_is_reported_and_holds_the_snapshot() {
    let mut cluster = Cluster::new("me");
    assert!(cluster.apply(Event::Lost("connection refused".into())));
    assert_eq!(kinds(&cluster), [("nodes-unreadable", Effect::NewPods)]);
    assert!(list(&mut cluster, [node("me")]));
    assert!(cluster.apply(Event::Restored));
    assert!(!cluster.apply(Event::Restored));
    assert!(cluster.apply(Event::Lost("503".into())));
    assert!(!cluster.apply(Event::Lost("503".into())));
    assert_eq!(names(&cluster), Some(vec!["me"]));
    assert_eq!(kinds(&cluster), [("nodes-unreadable", Effect::Warning)]);
    assert!(cluster.problems()[0].message.contains("503"));
}

fn any_node() -> impl Strategy<Value = Node> {
    (0..5_u8, 0..3_i64).prop_map(|(name, created)| {
        let name = if name == 0 {
            "me".to_owned()
        } else {
            format!("n{name}")
        };
        node(&name).created(created)
    })
}

fn any_event() -> impl Strategy<Value = Event<Node>> {
    prop_oneof![
        1 => Just(Event::Init),
        1 => Just(Event::InitDone),
        3 => any_node().prop_map(Event::InitApply),
        5 => any_node().prop_map(Event::Apply),
        2 => any_node().prop_map(|node| Event::Delete(node.name.into())),
        1 => Just(Event::Lost("why".into())),
        1 => Just(Event::Restored),
    ]
}

proptest! {
    /// Whatever came before, a complete list decides; and `apply` answers true
    /// exactly if something that can be read has changed.
    #[test]
    fn the_state_is_a_function_of_the_last_complete_list(
        history in prop::collection::vec(any_event(), 0..40),
        last in prop::collection::vec(any_node(), 0..8),
    ) {
        let mut cluster = Cluster::new("me");
        for event in history {
            let before = (nodes(&cluster), cluster.problems());
            let changed = cluster.apply(event);
            prop_assert_eq!(changed, before != (nodes(&cluster), cluster.problems()));
        }
        let held = nodes(&cluster);
        let _ = list(&mut cluster, last.clone());
        let _ = cluster.apply(Event::Restored);

        let mut fresh = Cluster::new("me");
        let _ = list(&mut fresh, last.clone());
        if last.iter().any(|node| node.name == "me") {
            prop_assert_eq!(nodes(&cluster), nodes(&fresh));
            prop_assert!(cluster.problems().is_empty());
        } else {
            prop_assert_eq!(nodes(&cluster), held);
            prop_assert_eq!(cluster.problems()[0].kind, ProblemKind::OwnNodeMissing);
        }
    }

    /// The order in which different Nodes change never matters.
    #[test]
    fn changes_of_different_nodes_commute(
        (changes, shuffled) in prop::collection::btree_map(0..20_u8, 0..3_i64, 0..20)
            .prop_map(|map| map.into_iter().collect::<Vec<_>>())
            .prop_flat_map(|changes| (Just(changes.clone()), Just(changes).prop_shuffle())),
    ) {
        let run = |changes: Vec<(u8, i64)>| {
            let mut cluster = Cluster::new("0");
            let _ = list(&mut cluster, [node("0"), node("1"), node("2")]);
            for (name, created) in changes {
                let name = name.to_string();
                let _ = cluster.apply(match created {
                    0 => Event::Delete(name.into()),
                    _ => Event::Apply(node(&name).created(created)),
                });
            }
            nodes(&cluster)
        };
        if !changes.contains(&(0, 0)) {
            prop_assert_eq!(run(changes), run(shuffled));
        }
    }
}
