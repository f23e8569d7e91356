//! Everything that the planner has been told, before any policy is applied to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tweed_component::store::Store;
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::selector::{LabelSelector, Labels};
use tweed_core::object::{Event, Object, ObjectKey};

use super::labels::Kind;
use super::local::{Known, LocalPod, LocalPods, PolicyKey};
use super::nodes::NodeIndex;
use super::pods::{Entry, PodIndex, PodScope};
use super::rules::{self, Namespaces, Rules};

/// Kinds of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyKinds {
    /// NetworkPolicies.
    pub network: bool,
    /// ClusterNetworkPolicies.
    pub cluster: bool,
}

/// What is known of the cluster and of this node.
#[derive(Debug)]
pub struct Index {
    /// This node.
    pub node_name: String,
    /// All Namespaces.
    pub namespaces: Store<Namespace>,
    /// All NetworkPolicies.
    pub network_policies: Store<NetworkPolicy>,
    /// All ClusterNetworkPolicies.
    pub cluster_policies: Store<ClusterNetworkPolicy>,
    /// NetworkPolicies of namespaces that are being deleted, which stay in force until these are
    /// gone: those that went before, and [`isolation_of`] a namespace of which it is not known
    /// what it had.
    retained: BTreeMap<ObjectKey, NetworkPolicy>,
    /// Whether Namespaces and NetworkPolicies have been listed.
    listed: bool,
    /// The kinds of which the kernel has policies from before this run.
    pub kept: PolicyKinds,
    /// Pods.
    pub pods: PodIndex,
    /// Nodes.
    pub nodes: NodeIndex,
    /// Local addresses; none before they were first set.
    pub local: Option<LocalPods>,
    /// Whether they have changed since the last plan.
    pub local_touched: bool,
}

/// A namespace's labels, with the one that the API server gives every Namespace.
pub fn namespace_labels(namespace: &Namespace) -> Labels {
    let mut labels = namespace.labels.clone();
    labels.insert(Namespace::NAME_LABEL.to_owned(), namespace.name.clone());
    labels
}

/// Whether a selector of namespaces selects this one. It copies no labels: with many Namespaces
/// it is asked for each of them and each selector, at each change of one.
pub fn selects_namespace(selector: &LabelSelector, namespace: &Namespace) -> bool {
    selector.selects_by(|key| match key {
        Namespace::NAME_LABEL => Some(namespace.name.as_str()),
        _ => namespace.labels.get(key).map(String::as_str),
    })
}

/// What isolates all pods of a namespace that is being deleted; no object can have such a name.
fn isolation_of(namespace: &Namespace) -> (ObjectKey, NetworkPolicy) {
    let policy = NetworkPolicy {
        namespace: namespace.name.clone(),
        name: "(its namespace is being deleted)".to_owned(),
        policy_types: ["Ingress", "Egress"].map(str::to_owned).into(),
        ..NetworkPolicy::default()
    };
    (policy.key(), policy)
}

impl Index {
    /// Nothing is known yet.
    pub fn new(node_name: &str) -> Self {
        Self {
            node_name: node_name.to_owned(),
            namespaces: Store::default(),
            network_policies: Store::default(),
            cluster_policies: Store::default(),
            retained: BTreeMap::new(),
            listed: false,
            kept: PolicyKinds::default(),
            pods: PodIndex::default(),
            nodes: NodeIndex::default(),
            local: None,
            local_touched: false,
        }
    }

    /// Sets the local addresses. True if anything changed.
    pub fn set_local(&mut self, local: LocalPods) -> bool {
        let changed = self.local.as_ref() != Some(&local);
        if changed {
            self.local = Some(local);
            self.local_touched = true;
        }
        changed
    }

