//! Policies: gives the planner what this machine knows, has it plan, and knows how far their
//! table is.
//!
//! How data goes through: sources fill the [`PolicyIndex`]; the local addresses come from
//! the records of the stores, and the Nodes from their store. The planner says what the
//! sets of the table should hold, or that it holds because something is not listed yet.
//! [`super::tables`] writes it. What has to be watched is said anew after each plan.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnetwork::IpNetwork;
use tokio::sync::watch;
use tweed_component::{Progress, Step};
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_core::version::Version;
use tweed_nft::policy::PolicyTable;
use tweed_planner::overlay::{Network, OverlayPlanner, cluster::Cluster};
use tweed_planner::policy::desired::Desired;
use tweed_planner::policy::explain::{not_listed, waiting};
use tweed_planner::policy::verdicts::{DIRECTIONS, Direction};
use tweed_planner::policy::{Delta, LocalPods, PolicyKey, Wants};

use super::component::{Component, Facts};
use super::{kernel::Kernel, outcome::Outcome, pods::PodReconciler};
use crate::config::Config;
use crate::index::{PolicyIndex, policy::Collection};
use crate::publish::policy_marker::PolicyMarker;
use crate::serve::metrics::Metrics;
use crate::waiting_pods::WaitingPods;

/// With a plan in force, no policy is expected to wait for longer: nodes spread their
/// lists of pods over 20 s.
const LONG_HOLD: Duration = Duration::from_secs(30);

/// Has the planner of policies plan, and knows how far the table is.
pub struct PolicyReconciler {
    metrics: Metrics,
    marker: PolicyMarker,
    wants: watch::Sender<Wants>,
    /// What it does to the node that policies are not known.
    unknown: Effect,
    /// The Nodes that the planner was last given, and how their claims were decided.
    nodes: Option<(Version, Version)>,
    progress: Progress,
    /// Whether a pod that was added can only be enforced by a whole reconcile.
    pub enforces_later: bool,
    /// Whether the table has held a plan of this run for which nothing was missing.
    complete: bool,
    /// Which policies wait or, without a plan, what is not known; since when, and for what
    /// it was last.
    held_since: BTreeMap<String, (Instant, String)>,
    /// This machine's own addresses within its pod CIDRs, as they were last read.
    own: BTreeSet<IpAddr>,
    /// Its pod CIDRs, as they were last known.
    cidrs: BTreeSet<IpNetwork>,
}

impl PolicyReconciler {
    /// `wants` gets what has to be watched. `was_ready` says whether the node was ready
    /// before this run: then it stays ready until it is known what the policies are.
    pub fn new(
        config: &Config,
        metrics: Metrics,
        wants: watch::Sender<Wants>,
        was_ready: bool,
    ) -> Self {
        Self {
            metrics,
            marker: PolicyMarker::new(&config.run_dir),
            wants,
            unknown: if was_ready {
                Effect::Warning
            } else {
                Effect::NewPods
            },
            nodes: None,
            progress: Progress::Unknown,
            enforces_later: false,
            complete: false,
            held_since: BTreeMap::new(),
            own: BTreeSet::new(),
            cidrs: BTreeSet::new(),
        }
    }

    /// Tells the planner what an earlier run has left in the kernel.
    pub fn keep_earlier(&self, index: &mut PolicyIndex) {
        index.planner.keep(self.marker.kinds());
    }

    /// Gives the planner the Nodes, if they are known and have changed, with the pod CIDRs
    /// that `overlay` accepts of each: a refused one would make pods of addresses that are
    /// not. Without policies the planner does not need them.
    fn update_nodes(
        &mut self,
        index: &mut PolicyIndex,
        cluster: &Cluster,
        overlay: &OverlayPlanner,
    ) {
        let versions = (cluster.version(), overlay.claims_version());
        if !index.has_policies() {
            if self.nodes.take().is_some() {
                index.planner.drop_nodes();
            }
        } else if cluster.size() > 0 && self.nodes != Some(versions) {
            self.nodes = Some(versions);
            let mut cidrs = overlay.pod_cidrs(cluster);
            let nodes = cluster.nodes();
            let accepted = nodes.map(|node| (node, cidrs.remove(&*node.name).unwrap_or_default()));
            index.planner.set_nodes(accepted);
        }
    }

