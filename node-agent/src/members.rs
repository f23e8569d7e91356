//! Which Nodes join and leave, as lines of the log. Pure but for the line itself.

use std::collections::BTreeSet;

use tweed_core::object::{Event, Object as _, ObjectKey, node::Node};
use tweed_planner::overlay::cluster::Cluster;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A Node that was not there.
    Joined(ObjectKey),
    /// One that is not there any more.
    Left(ObjectKey),
}

impl Line {
    /// Writes it to the log.
    pub fn write(&self) {
        match self {
            Self::Joined(node) => tracing::info!(%node, "Node joined"),
            Self::Left(node) => tracing::info!(%node, "Node left"),
        }
    }
}

/// The Nodes that an event may add or remove, as far as they are known.
#[derive(Debug)]
pub struct Members {
    /// The one Node that the event is about; none if it is about all of them.
    only: Option<ObjectKey>,
    known: BTreeSet<ObjectKey>,
}

impl Members {
    /// Those that are known before an event; none of one that adds and removes nothing.
    pub fn before(nodes: &Cluster, event: &Event<Node>) -> Option<Self> {
        let only = match event {
            Event::Apply(node) => Some(node.key()),
            Event::Delete(key) => Some(key.clone()),
            Event::InitDone => None,
            _ => return None,
        };
        let known = known(nodes, only.as_ref());
        Some(Self { only, known })
    }

    /// What the event has changed. Of the first list of all it is nothing: nobody has joined.
    pub fn after(self, nodes: &Cluster) -> Vec<Line> {
        let Self {
            only,
            known: before,
        } = self;
        if only.is_none() && before.is_empty() {
            return Vec::new();
        }
        let now = known(nodes, only.as_ref());
        let joined = now.difference(&before).cloned().map(Line::Joined);
        joined
            .chain(before.difference(&now).cloned().map(Line::Left))
            .collect()
    }
}

fn known(nodes: &Cluster, only: Option<&ObjectKey>) -> BTreeSet<ObjectKey> {
    match only {
        Some(key) => nodes.get(key).into_iter().map(|node| node.key()).collect(),
        None => nodes.nodes().map(|node| node.key()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Node {
        Node {
            name: name.to_owned(),
            ..Node::default()
        }
    }

    fn lines(nodes: &mut Cluster, event: Event<Node>) -> Vec<Line> {
        let members = Members::before(nodes, &event);
        let _ = nodes.apply(event);
        members
            .map(|members| members.after(nodes))
            .unwrap_or_default()
    }

    fn list(nodes: &mut Cluster, names: &[&str]) -> Vec<Line> {
        let all = names.iter().map(|name| Event::InitApply(node(name)));
        let events = [Event::Init]
            .into_iter()
            .chain(all)
            .chain([Event::InitDone]);
        events.flat_map(|event| lines(nodes, event)).collect()
    }

    #[test]
    fn who_comes_and_goes_after_the_first_list_is_a_line_each() {
        let mut nodes = Cluster::new("a");
        assert_eq!(list(&mut nodes, &["a", "b"]), []);
        let (c, b) = (|| ObjectKey::from("c"), || ObjectKey::from("b"));
        assert_eq!(
            lines(&mut nodes, Event::Apply(node("c"))),
            [Line::Joined(c())]
        );
        assert_eq!(lines(&mut nodes, Event::Apply(node("c"))), []);
        assert_eq!(lines(&mut nodes, Event::Delete(b())), [Line::Left(b())]);
        assert_eq!(lines(&mut nodes, Event::Delete(b())), []);
        let both = [Line::Joined(b()), Line::Left(c())];
        assert_eq!(list(&mut nodes, &["a", "b"]), both);
    }
}