    /// Takes an event of the watch of Namespaces in. True if anything changed. Of one that is
    /// first seen while it is being deleted, policies may have gone that this run has never seen;
    /// but not of those that are listed when the first policy comes.
    pub fn apply_namespaces(&mut self, event: Event<Namespace>) -> bool {
        let known = self.namespaces.objects();
        let isolates = self.namespaces.is_complete() || self.may_lack_policies();
        let is_new =
            |one: &&Namespace| isolates && one.terminating && !known.contains_key(&one.key());
        let (one, listing) = match &event {
            Event::Apply(one) => (Some(one), None),
            Event::InitDone => (None, self.namespaces.listing()),
            _ => (None, None),
        };
        let all = listing.into_iter().flat_map(|all| all.values()).chain(one);
        self.retained.extend(all.filter(is_new).map(isolation_of));
        let changed = self.namespaces.apply(event);
        let namespaces = &self.namespaces;
        (self.retained).retain(|key, _| is_terminating(namespaces, &key.namespace));
        self.note_lists();
        changed
    }

    /// Takes an event of the watch of NetworkPolicies in. True if anything changed.
    pub fn apply_network_policies(&mut self, event: Event<NetworkPolicy>) -> bool {
        let (known, namespaces) = (self.network_policies.objects(), &self.namespaces);
        match &event {
            Event::Apply(one) => drop(self.retained.remove(&one.key())),
            Event::Delete(key) if is_terminating(namespaces, &key.namespace) => {
                let gone = known.get(key).cloned();
                self.retained.extend(gone.map(|one| (key.clone(), one)));
            }
            Event::InitDone => {
                let all = known.values();
                let ending = all.filter(|one| is_terminating(namespaces, &one.namespace));
                self.retained
                    .extend(ending.map(|one| (one.key(), one.clone())));
                if self.may_lack_policies() {
                    let all = namespaces.objects().values().filter(|one| one.terminating);
                    self.retained.extend(all.map(isolation_of));
                }
                if let Some(listing) = self.network_policies.listing() {
                    self.retained.retain(|key, _| !listing.contains_key(key));
                }
            }
            _ => {}
        }
        let changed = self.network_policies.apply(event);
        self.note_lists();
        changed
    }

    fn note_lists(&mut self) {
        self.listed |= self.namespaces.is_complete() && self.network_policies.is_complete();
    }

    /// Whether the kernel has NetworkPolicies from before this run, and it is not known yet whether
    /// some have gone of namespaces that are being deleted.
    fn may_lack_policies(&self) -> bool {
        self.kept.network && !self.listed
    }

    /// All NetworkPolicies that are in force for the pods that they select.
    pub fn network_policies(&self) -> impl Iterator<Item = &NetworkPolicy> {
        let known = self.network_policies.objects().values();
        known.chain(self.retained.values())
    }

    /// Whether there is any policy, or may be one.
    pub fn any_policy(&self) -> bool {
        let any_network = self.network_policies().next().is_some();
        any_network || !self.cluster_policies.objects().is_empty() || self.may_lack_policies()
    }

    /// All policies.
    pub fn policies(&self) -> impl Iterator<Item = PolicyKey> {
        let all = self.network_policies();
        let network = all.map(|one| PolicyKey::Network(one.namespace.clone(), one.name.clone()));
        let cluster = self.cluster_policies.objects().values();
        network.chain(cluster.map(|one| PolicyKey::Cluster(one.name.clone())))
    }

    /// What must be known before policies are planned: both kinds. One that cannot be read
    /// is left out if the other one is known, so that it does not hold that back; but not
    /// if the kernel has policies of it, which would be taken away.
    pub fn missing_policies(&self) -> Vec<String> {
        let network = self.network_policies.is_complete();
        let cluster = self.cluster_policies.is_complete();
        let no_network = self.network_policies.lost().is_some() && !self.kept.network;
        let no_cluster = self.cluster_policies.lost().is_some() && !self.kept.cluster;
        missing([
            ("the NetworkPolicies are", network || cluster && no_network),
            (
                "the ClusterNetworkPolicies are",
                cluster || network && no_cluster,
            ),
        ])
    }