    /// Has every ADD ask from now on whether its pod is enforced, if there are policies.
    /// This comes before the planner gets the local addresses: if no ADD has asked until
    /// now, the stores are read again, so that no record is missed of an ADD that has
    /// not asked. Where the kernel has no rules of policies, as `has_rules` says, the pods
    /// that were known before that and that nobody `asks` for are those of an open plan.
    fn mark(
        &mut self,
        index: &mut PolicyIndex,
        pods: &mut PodReconciler,
        asks: &WaitingPods,
        has_rules: impl FnOnce() -> bool,
    ) -> Outcome {
        if !index.has_policies() {
            return Outcome::default();
        }
        if !index.planner.desired().verdicts.active && !has_rules() {
            let asked = asks.addresses();
            let known = pods.addresses();
            let before = known.filter(|(address, _)| !asked.contains(address));
            index.planner.begin(before.collect());
        }
        match self.marker.set(index.planner.policy_kinds()) {
            Ok(true) => pods.read_stores(true),
            Ok(false) => Outcome::default(),
            Err(problem) => Outcome::of(vec![problem]),
        }
    }

    /// Gives the planner the local addresses: those of pods, and this machine's own
    /// within its pod CIDRs. Before these are known, nothing: a table without them would
    /// isolate nobody.
    fn update_local(
        &mut self,
        index: &mut PolicyIndex,
        pods: &PodReconciler,
        network: Option<&Network>,
        kernel: &Kernel,
    ) {
        if let Some(network) = network {
            self.cidrs = network.pod_cidrs.iter().copied().collect();
        }
        if self.cidrs.is_empty() {
            return;
        }
        // After a failure the mirror is empty, as no machine is: the node's own addresses
        // would be isolated.
        let mirror = kernel.mirror();
        if !mirror.links.is_empty() {
            let holds = |ip: &IpAddr| network.is_some_and(|network| network.holds(*ip));
            let addresses = mirror.addresses.keys().map(|key| key.network.ip());
            self.own = addresses.filter(holds).collect();
        }
        let planned = network.map(|network| &network.desired.vxlan_addresses);
        // The device's may not have been written yet.
        let device = planned.into_iter().flatten().map(|address| address.ip());
        index.planner.set_local(LocalPods {
            cidrs: self.cidrs.clone(),
            pods: pods.addresses().collect(),
            own: self.own.iter().copied().chain(device).collect(),
        });
    }

    /// Plans, and says what has to be watched from now on.
    fn plan_at(&mut self, index: &mut PolicyIndex, now: Instant) -> Step<Delta> {
        let step = index.planner.plan();
        self.metrics
            .policies_queued
            .set(index.planner.queued() as u64);
        let wants = index.planner.wants();
        self.wants.send_if_modified(|now| {
            let changed = *now != wants;
            *now = wants;
            changed
        });
        let policies = index.planner.held_policies();
        let held = index.planner.held().iter().enumerate().map(|(at, text)| {
            let policy = policies.get(at).map(PolicyKey::to_string);
            let who = policy.unwrap_or_else(|| text.clone());
            let known = self.held_since.get(&who);
            let since = known.map_or(now, |(since, _)| *since);
            (who, (since, text.clone()))
        });
        self.held_since = held.collect();
        step
    }

    /// Whether there is a plan with policies, and the table holds all of it.
    pub fn is_in_force(&self, index: &PolicyIndex) -> bool {
        self.progress == Progress::InForce && index.planner.desired().verdicts.active
    }

