//! The planner of policy: takes the events of watches in, and says what the sets and
//! maps of the kernel should hold.
//!
//! What always holds:
//! - numbers mean the same from one plan to the next, and a number that becomes free in
//!   a change is not given out again in it;
//! - a delta applied to the desired state before it is the desired state after it;
//! - while it is not known which policies there are and what pods this node has, the last
//!   plan *holds*: it stays, and an address that gets another pod meanwhile is isolated;
//! - where the kernel has policies of an earlier run, the first plan holds until every list
//!   of pods is known that a policy in force needs;
//! - where it has none, the first plan is *open* ([`PolicyPlanner::begin`]): every pod that was
//!   there before may do all, and every other one is isolated;
//! - after either, a policy that needs a list which is not known yet *waits*. It holds back
//!   only the directions of the pods that it selects, as `model/waiting.rs` says; all
//!   else goes on;
//! - where very many policies change at once, or count again, a plan takes up some of them, and
//!   the next ones the others, as `model/queue.rs` says; and so with profiles that go, as
//!   `model/profiles.rs` says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::object::Event;
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::node::Node;
use tweed_core::object::pod::Pod;
use tweed_core::problem::Problem;

use super::model::Model;
use super::model::index::{Index, PolicyKinds};
use super::model::local::{LocalPod, LocalPods, PolicyKey};
use super::model::nodes::NodeIndex;
use super::model::pods::PodScope;
use super::model::verdicts::Direction;
use super::model::wants::Wants;
use super::table::Table;
use super::table::desired::{Delta, Desired};

/// How the plan of now differs from the last one, which is
/// [`PolicyPlanner::desired`].
pub type Step = tweed_component::Step<Delta>;

/// The planner of policy of one node.
#[derive(Debug)]
pub struct PolicyPlanner {
    pub(super) index: Index,
    pub(super) model: Model,
    table: Table,
    /// Whether a plan was made.
    planned: bool,
    /// What the last attempt to plan lacked.
    held: Vec<String>,
    /// The policies that these sentences are about, if it made a plan.
    held_policies: Vec<PolicyKey>,
    /// Whether it made no plan for that.
    holds_all: bool,
    /// The pods that an open plan is to be made for.
    begins_with: Option<BTreeMap<IpAddr, Option<LocalPod>>>,
}

impl PolicyPlanner {
    /// A planner that knows nothing yet.
    #[must_use]
    pub fn new(node_name: &str) -> Self {
        Self {
            index: Index::new(node_name),
            model: Model::default(),
            table: Table::default(),
            planned: false,
            held: Vec::new(),
            held_policies: Vec::new(),
            holds_all: false,
            begins_with: None,
        }
    }

    /// There are policies now, and the kernel has none: the next plan is an open one. These
    /// pods had the local addresses before any ADD waited to be enforced; what gets an address
    /// after that is isolated until it is enforced, whatever is not listed yet.
    pub fn begin(&mut self, pods: BTreeMap<IpAddr, Option<LocalPod>>) {
        self.begins_with = Some(pods);
    }

    /// The kernel has policies of these kinds from before: no plan is made without such a
    /// kind, even while it cannot be read.
    pub fn keep(&mut self, kinds: PolicyKinds) {
        self.index.kept = kinds;
    }

    /// The kinds of which the kernel has policies, or will have after the next plan.
    #[must_use]
    pub fn policy_kinds(&self) -> PolicyKinds {
        self.index.policy_kinds()
    }

    /// Takes an event of the watch of Namespaces in. True if anything changed.
    pub fn apply_namespaces(&mut self, event: Event<Namespace>) -> bool {
        self.index.apply_namespaces(event)
    }

    /// The watch of Namespaces was stopped: they are forgotten. True if anything changed.
    pub fn drop_namespaces(&mut self) -> bool {
        let namespaces = std::mem::take(&mut self.index.namespaces);
        namespaces.is_complete()
    }

    /// Takes an event of a watch of pods in. True if anything changed.
    pub fn apply_pods(&mut self, scope: &PodScope, event: Event<Pod>) -> bool {
        self.index.pods.apply(scope, event)
    }

    /// A watch of pods was stopped: what only it gave is forgotten. True if anything
    /// changed.
    pub fn drop_scope(&mut self, scope: &PodScope) -> bool {
        self.index.pods.drop_scope(scope)
    }

    /// Takes an event of the watch of NetworkPolicies in. True if anything changed.
    pub fn apply_network_policies(&mut self, event: Event<NetworkPolicy>) -> bool {
        self.index.apply_network_policies(event)
    }

    /// Takes an event of the watch of ClusterNetworkPolicies in. True if anything
    /// changed. Where the API server does not have them, a list without objects is to
    /// be given.
    pub fn apply_cluster_network_policies(&mut self, event: Event<ClusterNetworkPolicy>) -> bool {
        self.index.cluster_policies.apply(event)
    }

    /// Sets all Nodes, each with those of its pod CIDRs that are accepted: an address of a
    /// Pod counts only inside those of its Node. True if anything changed.
    pub fn set_nodes<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = (&'a Node, Vec<IpNetwork>)>,
    ) -> bool {
        self.index.nodes.replace(nodes)
    }

    /// Forgets the Nodes; no plan is made until they are set again.
    pub fn drop_nodes(&mut self) {
        self.index.nodes = NodeIndex::default();
    }

    /// Sets the local addresses. True if anything changed.
    pub fn set_local(&mut self, local: LocalPods) -> bool {
        self.index.set_local(local)
    }

