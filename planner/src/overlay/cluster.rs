//! The Nodes as the overlay may use them: the store of Nodes, and what is
//! special to this kind because one of them is this machine's own.
//!
//! What always holds:
//! - there is no [`Snapshot`] before the first complete list, and after the
//!   first one that has the own Node in it there always is one;
//! - when the own Node is missing (an empty list, another cluster's list, the
//!   own Node deleted), the last good snapshot is held whole and unchanged until
//!   the own Node is back; then the Nodes as the source has them count again;
//! - a snapshot that an earlier run of the agent kept is held in the same way,
//!   from the start until the first complete list with the own Node in it.

use tweed_component::store::{Objects, Store, Touched};
use tweed_core::object::node_labels::NodeLabels;
use tweed_core::object::{Event, Object as _, ObjectKey};
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_core::{object::node::Node, version::Version};

/// The Nodes of the cluster, as this node knows them.
#[derive(Debug)]
pub struct Cluster {
    own: ObjectKey,
    store: Store<Node>,
    /// The last Nodes with the own one among them, while it is missing, or while
    /// no list is complete.
    held: Option<Objects<Node>>,
    listed: Listed,
    version: Version,
    /// Whether `held` has been set or cleared since the last
    /// [`Cluster::take_touched`].
    switched: bool,
    /// Those of the last Node that came: mostly the next one has the same keys.
    last_labels: NodeLabels,
}

/// The Nodes at one moment: complete, and with this node's own among them. The
/// content is as the source has it, not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<'a> {
    /// The Node that this machine is.
    pub own: &'a Node,
    /// The other Nodes.
    pub others: Vec<&'a Node>,
}

impl<'a> Snapshot<'a> {
    /// Every Node, the own one first.
    pub fn nodes(&self) -> impl Iterator<Item = &'a Node> {
        std::iter::once(self.own).chain(self.others.iter().copied())
    }
}

/// Whether the store has the own Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    /// No list is complete.
    Nothing,
    /// A complete list without any Node.
    Empty,
    /// A complete list of other Nodes alone.
    Others,
    /// The own Node is there.
    Own,
}

impl Cluster {
    /// A cluster before the first event; `own` is the name of this machine's
    /// Node.
    pub fn new(own: &str) -> Self {
        Self {
            own: own.into(),
            store: Store::default(),
            held: None,
            listed: Listed::Nothing,
            version: Version::default(),
            switched: false,
            last_labels: NodeLabels::default(),
        }
    }

    /// The same with the Nodes that an earlier run knew last: they count until the
    /// source has listed its own. Without the own Node they are no snapshot and
    /// are left out.
    #[must_use]
    pub fn resumed(mut self, nodes: impl IntoIterator<Item = Node>) -> Self {
        let shared = nodes.into_iter().map(|node| self.share_labels(node));
        let nodes: Objects<Node> = shared.map(|node| (node.key(), node)).collect();
        let held = nodes.contains_key(&self.own).then_some(nodes);
        Self {
            switched: held.is_some(),
            held,
            ..self
        }
    }

    /// Takes one event in. True if the snapshot or [`Cluster::problems`] changed
    /// by it: a heartbeat, or a list that says nothing new, changes nothing.
    #[must_use = "a change calls for a new plan"]
    pub fn apply(&mut self, event: Event<Node>) -> bool {
        let loses_own = match &event {
            Event::Delete(key) => *key == self.own,
            Event::InitDone => {
                (self.store.listing()).is_some_and(|list| !list.contains_key(&self.own))
            }
            _ => false,
        };
        if loses_own && self.listed == Listed::Own {
            self.held = Some(self.store.objects().clone());
        }
        let of_source = matches!(event, Event::Lost(_) | Event::Restored);
        let event = match event {
            Event::InitApply(node) => Event::InitApply(self.share_labels(node)),
            Event::Apply(node) => Event::Apply(self.share_labels(node)),
            other => other,
        };
        if !self.store.apply(event) {
            return false;
        }
        let listed = self.find_own();
        if listed == Listed::Own {
            self.held = None;
        }
        let switched = self.listed != listed;
        self.listed = listed;
        self.switched |= switched;
        let changed = of_source || switched || self.listed == Listed::Own;
        if changed {
            self.version.bump();
        }
        changed
    }

