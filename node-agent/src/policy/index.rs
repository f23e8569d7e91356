//! What the sources have said of policies and of what these are about, as far as the
//! planner has taken it in, and which of the sources can be read.

use std::collections::BTreeMap;
use std::mem;

use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::{Event, Loss, Object as _};
use tweed_core::object::{namespace::Namespace, network_policy::NetworkPolicy, pod::Pod};
use tweed_core::problem::{Problem, ProblemKind};
use tweed_planner::policy::PolicyPlanner;
use tweed_watch::Kind;

use super::Collection;
use crate::sources::state::SourceState;

/// The planner of policies with the objects that it knows, and the state of their
/// sources.
#[derive(Debug)]
pub struct PolicyIndex {
    /// Holds the objects, in the form that it needs.
    pub planner: PolicyPlanner,
    sources: BTreeMap<Collection, SourceState>,
    /// Whether anything has changed since [`PolicyIndex::take_changed`].
    changed: bool,
}

/// A kind of objects that the planner of policies takes in.
pub trait PolicyObject: Kind {
    /// Gives `planner` an event of `collection`, and says whether anything changed.
    fn apply(planner: &mut PolicyPlanner, collection: &Collection, event: Event<Self>) -> bool;
}

impl PolicyObject for NetworkPolicy {
    fn apply(planner: &mut PolicyPlanner, _: &Collection, event: Event<Self>) -> bool {
        planner.apply_network_policies(event)
    }
}

impl PolicyObject for ClusterNetworkPolicy {
    fn apply(planner: &mut PolicyPlanner, _: &Collection, event: Event<Self>) -> bool {
        planner.apply_cluster_network_policies(event)
    }
}

impl PolicyObject for Namespace {
    fn apply(planner: &mut PolicyPlanner, _: &Collection, event: Event<Self>) -> bool {
        planner.apply_namespaces(event)
    }
}

impl PolicyObject for Pod {
    fn apply(planner: &mut PolicyPlanner, collection: &Collection, event: Event<Self>) -> bool {
        match collection {
            Collection::Pods(scope) => planner.apply_pods(scope, event),
            _ => false,
        }
    }
}

impl PolicyIndex {
    /// The index of the node of this name, before any event.
    pub fn new(node_name: &str) -> Self {
        Self {
            planner: PolicyPlanner::new(node_name),
            sources: BTreeMap::new(),
            changed: true,
        }
    }

    /// Takes in an event of `collection`. Says whether anything changed by it: the
    /// objects, or the state of the source.
    pub fn apply<T: PolicyObject>(&mut self, collection: &Collection, event: Event<T>) -> bool {
        let source = self.sources.entry(collection.clone()).or_default();
        let of_source = source.apply(&event);
        let of_objects = T::apply(&mut self.planner, collection, event);
        self.changed |= of_source || of_objects;
        of_source || of_objects
    }

    /// The source of `collection` has been stopped: what only it has said is
    /// forgotten. Says whether anything changed by it.
    pub fn forget(&mut self, collection: &Collection) -> bool {
        let of_source = self.sources.remove(collection).is_some();
        let of_objects = match collection {
            Collection::Pods(scope) => self.planner.drop_scope(scope),
            Collection::Namespaces => self.planner.drop_namespaces(),
            Collection::NetworkPolicies | Collection::ClusterNetworkPolicies => false,
        };
        self.changed |= of_source || of_objects;
        of_source || of_objects
    }

    /// Whether the sources of both kinds of policies have listed them or said that they
    /// cannot.
    pub fn has_reported(&self) -> bool {
        let has = |one: &Collection| {
            let source = self.sources.get(one);
            source.is_some_and(SourceState::has_reported)
        };
        Collection::POLICIES.iter().all(has)
    }

    /// Whether there is any policy.
    pub fn has_policies(&self) -> bool {
        self.policies().iter().any(|(_, count)| *count > 0)
    }

    /// How many policies of each kind there are.
    pub fn policies(&self) -> [(&'static str, usize); 2] {
        let (network, cluster) = self.planner.policies();
        [
            (NetworkPolicy::KINDS, network),
            (ClusterNetworkPolicy::KINDS, cluster),
        ]
    }

    /// Whether any source cannot be read: then a list that is missing may never come.
    pub fn any_lost(&self) -> bool {
        self.sources.values().any(|source| source.lost.is_some())
    }

    /// Whether anything has changed since [`PolicyIndex::take_changed`].
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether anything has changed since this was last called.
    pub fn take_changed(&mut self) -> bool {
        mem::take(&mut self.changed)
    }

    /// A problem for each source that cannot be read, and whether policies may be missing
    /// for it: a kind of policies was never listed.
    pub fn unreadable(&self) -> impl Iterator<Item = (bool, Problem)> {
        self.sources.iter().filter_map(|(collection, source)| {
            let Loss { reason, forbidden } = source.lost.as_ref()?;
            let kind = match forbidden {
                true => ProblemKind::PoliciesForbidden,
                false => ProblemKind::PoliciesUnreadable,
            };
            let text = format!("the {collection} cannot be read: {reason}");
            let is_missing = !source.listed && Collection::POLICIES.contains(collection);
            Some((is_missing, Problem::new(kind, collection.to_string(), text)))
        })
    }

    /// Why there are no objects of a kind: what the server has instead.
    pub fn absent(&self) -> impl Iterator<Item = String> {
        let sources = self.sources.iter();
        sources.filter_map(|(collection, source)| source.absence(collection))
    }
}

#[cfg(test)]
mod tests {
    use tweed_planner::policy::PodScope;

    use super::*;

    /// Which collections cannot be read, and whether policies may be missing for it.
    fn unreadable(index: &PolicyIndex) -> Vec<(String, bool)> {
        let sources = index.unreadable();
        let named = sources.map(|(is_missing, problem)| (problem.object, is_missing));
        named.collect()
    }

    /// A node whose policies are all known goes on serving pods while its API server is away.
    #[test]
    fn policies_may_be_missing_only_if_they_were_never_listed() {
        let lost = || Loss {
            reason: "the server is away".to_owned(),
            forbidden: false,
        };
        let collection = Collection::NetworkPolicies;
        let mut index = PolicyIndex::new("alpha");
        index.apply::<NetworkPolicy>(&collection, Event::Lost(lost()));
        assert_eq!(unreadable(&index), [(collection.to_string(), true)]);
        for event in [Event::Restored, Event::Init, Event::InitDone] {
            index.apply::<NetworkPolicy>(&collection, event);
        }
        assert_eq!(unreadable(&index), []);
        index.apply::<NetworkPolicy>(&collection, Event::Lost(lost()));
        assert_eq!(unreadable(&index), [(collection.to_string(), false)]);

        let pods = Collection::Pods(PodScope::Own);
        let mut index = PolicyIndex::new("alpha");
        index.take_changed();
        index.apply::<Pod>(&pods, Event::Lost(lost()));
        assert_eq!(unreadable(&index), [(pods.to_string(), false)]);
        assert!(index.take_changed(), "a reconcile has to report it");
        index.forget(&pods);
        assert_eq!(unreadable(&index), []);
        assert!(index.take_changed());
    }
}