    /// The pod of a local address; `None` if no record has the address.
    #[must_use]
    pub fn local_pod(&self, address: IpAddr) -> Option<Option<&LocalPod>> {
        self.index.local_pod(address)
    }

    /// What should be watched, as of the last [`PolicyPlanner::plan`].
    #[must_use]
    pub fn wants(&self) -> Wants {
        if !self.index.any_policy() {
            return Wants::default();
        }
        let others = self.model.peers.union(&self.model.kept).cloned();
        Wants {
            namespaces: true,
            pods: others.chain([PodScope::Own]).collect(),
        }
    }

    /// Plans what has changed since the last plan.
    pub fn plan(&mut self) -> Step {
        self.held.clear();
        self.held_policies.clear();
        self.holds_all = false;
        let opens = self.open();
        let missing = self.index.missing_policies();
        if !missing.is_empty() {
            return self.hold(missing, opens);
        }
        if !self.index.any_policy() {
            self.begins_with = None;
            let was_active = self.desired().verdicts.active;
            self.model = self.model.anew();
            self.table = Table::default();
            let planned = std::mem::replace(&mut self.planned, true);
            return if planned && !was_active {
                Step::Unchanged
            } else {
                Step::Full
            };
        }
        let missing = self.index.missing_subjects();
        if !missing.is_empty() {
            return self.hold(missing, opens);
        }
        self.model
            .select(&mut self.index, &self.table.desired().verdicts);
        if !self.model.has_plan() {
            let missing = self.index.missing_peers(&self.model.peers);
            if !missing.is_empty() {
                return self.hold(missing, opens);
            }
        }
        self.planned = true;
        self.held = self.model.waiting_texts(None);
        self.held_policies = { self.model.waiting(None).into_keys() }.cloned().collect();
        let change = (self.model).update(&mut self.index, self.table.verdicts_mut());
        match self.table.follow(change) {
            None => Step::Full,
            Some(_) if opens => Step::Full,
            Some(delta) if delta.is_empty() => Step::Unchanged,
            Some(delta) => Step::Delta(Box::new(delta)),
        }
    }

    /// Makes an open plan if it is time for one. Says whether it did.
    fn open(&mut self) -> bool {
        if self.model.has_plan() {
            self.begins_with = None;
        }
        let is_due = self.begins_with.is_some() && self.index.any_policy();
        let (Some(local), true) = (&self.index.local, is_due) else {
            return false;
        };
        let pods = self.begins_with.take().unwrap_or_default();
        self.model.open(self.table.verdicts_mut(), local, pods);
        true
    }

    /// The last plan stays, but for addresses that have gone to other pods since: these
    /// would be enforced as the pods before them. Or it `opens`.
    fn hold(&mut self, missing: Vec<String>, opens: bool) -> Step {
        self.held.clone_from(&missing);
        self.holds_all = true;
        if opens {
            return Step::Full;
        }
        let change = (self.model).withdraw(&self.index, self.table.verdicts_mut());
        match change.and_then(|change| self.table.follow(Some(change))) {
            Some(delta) => Step::Delta(Box::new(delta)),
            None => Step::Hold(missing),
        }
    }

    /// What the last [`PolicyPlanner::plan`] lacked: a sentence for each policy that waits
    /// or, if it made no plan, for each thing that is not known. What it took from the plan
    /// before may still be a step.
    #[must_use]
    pub fn held(&self) -> &[String] {
        &self.held
    }

    /// The policies that wait, in the order of [`PolicyPlanner::held`]; none if no plan was
    /// made. What they wait for may be another thing each time.
    #[must_use]
    pub fn held_policies(&self) -> &[PolicyKey] {
        &self.held_policies
    }

    /// Whether the last [`PolicyPlanner::plan`] made no plan for what it lacked.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        self.holds_all
    }

    /// A sentence for each policy that selects the pod of a local address in a direction and
    /// waits, so that the rules before still count.
    #[must_use]
    pub fn waiting_texts(&self, local: IpAddr, direction: Direction) -> Vec<String> {
        self.model.waiting_texts(Some((local, direction)))
    }

    /// The same for packets of one peer, about which rules are certain if it is a pod that has
    /// been listed.
    pub(super) fn waiting_about(
        &self,
        local: IpAddr,
        direction: Direction,
        peer: IpAddr,
    ) -> Vec<String> {
        let is_listed = self.index.pods.at(peer, &self.index.nodes).is_some();
        if is_listed {
            return Vec::new();
        }
        self.waiting_texts(local, direction)
    }

    /// Whether the next [`PolicyPlanner::plan`] has something to do though nothing changes:
    /// policies wait for their turn, or profiles that nobody has any more are still there.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.model.has_more()
    }

    /// How many policies wait for their turn, which they did not have in the last
    /// [`PolicyPlanner::plan`]: the next ones take them up.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.model.queue.len()
    }

    /// How many NetworkPolicies and how many ClusterNetworkPolicies there are, those included
    /// that stay in force in namespaces that are being deleted.
    #[must_use]
    pub fn policies(&self) -> (usize, usize) {
        let network = self.index.network_policies().count();
        (network, self.index.cluster_policies.objects().len())
    }

    /// The last plan.
    #[must_use]
    pub fn desired(&self) -> &Desired {
        self.table.desired()
    }

    /// What of the policies in force here cannot be represented.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        self.model.problems()
    }

    /// The names of the policies that apply to a pod of this node.
    #[must_use]
    pub fn in_force(&self) -> BTreeSet<PolicyKey> {
        self.model.in_force()
    }
}