    /// The table holds what is planned. Without policies no ADD need ask any
    /// more; it is a problem if they still do. While the first plan is held, they ask
    /// already.
    fn came_in_force(&mut self, index: &PolicyIndex) -> Option<Problem> {
        self.progress.written();
        let is_written = self.progress == Progress::InForce;
        self.complete |= is_written && index.planner.held().is_empty();
        let is_off =
            is_written && !index.planner.desired().verdicts.active && !index.has_policies();
        is_off.then(|| self.marker.clear().err()).flatten()
    }

    /// Whether the table holds the last plan, and has held a complete one.
    fn follows(&self) -> bool {
        self.progress == Progress::InForce && self.complete
    }

    /// What the planner waits for and that is a problem. After a complete plan it mostly is
    /// none: what a new policy asks for is being listed.
    fn held_problems(&self, now: Instant) -> Vec<String> {
        let follows = self.follows();
        let is_long = |since: &Instant| now.saturating_duration_since(*since) > LONG_HOLD;
        let held = self.held_since.values();
        let shown = held.filter(|(since, _)| !follows || is_long(since));
        shown.map(|(_, text)| text.clone()).collect()
    }
}

impl Component for PolicyReconciler {
    type Objects = Collection;
    type Table = PolicyTable;

    fn progress(&self) -> Progress {
        self.progress
    }

    fn progress_mut(&mut self) -> &mut Progress {
        &mut self.progress
    }

    fn desired(index: &PolicyIndex) -> &Desired {
        index.planner.desired()
    }

    fn can_follow(&self, index: &PolicyIndex) -> bool {
        index.has_changed() && self.is_in_force(index) && !self.enforces_later
    }

    fn prepare(&mut self, index: &mut PolicyIndex, facts: &mut Facts<'_>) -> Outcome {
        let (asks, tables) = (facts.state.waiting_pods(), &mut *facts.tables);
        self.mark(index, facts.pods, asks, || tables.has_policies())
    }

    fn plan(&mut self, index: &mut PolicyIndex, facts: &mut Facts<'_>) -> Step<Delta> {
        let network = facts.overlay.network().map(Arc::as_ref);
        self.update_nodes(index, &facts.state.read().nodes, facts.overlay);
        self.update_local(index, facts.pods, network, facts.kernel);
        self.plan_at(index, Instant::now())
    }

    fn has_more(index: &PolicyIndex) -> bool {
        index.planner.has_more()
    }

    fn written(&mut self, index: &PolicyIndex, _: &mut Facts<'_>, _: bool) -> Option<Problem> {
        self.came_in_force(index)
    }

    fn report(&self, index: &PolicyIndex, now: Instant) -> Outcome {
        let desired = index.planner.desired();
        for direction in DIRECTIONS {
            let policed = desired.verdicts.policed.get(direction).len();
            self.metrics.set_policed(word(direction), policed);
        }
        self.metrics.policy_elements.set(desired.elements() as u64);
        for (kind, count) in index.policies() {
            self.metrics.set_policies(kind, count);
        }
        let effect = if self.follows() {
            Effect::Warning
        } else {
            self.unknown
        };
        let held = self.held_problems(now);
        let text = if index.planner.holds_all() {
            not_listed(&held)
        } else {
            waiting(&held)
        };
        let is_told = !held.is_empty() && !index.any_lost();
        let held = is_told
            .then(|| Problem::new(ProblemKind::PoliciesNotListed, "policies", text))
            .map(|problem| problem.with_effect(effect));
        let unreadable = index.unreadable().map(|(policies_missing, problem)| {
            problem.with_effect(if policies_missing {
                self.unknown
            } else {
                effect
            })
        });
        let of_policies = index.planner.problems().iter().cloned();
        Outcome::of(unreadable.chain(held).chain(of_policies).collect())
    }

    fn has_reported(&self, index: &PolicyIndex) -> bool {
        let is_written = self.progress == Progress::InForce;
        let is_complete = self.complete || index.planner.held().is_empty();
        is_written && is_complete && !index.planner.holds_all() || index.any_lost()
    }
}

/// How metrics call a direction.
fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "ingress",
        Direction::Out => "egress",
    }
}

#[cfg(test)]
mod tests;
