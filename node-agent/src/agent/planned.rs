//! The plan that is in force, and whether there is a newer one.

use std::sync::Arc;

use super::inbox::Told;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::plan::host::HostFacts;
use crate::plan::{Network, plan};
use crate::problem::Problem;

/// The last plan, and what it was made from.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// Grows with each network that differs from the one before.
    pub(super) number: u64,
    /// What the inbox was at; none before the first plan.
    pub(super) generation: Option<u64>,
    host: HostFacts,
    /// The last network that a plan had: it is kept while a plan holds.
    pub(super) network: Option<Arc<Network>>,
    /// Whether the last plan had one.
    pub(super) current: bool,
    /// What is wrong with the Nodes, and with the plan.
    pub(super) problems: Vec<Problem>,
    /// How many Nodes there are.
    pub(super) nodes: usize,
    /// Whether the source has said anything that counts.
    pub(super) spoken: bool,
}

impl Planned {
    /// Plans again, if the Nodes or this machine's own network have changed.
    pub(super) fn renew(&mut self, config: &Config, told: &Told, host: HostFacts) {
        if self.generation == Some(told.generation) && self.host == host {
            return;
        }
        self.generation = Some(told.generation);
        self.spoken = told.spoken;
        self.problems = told.index.problems();
        self.nodes = told.index.cluster().map_or(0, Cluster::size);
        self.current = false;
        if let Some(cluster) = told.index.cluster() {
            let next = plan(config, cluster, &host);
            self.problems.extend(next.problems);
            if let Some(network) = next.network {
                self.current = true;
                if self.network.as_deref() != Some(&network) {
                    self.number += 1;
                    self.network = Some(Arc::new(network));
                }
            }
        }
        self.host = host;
    }
}
