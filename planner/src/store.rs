//! What the sources said so far: a synchronous state machine over
//! [`Event<Node>`]s, fed through [`Index::apply`].
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

use crate::overlay::cluster::Cluster;
use tweed_core::object::Event;
use tweed_core::object::node::Node;
use tweed_core::problem::{Effect, Problem, ProblemKind};

type Nodes = BTreeMap<String, Node>;

/// More Nodes than this are no longer told one by one.
const MOST_TOUCHED: usize = 64;

/// Which Nodes of [`Index::cluster`] are otherwise than when that was last
/// asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// These other Nodes, by name, each as it was then; none if it was not there.
    Nodes(BTreeMap<String, Option<Node>>),
    /// The own Node, too many, or all of them.
    Everything,
}

impl Touched {
    fn add(&mut self, name: &str, was: Option<Node>) {
        if let Self::Nodes(nodes) = self {
            if !nodes.contains_key(name) {
                nodes.insert(name.to_owned(), was);
            }
            if nodes.len() > MOST_TOUCHED {
                *self = Self::Everything;
            }
        }
    }
}

/// The Nodes of the cluster, as this node knows them.
#[derive(Debug)]
pub struct Index {
    own: String,
    view: View,
    touched: Touched,
    /// The list that is under way.
    listing: Option<Nodes>,
    /// Why the source cannot be read.
    lost: Option<String>,
    /// Whether the node is served already by what an earlier run left.
    was_ready: bool,
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
            touched: Touched::Everything,
            listing: None,
            lost: None,
            was_ready: false,
        }
    }

    /// The same for a node that an earlier run of this boot has made ready:
    /// what that left goes on, so that not knowing the Nodes yet is a warning.
    #[must_use]
    pub fn resumed(self, was_ready: bool) -> Self {
        Self { was_ready, ..self }
    }

    /// Takes one event in. True if [`Index::cluster`] or [`Index::problems`]
    /// now says something else: a heartbeat, or a list that tells nothing new,
    /// does not.
    #[must_use = "a change calls for a new plan"]
    pub fn apply(&mut self, event: Event<Node>) -> bool {
        match event {
            Event::Init => {
                self.listing = Some(Nodes::new());
                false
            }
            Event::InitApply(node) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(node.name.clone(), node);
                }
                false
            }
            Event::InitDone => match self.listing.take() {
                Some(nodes) => self.replace(nodes),
                None => false,
            },
            Event::Apply(node) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(node.name.clone(), node.clone());
                }
                self.change(node)
            }
            Event::Delete(key) => {
                if let Some(listing) = &mut self.listing {
                    listing.remove(&key.name);
                }
                self.delete(&key.name)
            }
            Event::Lost(reason) => {
                // Attempts that follow each other word the same trouble
                // differently; each is worth a line, so each is a change.
                let lost = Some(reason);
                std::mem::replace(&mut self.lost, lost.clone()) != lost
            }
            Event::Restored => self.lost.take().is_some(),
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

    /// Which Nodes have changed since this was last asked. The first time it is
    /// all of them.
    pub fn take_touched(&mut self) -> Touched {
        std::mem::replace(&mut self.touched, Touched::Nodes(BTreeMap::new()))
    }

    /// What is wrong with the list of Nodes. A node that has a good snapshot, or
    /// was made ready by an earlier run, goes on and stays ready; another is not.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let effect = if self.cluster().is_some() || self.was_ready {
            Effect::Warning
        } else {
            Effect::NewPods
        };
        let mut problems = Vec::new();
        match &self.view {
            View::Good(_) => {}
            View::Nothing if self.lost.is_some() => {}
            View::Nothing => problems.push(Problem::new(
                ProblemKind::NodesNotListed,
                &self.own,
                "no list of Nodes has been complete yet",
            )),
            View::WithoutOwn { said, .. } => problems.push(own_missing(&self.own, said)),
        }
        if let Some(reason) = &self.lost {
            problems.push(Problem::new(
                ProblemKind::NodesUnreadable,
                &self.own,
                format!("the Nodes cannot be read: {reason}"),
            ));
        }
        let effective = |problem: Problem| problem.with_effect(effect);
        problems.into_iter().map(effective).collect()
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
        if changed {
            self.touched = Touched::Everything;
        }
        self.view = next;
        changed
    }

    fn change(&mut self, node: Node) -> bool {
        match &mut self.view {
            View::Nothing => false,
            View::Good(cluster) if node.name == self.own => {
                let changed = cluster.own != node;
                if changed {
                    self.touched = Touched::Everything;
                }
                cluster.own = node;
                changed
            }
            View::Good(cluster) => {
                let changed = cluster.others.get(&node.name) != Some(&node);
                if changed {
                    let name = node.name.clone();
                    let was = cluster.others.insert(name.clone(), node);
                    self.touched.add(&name, was);
                }
                changed
            }
            View::WithoutOwn { said, .. } if node.name == self.own => {
                self.touched = Touched::Everything;
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
            View::Good(cluster) => match cluster.others.remove(name) {
                Some(was) => {
                    self.touched.add(name, Some(was));
                    true
                }
                None => false,
            },
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

fn own_missing(own: &str, said: &Nodes) -> Problem {
    let message = if said.is_empty() {
        "the list of Nodes is empty"
    } else {
        "this node's own Node is not in the list of Nodes"
    };
    Problem::new(ProblemKind::OwnNodeMissing, own, message)
}

#[cfg(test)]
mod tests;
