//! The plan that is in force, and what makes it of the one before.

use std::{collections::BTreeMap, sync::Arc};

use tweed_core::object::{Object as _, ObjectKey};
use tweed_core::{object::node::Node, problem::Problem, version::Version};

use super::delta::{self, ClaimIndex, Delta};
use super::{cluster::Cluster, desired::Network, host::HostFacts, plan::plan};
use crate::{config::Config, store::Touched};

/// What a change of the inputs comes to.
#[derive(Debug)]
enum Change {
    /// Another plan of everything, and what is wrong.
    Full(Network, Vec<Problem>),
    /// What makes the plan of the last one; what is wrong is the same as before.
    Delta(Delta),
    /// Nothing is planned, because of these problems: the last plan stays.
    Hold(Vec<Problem>),
}

/// The last plan, and what it was made from.
#[derive(Debug)]
pub struct OverlayPlanner {
    config: Config,
    /// The version of the Nodes at the last update; none before that.
    planned: Option<Version>,
    host: HostFacts,
    /// The last network that a plan had: it is kept while a plan holds.
    network: Option<Arc<Network>>,
    version: Version,
    /// Whether the last plan had a network.
    current: bool,
    /// What makes the network of this version of the one before it, where that
    /// is known.
    delta: Option<Delta>,
    /// Whether the last plan refused a claim.
    contested: bool,
    /// What all Nodes claim, once it was asked for.
    claims: Option<ClaimIndex>,
    /// What is wrong with the list of Nodes.
    list_problems: Vec<Problem>,
    /// What is wrong with the plan.
    plan_problems: Vec<Problem>,
    /// How many Nodes there are.
    nodes: usize,
}

impl OverlayPlanner {
    /// A planner that has planned nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            planned: None,
            host: HostFacts::default(),
            network: None,
            version: Version::default(),
            current: false,
            delta: None,
            contested: false,
            claims: None,
            list_problems: Vec::new(),
            plan_problems: Vec::new(),
            nodes: 0,
        }
    }

    /// Plans again, if the Nodes or this machine's own network have changed: for
    /// single Nodes whose claims touch no other Node's, only these.
    pub fn update(&mut self, cluster: &mut Cluster, host: HostFacts) {
        let same_host = self.planned.is_some() && self.host == host;
        if same_host && !self.is_behind(cluster) {
            return;
        }
        self.planned = Some(cluster.version());
        self.host = host;
        self.list_problems = cluster.problems();
        self.nodes = cluster.size();
        let touched = cluster.take_touched();
        let touched = match same_host {
            true => touched,
            false => Touched::Everything,
        };
        let change = self.plan(cluster, touched);
        self.publish(change);
    }

    /// Whether the Nodes have changed since the last update.
    pub fn is_behind(&self, cluster: &Cluster) -> bool {
        self.planned != Some(cluster.version())
    }

    /// Looks up what all Nodes claim, for the next one that changes alone: with
    /// thousands of Nodes that takes milliseconds, which its plan would otherwise
    /// wait for.
    pub fn prepare(&mut self, cluster: &Cluster) {
        let useful = self.current && !self.contested && self.claims.is_none();
        if useful && !self.is_behind(cluster) {
            self.claims = Some(ClaimIndex::of(cluster.nodes()));
        }
    }

    /// Changes with each network that differs from the one before.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The last network that a plan had: it is kept while a plan holds.
    pub fn network(&self) -> Option<&Arc<Network>> {
        self.network.as_ref()
    }

    /// Whether the last plan had a network: false while it holds.
    pub fn is_current(&self) -> bool {
        self.current
    }

    /// How many Nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// What is wrong with the list of Nodes, and with the plan.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.list_problems.iter().chain(&self.plan_problems)
    }

    /// What makes the network of now of the one of `version`, where that is
    /// known.
    pub fn delta_since(&self, version: Version) -> Option<&Delta> {
        (self.delta.as_ref()).filter(|_| self.version.follows(version))
    }

    fn plan(&mut self, cluster: &Cluster, touched: Touched<Node>) -> Change {
        if let Touched::Objects(nodes) = touched
            && let Some(delta) = self.follow(cluster, &nodes)
        {
            return Change::Delta(delta);
        }
        self.claims = None;
        let Some(snapshot) = cluster.snapshot() else {
            // The problems of the list say why.
            return Change::Hold(Vec::new());
        };
        let plan = plan(&self.config, &snapshot, &self.host);
        self.contested = plan.contested;
        match plan.network {
            Some(network) => Change::Full(network, plan.problems),
            None => Change::Hold(plan.problems),
        }
    }

    /// What these Nodes change, each given as it was at the last plan; none if
    /// all has to be planned.
    fn follow(
        &mut self,
        cluster: &Cluster,
        nodes: &BTreeMap<ObjectKey, Option<Node>>,
    ) -> Option<Delta> {
        if self.contested || !self.current {
            return None;
        }
        let own = cluster.own()?;
        let network = self.network.as_mut()?;
        let mut claims = self.claims.take().unwrap_or_else(|| {
            let same = (cluster.nodes()).filter(|node| !nodes.contains_key(&node.key()));
            ClaimIndex::of(same.chain(nodes.values().flatten()))
        });
        // Nobody else holds it between two passes, so that this is no copy.
        let desired = &mut Arc::make_mut(network).desired;
        let mut all = Delta::default();
        for (key, before) in nodes {
            let change = (before.as_ref(), cluster.get(key));
            let step = delta::of_one_node(&self.config, own, &self.host, &mut claims, change)
                .filter(|step| step.starts_from(desired));
            let Some(step) = step else {
                // The network is that of no version until all is planned.
                self.version.bump();
                self.delta = None;
                return None;
            };
            step.apply(desired);
            all.extend(step);
        }
        self.claims = Some(claims);
        Some(all)
    }

    fn publish(&mut self, change: Change) {
        match change {
            Change::Full(network, problems) => {
                self.plan_problems = problems;
                self.current = true;
                if self.network.as_deref() != Some(&network) {
                    self.version.bump();
                    self.delta = None;
                    self.network = Some(Arc::new(network));
                }
            }
            Change::Delta(delta) if delta.is_empty() => {}
            Change::Delta(delta) => {
                self.version.bump();
                self.delta = Some(delta);
            }
            Change::Hold(problems) => {
                self.plan_problems = problems;
                self.current = false;
            }
        }
    }
}

#[cfg(test)]
mod tests;
