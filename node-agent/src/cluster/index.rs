//! What the sources said so far: a synchronous state machine over
//! [`NodeEvent`]s, fed through [`Index::apply`].
//!
//! What always holds:
//! - [`Index::cluster`] is nothing before the first complete list, and after
//!   that always a snapshot with the own Node in it;
//! - a list that does not end changes nothing; one that ends replaces
//!   everything;
//! - when the own Node is missing (an empty list, another cluster's list, the
//!   own Node deleted), the last good snapshot is held as it was, whole, until
//!   the own Node is back: then what was said meanwhile counts at once.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::cluster::node::Node;
use crate::problem::{Effect, Problem};
use crate::source::NodeEvent;

type Nodes = BTreeMap<String, Node>;

/// The Nodes of the cluster, as this node knows them.
#[derive(Debug)]
pub struct Index {
    own: String,
    view: View,
    /// The list that is under way.
    listing: Option<Nodes>,
    /// Why the source cannot be read.
    lost: Option<String>,
}

#[derive(Debug)]
enum View {
    /// No list was complete yet.
    Nothing,
    /// The own Node is there.
    Good(Cluster),
    /// The own Node is missing from what the source says now.
    WithoutOwn {
        said: Nodes,
        /// The last good snapshot.
        held: Option<Cluster>,
    },
}

impl Index {
    /// An index that knows nothing yet; `own` is the name of this machine's Node.
    #[must_use]
    pub fn new(own: impl Into<String>) -> Self {
        Self {
            own: own.into(),
            view: View::Nothing,
            listing: None,
            lost: None,
        }
    }

    /// Takes one event in. True if [`Index::cluster`] or [`Index::problems`]
    /// now says something else: a heartbeat, or a list that tells nothing new,
    /// does not.
    #[must_use = "a change calls for a new plan"]
    pub fn apply(&mut self, event: NodeEvent) -> bool {
        match event {
            NodeEvent::ListStarted => {
                self.listing = Some(Nodes::new());
                false
            }
            NodeEvent::Listed(node) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(node.name.clone(), node);
                }
                false
            }
            NodeEvent::ListEnded => match self.listing.take() {
                Some(nodes) => self.replace(nodes),
                None => false,
            },
            NodeEvent::Changed(node) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(node.name.clone(), node.clone());
                }
                self.change(node)
            }
            NodeEvent::Deleted(name) => {
                if let Some(listing) = &mut self.listing {
                    listing.remove(&name);
                }
                self.delete(&name)
            }
            NodeEvent::Lost(reason) => {
                // Attempts that follow each other word the same trouble
                // differently; each is worth a line, so each is a change.
                let lost = Some(reason);
                std::mem::replace(&mut self.lost, lost.clone()) != lost
            }
            NodeEvent::Restored => self.lost.take().is_some(),
        }
    }

    /// The last good snapshot; none before the first complete list that has
    /// the own Node in it.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.view {
            View::Nothing => None,
            View::Good(cluster) => Some(cluster),
            View::WithoutOwn { held, .. } => held.as_ref(),
        }
    }

    /// What is wrong with the list of Nodes. A node that has a good snapshot
    /// goes on with it and stays ready; one that never had any is not ready.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let effect = if self.cluster().is_some() {
            Effect::Warning
        } else {
            Effect::NewPods
        };
        let mut problems = Vec::new();
        match &self.view {
            View::Good(_) => {}
            View::Nothing if self.lost.is_some() => {}
            View::Nothing => problems.push(Problem::new(
                "nodes-not-listed",
                &self.own,
                effect,
                "no list of Nodes has been complete yet",
                "wait for the first list",
            )),
            View::WithoutOwn { said, .. } => problems.push(own_missing(&self.own, said, effect)),
        }
        if let Some(reason) = &self.lost {
            problems.push(Problem::new(
                "nodes-unreadable",
                &self.own,
                effect,
                format!("the Nodes cannot be read: {reason}"),
                "mend what it names; the agent tries again by itself and holds the last good state",
            ));
        }
        problems
    }

    fn replace(&mut self, mut nodes: Nodes) -> bool {
        let next = match nodes.remove(&self.own) {
            Some(own) => View::Good(Cluster { own, others: nodes }),
            None => View::WithoutOwn {
                said: nodes,
                held: self.cluster().cloned(),
            },
        };
        let changed = !self.view.says_the_same(&next);
        self.view = next;
        changed
    }

    fn change(&mut self, node: Node) -> bool {
        match &mut self.view {
            View::Nothing => false,
            View::Good(cluster) if node.name == self.own => {
                let changed = cluster.own != node;
                cluster.own = node;
                changed
            }
            View::Good(cluster) => {
                let changed = cluster.others.get(&node.name) != Some(&node);
                if changed {
                    cluster.others.insert(node.name.clone(), node);
                }
                changed
            }
            View::WithoutOwn { said, .. } if node.name == self.own => {
                self.view = View::Good(Cluster {
                    own: node,
                    others: std::mem::take(said),
                });
                true
            }
            View::WithoutOwn { said, .. } => {
                let was_empty = said.is_empty();
                said.insert(node.name.clone(), node);
                was_empty
            }
        }
    }

    fn delete(&mut self, name: &str) -> bool {
        match &mut self.view {
            View::Nothing => false,
            View::Good(cluster) if name == self.own => {
                self.view = View::WithoutOwn {
                    said: cluster.others.clone(),
                    held: Some(cluster.clone()),
                };
                true
            }
            View::Good(cluster) => cluster.others.remove(name).is_some(),
            View::WithoutOwn { said, .. } => said.remove(name).is_some() && said.is_empty(),
        }
    }
}