    /// The kinds of which the kernel has policies, or will after the next plan.
    pub fn policy_kinds(&self) -> PolicyKinds {
        fn any<T: Object>(store: &Store<T>, kept: bool) -> bool {
            if store.is_complete() {
                !store.objects().is_empty()
            } else {
                kept
            }
        }
        let network = any(&self.network_policies, self.kept.network);
        PolicyKinds {
            network: network || !self.retained.is_empty() || self.may_lack_policies(),
            cluster: any(&self.cluster_policies, self.kept.cluster),
        }
    }

    /// What must be known before policies can be applied to local pods.
    pub fn missing_subjects(&self) -> Vec<String> {
        let own = format!("the pods of Node {} are", self.node_name);
        missing([
            ("the Namespaces are", self.namespaces.is_complete()),
            (own.as_str(), self.pods.is_complete(&PodScope::Own)),
            ("the Nodes are", self.nodes.complete),
            ("the local addresses are", self.local.is_some()),
        ])
    }

    /// Which peers are not listed yet. A first plan without them would cut flows that
    /// policies allow.
    pub fn missing_peers(&self, peers: &BTreeSet<PodScope>) -> Vec<String> {
        if self.pods.is_complete(&PodScope::All) {
            return Vec::new();
        }
        let unlisted = peers.iter().filter(|scope| !self.pods.is_complete(scope));
        let left = unlisted.count();
        let whose = if peers.contains(&PodScope::All) {
            "all nodes".to_owned()
        } else {
            format!("{left} namespaces")
        };
        missing([(&*format!("the pods of {whose} are"), left == 0)])
    }

    /// Whether the scopes that are to be watched for peers have all been listed.
    pub fn are_watched(&self, peers: &BTreeSet<PodScope>) -> bool {
        peers.iter().all(|scope| self.pods.is_complete(scope))
    }

    /// Which of these namespaces' pods are not listed yet.
    pub fn unlisted(&self, namespaces: &Namespaces) -> BTreeSet<String> {
        if self.pods.is_complete(&PodScope::All) {
            return BTreeSet::new();
        }
        let mut names: BTreeSet<String> = match namespaces {
            Namespaces::Named(name) => [name.clone()].into(),
            Namespaces::Selected(selector) => {
                let all = self.namespaces.objects().values();
                let selected = all.filter(|one| selects_namespace(selector, one));
                selected.map(|one| one.name.clone()).collect()
            }
        };
        names.retain(|name| !(self.pods).is_complete(&PodScope::Namespace(name.clone())));
        names
    }

    /// A namespace's labels. One that is not known has its name only.
    pub fn labels_of(&self, namespace: &str) -> Labels {
        let key = ObjectKey::from(namespace);
        match self.namespaces.objects().get(&key) {
            Some(namespace) => namespace_labels(namespace),
            None => [(Namespace::NAME_LABEL.to_owned(), namespace.to_owned())].into(),
        }
    }

    /// The pod of a local address; `None` if no record has the address.
    pub fn local_pod(&self, address: IpAddr) -> Option<Option<&LocalPod>> {
        let local = self.local.as_ref()?;
        local.pods.get(&address).map(Option::as_ref)
    }

    /// What is known of the pod behind a local address.
    pub fn known(&self, address: IpAddr) -> Known {
        let Some(Some(local)) = self.local_pod(address) else {
            return Known::Open;
        };
        let namespace = ObjectKey::from(local.name.namespace.as_str());
        if !self.namespaces.objects().contains_key(&namespace) {
            return Known::NotYet;
        }
        match self.entry_of(local) {
            None => Known::NotYet,
            // Such a pod has no record: this is another one of the same name.
            Some(pod) if pod.host_network => Known::NotYet,
            Some(pod) => Known::Pod {
                kind: pod.kind.clone(),
                finished: pod.finished,
            },
        }
    }