    /// Changes whenever [`Cluster::apply`] answers true.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The last good snapshot; none before the first complete list that has
    /// the own Node in it. O(n).
    pub fn snapshot(&self) -> Option<Snapshot<'_>> {
        let others = self.nodes().filter(|node| node.name != self.own.name);
        Some(Snapshot {
            own: self.own()?,
            others: others.collect(),
        })
    }

    /// The own Node of the last good snapshot.
    pub fn own(&self) -> Option<&Node> {
        self.get(&self.own)
    }

    /// A Node of the last good snapshot.
    pub fn get(&self, key: &ObjectKey) -> Option<&Node> {
        self.objects()?.get(key)
    }

    /// The Nodes of the last good snapshot.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.objects().into_iter().flat_map(Objects::values)
    }

    /// Whether the last good snapshot is what the source says now, and no older
    /// one that is held.
    pub fn is_current(&self) -> bool {
        self.listed == Listed::Own
    }

    /// Whether the source has given a complete list in this run.
    pub fn is_listed(&self) -> bool {
        self.listed != Listed::Nothing
    }

    /// How many Nodes the last good snapshot has, the own one included.
    pub fn size(&self) -> usize {
        self.objects().map_or(0, Objects::len)
    }

    /// Which Nodes of the snapshot have changed since this was last asked. The
    /// first time it is all of them. The plan for each Node depends on the own
    /// one, so a change of that is a change of all.
    pub fn take_touched(&mut self) -> Touched<Node> {
        let touched = self.store.take_touched();
        if std::mem::take(&mut self.switched) {
            return Touched::Everything;
        }
        match touched {
            // The held snapshot has not changed, whatever the store says.
            _ if self.held.is_some() => Touched::default(),
            Touched::Objects(objects) if objects.contains_key(&self.own) => Touched::Everything,
            touched => touched,
        }
    }

    /// What is wrong with the list of Nodes. A node that has a good snapshot works
    /// on and stays ready. Another is not ready, whatever it was before: what its
    /// kernel should hold is not known, so nothing is repaired.
    pub fn problems(&self) -> Vec<Problem> {
        let effect = if self.objects().is_some() {
            Effect::Warning
        } else {
            Effect::NewPods
        };
        let problem = |kind, message: &str| Problem::new(kind, &self.own.name, message);
        let list = match self.listed {
            Listed::Own => None,
            Listed::Nothing if self.store.lost().is_some() => None,
            Listed::Nothing => Some(problem(
                ProblemKind::NodesNotListed,
                "no list of Nodes has been complete yet",
            )),
            Listed::Empty => Some(problem(
                ProblemKind::OwnNodeMissing,
                "the list of Nodes is empty",
            )),
            Listed::Others => Some(problem(
                ProblemKind::OwnNodeMissing,
                "this node's own Node is not in the list of Nodes",
            )),
        };
        let source = self.store.lost().map(|reason| {
            let resumed = match (self.listed, &self.held) {
                (Listed::Nothing, Some(_)) => "; those of before the restart are used",
                _ => "",
            };
            let message = format!("the Nodes cannot be read: {reason}{resumed}");
            problem(ProblemKind::NodesUnreadable, &message)
        });
        (list.into_iter().chain(source))
            .map(|problem| problem.with_effect(effect))
            .collect()
    }

    /// The Nodes of the last good snapshot.
    fn objects(&self) -> Option<&Objects<Node>> {
        let stored = || (self.listed == Listed::Own).then(|| self.store.objects());
        self.held.as_ref().or_else(stored)
    }

    /// Has the labels of `node` use the memory of equal ones that are known: a list comes
    /// beside the Nodes of the one before, or of an earlier run.
    fn share_labels(&mut self, mut node: Node) -> Node {
        if let Some(known) = self.get(&node.key()) {
            node.labels.share(&known.labels);
        }
        node.labels.share(&self.last_labels);
        self.last_labels = node.labels.clone();
        node
    }

    fn find_own(&self) -> Listed {
        let objects = self.store.objects();
        match () {
            () if !self.store.is_complete() => Listed::Nothing,
            () if objects.contains_key(&self.own) => Listed::Own,
            () if objects.is_empty() => Listed::Empty,
            () => Listed::Others,
        }
    }
}

#[cfg(test)]
mod tests;
