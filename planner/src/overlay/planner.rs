//! The plan that is in force, and whether there is a newer one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Config;
use crate::overlay::cluster::Cluster;
use crate::overlay::delta::{self, Delta, Standing};
use crate::overlay::host::HostFacts;
use crate::overlay::{Network, plan};
use crate::store::{Index, Touched};
use tweed_core::object::node::Node;
use tweed_core::problem::Problem;

/// The last plan, and what it was made from.
#[derive(Debug, Default)]
pub struct OverlayPlanner {
    /// Grows with each network that differs from the one before.
    number: u64,
    /// What the inbox was at; none before the first plan.
    generation: Option<u64>,
    host: HostFacts,
    /// The last network that a plan had: it is kept while a plan holds.
    network: Option<Arc<Network>>,
    /// Whether the last plan had one.
    current: bool,
    /// What makes the network of this number of the one before it, where that
    /// is known.
    delta: Option<Delta>,
    /// Whether the last plan refused a claim.
    contested: bool,
    /// What all Nodes claim, once it was asked for.
    standing: Option<Standing>,
    /// What is wrong with the list of Nodes.
    index_problems: Vec<Problem>,
    /// What is wrong with the plan.
    plan_problems: Vec<Problem>,
    /// How many Nodes there are.
    nodes: usize,
}

impl OverlayPlanner {
    /// Plans again, if the Nodes or this machine's own network have changed:
    /// for single Nodes that touch nobody else's claims only these.
    pub fn update(&mut self, config: &Config, index: &mut Index, generation: u64, host: HostFacts) {
        let same_host = self.generation.is_some() && self.host == host;
        if same_host && self.generation == Some(generation) {
            return;
        }
        self.generation = Some(generation);
        self.index_problems = index.problems();
        let touched = index.take_touched();
        self.host = host;
        let cluster = index.cluster();
        self.nodes = cluster.map_or(0, Cluster::size);
        let followed = match (cluster, touched) {
            (Some(cluster), Touched::Nodes(nodes)) if same_host => {
                self.follow(config, cluster, &nodes)
            }
            _ => false,
        };
        if !followed {
            self.plan_all(config, cluster);
        }
    }

    /// Looks up what all Nodes claim, for the next one that changes alone: with
    /// thousands of Nodes that takes milliseconds, which it would wait for.
    pub fn prepare(&mut self, index: &Index, generation: u64) {
        let followable = self.current && !self.contested && self.standing.is_none();
        if followable && self.generation == Some(generation) {
            let nodes = index.cluster().map(Cluster::nodes);
            self.standing = nodes.map(Standing::of);
        }
    }

    /// Grows with each network that differs from the one before.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the Nodes were at when this was last updated; none before that.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// The last network that a plan had: it is kept while a plan holds.
    #[must_use]
    pub fn network(&self) -> Option<&Arc<Network>> {
        self.network.as_ref()
    }

    /// Whether the last plan had a network.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.current
    }

    /// How many Nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// What is wrong with the Nodes, and with the plan.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.index_problems.iter().chain(&self.plan_problems)
    }

    /// What makes the network of now of the one of `number`, where that is
    /// known.
    pub fn delta_since(&self, number: u64) -> Option<&Delta> {
        (self.delta.as_ref()).filter(|_| number.checked_add(1) == Some(self.number))
    }

    /// Has the last plan follow the Nodes that have changed, each given as it
    /// was; false if all has to be planned.
    fn follow(
        &mut self,
        config: &Config,
        cluster: &Cluster,
        nodes: &BTreeMap<String, Option<Node>>,
    ) -> bool {
        if self.contested || !self.current {
            return false;
        }
        let Some(network) = &mut self.network else {
            return false;
        };
        let mut standing = self.standing.take().unwrap_or_else(|| {
            let same = cluster
                .nodes()
                .filter(|node| !nodes.contains_key(&node.name));
            Standing::of(same.chain(nodes.values().flatten()))
        });
        let mut all = Delta::default();
        // Nobody else holds it between two passes, so that this is no copy.
        let network = Arc::make_mut(network);
        for (name, before) in nodes {
            let after = cluster.other(name);
            let change = (before.as_ref(), after);
            let own = cluster.own();
            match delta::follow(config, own, &self.host, &mut standing, network, change) {
                Some(delta) => all.extend(delta),
                None => {
                    // What was followed until here belongs to no number.
                    self.number += 1;
                    self.delta = None;
                    return false;
                }
            }
        }
        if !all.is_empty() {
            self.number += 1;
            self.delta = Some(all);
        }
        self.standing = Some(standing);
        true
    }

    fn plan_all(&mut self, config: &Config, cluster: Option<&Cluster>) {
        self.standing = None;
        self.current = false;
        self.plan_problems.clear();
        let Some(cluster) = cluster else { return };
        let next = plan(config, cluster, &self.host);
        self.plan_problems = next.problems;
        self.contested = next.contested;
        if let Some(network) = next.network {
            self.current = true;
            if self.network.as_deref() != Some(&network) {
                self.number += 1;
                self.delta = None;
                self.network = Some(Arc::new(network));
            }
        }
    }
}

#[cfg(test)]
mod tests;