impl View {
    fn says_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Good(a), Self::Good(b)) => a == b,
            // Held snapshots are equal: the later one was taken from the earlier.
            (Self::WithoutOwn { said: a, .. }, Self::WithoutOwn { said: b, .. }) => {
                a.is_empty() == b.is_empty()
            }
            _ => false,
        }
    }
}

fn own_missing(own: &str, said: &Nodes, effect: Effect) -> Problem {
    let message = if said.is_empty() {
        "the list of Nodes is empty"
    } else {
        "this node's own Node is not in the list of Nodes"
    };
    Problem::new(
        "own-node-missing",
        own,
        effect,
        message,
        "check --node-name, and that the source is this cluster's; until the Node is there, nothing is changed",
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::fixture::node;

    fn names(index: &Index) -> Option<Vec<&str>> {
        let cluster = index.cluster()?;
        Some(cluster.nodes().map(|node| node.name.as_str()).collect())
    }

    fn kinds(index: &Index) -> Vec<(String, Effect)> {
        let problems = index.problems();
        problems.into_iter().map(|p| (p.kind, p.effect)).collect()
    }

    fn list(index: &mut Index, nodes: impl IntoIterator<Item = Node>) -> bool {
        let _ = index.apply(NodeEvent::ListStarted);
        for node in nodes {
            let _ = index.apply(NodeEvent::Listed(node));
        }
        index.apply(NodeEvent::ListEnded)
    }

    #[test]
    fn there_is_no_snapshot_before_the_first_list_has_ended() {
        let mut index = Index::new("me");
        assert_eq!(
            kinds(&index),
            [("nodes-not-listed".into(), Effect::NewPods)]
        );
        for event in [
            NodeEvent::Changed(node("me")),
            NodeEvent::ListStarted,
            NodeEvent::Listed(node("me")),
            NodeEvent::Listed(node("a")),
        ] {
            assert!(!index.apply(event));
            assert_eq!(names(&index), None);
        }
        assert!(index.apply(NodeEvent::ListEnded));
        assert_eq!(names(&index), Some(vec!["me", "a"]));
        assert_eq!(kinds(&index), []);
    }

    #[test]
    fn a_complete_list_replaces_what_was_known() {
        let mut index = Index::new("me");
        assert!(list(&mut index, [node("me"), node("a"), node("b")]));
        assert!(list(&mut index, [node("me"), node("b"), node("c")]));
        assert_eq!(names(&index), Some(vec!["me", "b", "c"]));
    }

    #[test]
    fn a_list_that_does_not_end_changes_nothing() {
        let mut index = Index::new("me");
        assert!(list(&mut index, [node("me"), node("a")]));
        for event in [
            NodeEvent::ListStarted,
            NodeEvent::Listed(node("x")),
            NodeEvent::ListStarted,
            NodeEvent::Listed(node("me")),
        ] {
            assert!(!index.apply(event));
        }
        assert_eq!(names(&index), Some(vec!["me", "a"]));
        assert!(index.apply(NodeEvent::ListEnded));
        assert_eq!(names(&index), Some(vec!["me"]));
        assert!(!index.apply(NodeEvent::ListEnded), "an end without a start");
        assert_eq!(names(&index), Some(vec!["me"]));
    }

    #[test]
    fn what_changes_during_a_list_is_not_undone_by_its_end() {
        let mut index = Index::new("me");
        assert!(list(&mut index, [node("me"), node("a")]));
        let _ = index.apply(NodeEvent::ListStarted);
        let _ = index.apply(NodeEvent::Listed(node("me")));
        let _ = index.apply(NodeEvent::Listed(node("a")));
        assert!(index.apply(NodeEvent::Changed(node("b"))));
        assert!(index.apply(NodeEvent::Deleted("a".into())));
        assert!(!index.apply(NodeEvent::ListEnded));
        assert_eq!(names(&index), Some(vec!["me", "b"]));
    }

    #[test]
    fn heartbeats_and_equal_lists_are_no_change() {
        let mut index = Index::new("me");
        let a = || node("a").cidr("10.244.1.0/24");
        assert!(list(&mut index, [node("me"), a()]));
        assert!(!index.apply(NodeEvent::Changed(a())));
        assert!(!index.apply(NodeEvent::Changed(node("me"))));
        assert!(!index.apply(NodeEvent::Deleted("unknown".into())));
        assert!(!list(&mut index, [a(), node("me")]));
        assert!(index.apply(NodeEvent::Changed(a().internal("192.0.2.1"))));
        assert!(index.apply(NodeEvent::Changed(node("me").created(1))));
        assert!(index.apply(NodeEvent::Deleted("a".into())));
    }

    #[test]
    fn an_empty_or_foreign_list_removes_nothing_and_is_reported() {
        for said in [vec![], vec![node("x"), node("y")]] {
            let mut index = Index::new("me");
            assert!(list(&mut index, [node("me"), node("a")]));
            assert!(list(&mut index, said.clone()));
            assert_eq!(names(&index), Some(vec!["me", "a"]));
            assert_eq!(
                kinds(&index),
                [("own-node-missing".into(), Effect::Warning)]
            );
            assert!(!list(&mut index, said));
            assert!(list(&mut index, [node("me"), node("b")]));
            assert_eq!(names(&index), Some(vec!["me", "b"]));
            assert_eq!(kinds(&index), []);
        }
    }

    #[test]
    fn a_first_list_without_the_own_node_is_no_snapshot() {
        let mut index = Index::new("me");
        assert!(list(&mut index, [node("a")]));
        assert_eq!(names(&index), None);
        assert_eq!(
            kinds(&index),
            [("own-node-missing".into(), Effect::NewPods)]
        );
        assert!(index.apply(NodeEvent::Changed(node("me"))));
        assert_eq!(names(&index), Some(vec!["me", "a"]));
    }

    #[test]
    fn the_own_node_deleted_holds_everything_until_it_is_back() {
        let mut index = Index::new("me");
        assert!(list(&mut index, [node("me"), node("a"), node("b")]));
        assert!(index.apply(NodeEvent::Deleted("me".into())));
        let _ = index.apply(NodeEvent::Deleted("a".into()));
        let _ = index.apply(NodeEvent::Changed(node("c")));
        assert_eq!(names(&index), Some(vec!["me", "a", "b"]));
        assert_eq!(
            kinds(&index),
            [("own-node-missing".into(), Effect::Warning)]
        );
        assert!(index.apply(NodeEvent::Changed(node("me").created(7))));
        assert_eq!(names(&index), Some(vec!["me", "b", "c"]));
    }

    #[test]
    fn a_lost_source_is_reported_and_holds_the_snapshot() {
        let mut index = Index::new("me");
        assert!(index.apply(NodeEvent::Lost("connection refused".into())));
        assert_eq!(
            kinds(&index),
            [("nodes-unreadable".into(), Effect::NewPods)]
        );
        assert!(list(&mut index, [node("me")]));
        assert!(index.apply(NodeEvent::Restored));
        assert!(!index.apply(NodeEvent::Restored));
        assert!(index.apply(NodeEvent::Lost("503".into())));
        assert!(!index.apply(NodeEvent::Lost("503".into())));
        assert_eq!(names(&index), Some(vec!["me"]));
        assert_eq!(
            kinds(&index),
            [("nodes-unreadable".into(), Effect::Warning)]
        );
        assert!(index.problems()[0].message.contains("503"));
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

    fn any_event() -> impl Strategy<Value = NodeEvent> {
        prop_oneof![
            1 => Just(NodeEvent::ListStarted),
            1 => Just(NodeEvent::ListEnded),
            3 => any_node().prop_map(NodeEvent::Listed),
            5 => any_node().prop_map(NodeEvent::Changed),
            2 => any_node().prop_map(|node| NodeEvent::Deleted(node.name)),
            1 => Just(NodeEvent::Lost("why".into())),
            1 => Just(NodeEvent::Restored),
        ]
    }

    proptest! {
        /// Promise 4: whatever came before, a complete list decides; and a true
        /// answer of `apply` is exactly a change that can be seen.
        #[test]
        fn the_state_is_a_function_of_the_last_complete_list(
            history in prop::collection::vec(any_event(), 0..40),
            last in prop::collection::vec(any_node(), 0..8),
        ) {
            let mut index = Index::new("me");
            for event in history {
                let before = (index.cluster().cloned(), index.problems());
                let changed = index.apply(event);
                prop_assert_eq!(changed, before != (index.cluster().cloned(), index.problems()));
            }
            let held = index.cluster().cloned();
            let _ = list(&mut index, last.clone());
            let _ = index.apply(NodeEvent::Restored);

            let mut fresh = Index::new("me");
            let _ = list(&mut fresh, last.clone());
            if last.iter().any(|node| node.name == "me") {
                prop_assert_eq!(index.cluster(), fresh.cluster());
                prop_assert!(index.problems().is_empty());
            } else {
                prop_assert_eq!(index.cluster().cloned(), held);
                prop_assert_eq!(&index.problems()[0].kind, "own-node-missing");
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
                let mut index = Index::new("0");
                let _ = list(&mut index, [node("0"), node("1"), node("2")]);
                for (name, created) in changes {
                    let name = name.to_string();
                    let _ = index.apply(match created {
                        0 => NodeEvent::Deleted(name),
                        _ => NodeEvent::Changed(node(&name).created(created)),
                    });
                }
                index.cluster().cloned()
            };
            if !changes.contains(&(0, 0)) {
                prop_assert_eq!(run(changes), run(shuffled));
            }
        }
    }
}