    /// The Pod object of a local pod. One of an earlier pod of the same name is none.
    pub fn entry_of(&self, local: &LocalPod) -> Option<&Entry> {
        let entry = self.pods.get(&local.name.namespace, &local.name.name)?;
        entry.may_be(local.uid.as_deref()).then_some(entry)
    }

    /// The policies that select pods of a kind.
    pub fn applied_to(&self, kind: &Kind, namespace: &Labels) -> BTreeSet<PolicyKey> {
        let all = self.network_policies();
        let these = all.filter(|policy| network_policy_selects(policy, kind));
        let network = these.map(|one| PolicyKey::Network(one.namespace.clone(), one.name.clone()));
        let all = self.cluster_policies.objects().values();
        let selects = |policy: &&ClusterNetworkPolicy| {
            rules::cluster_policy_selects(policy, namespace, &kind.labels)
        };
        let cluster = all.filter(selects);
        network
            .chain(cluster.map(|one| PolicyKey::Cluster(one.name.clone())))
            .collect()
    }

    /// Whether a policy selects pods of a kind.
    pub fn selects(&self, policy: &PolicyKey, kind: &Kind, namespace: &Labels) -> bool {
        match policy {
            PolicyKey::Network(of, name) => {
                let policy = self.network_policy(of, name);
                policy.is_some_and(|policy| network_policy_selects(policy, kind))
            }
            PolicyKey::Cluster(name) => {
                let policy = self.cluster_policy(name);
                policy.is_some_and(|policy| {
                    rules::cluster_policy_selects(policy, namespace, &kind.labels)
                })
            }
        }
    }

    /// The rules of a policy.
    pub fn rules(&self, policy: &PolicyKey) -> Option<Rules> {
        match policy {
            PolicyKey::Network(namespace, name) => {
                let policy = self.network_policy(namespace, name);
                policy.map(rules::of_network_policy)
            }
            PolicyKey::Cluster(name) => self.cluster_policy(name).map(rules::of_cluster_policy),
        }
    }

    /// How much a policy has: rules and peers, and itself.
    pub fn size_of(&self, policy: &PolicyKey) -> usize {
        let size = match policy {
            PolicyKey::Network(namespace, name) => {
                let policy = self.network_policy(namespace, name);
                policy.map(|one| {
                    let rules = one.ingress.iter().chain(&one.egress);
                    rules.map(|rule| 1 + rule.peers.len()).sum()
                })
            }
            PolicyKey::Cluster(name) => {
                let policy = self.cluster_policy(name);
                policy.map(|one| {
                    let rules = one.ingress.iter().chain(&one.egress);
                    rules.map(|rule| 1 + rule.peers.len()).sum()
                })
            }
        };
        1 + size.unwrap_or(0)
    }

    fn network_policy(&self, namespace: &str, name: &str) -> Option<&NetworkPolicy> {
        let key = ObjectKey {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        };
        let known = self.network_policies.objects().get(&key);
        known.or_else(|| self.retained.get(&key))
    }

    fn cluster_policy(&self, name: &str) -> Option<&ClusterNetworkPolicy> {
        self.cluster_policies.objects().get(&ObjectKey::from(name))
    }
}

fn is_terminating(namespaces: &Store<Namespace>, name: &str) -> bool {
    let namespace = namespaces.objects().get(&ObjectKey::from(name));
    namespace.is_some_and(|namespace| namespace.terminating)
}

fn network_policy_selects(policy: &NetworkPolicy, kind: &Kind) -> bool {
    *policy.namespace == *kind.namespace && kind.labels.may_be_selected_by(&policy.pod_selector)
}

/// The sentences about what is not known yet.
fn missing<const N: usize>(known: [(&str, bool); N]) -> Vec<String> {
    let missing = known.iter().filter(|(_, known)| !known);
    missing
        .map(|(what, _)| format!("{what} not known yet"))
        .collect()
}
