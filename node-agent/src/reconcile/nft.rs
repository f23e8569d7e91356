//! The reconciler of the table `inet tweed`.

use std::os::fd::{AsFd, BorrowedFd};
use std::{collections::BTreeSet, sync::Arc};

use tokio_util::sync::CancellationToken;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{keyed, version::Version};
use tweed_nft::{Error, Table};
use tweed_planner::overlay::desired::Ruleset;
use tweed_planner::overlay::{Delta, Network, OverlayPlanner};

use super::outcome::{ObjectKind, Outcome};
use crate::config::Config;

/// Keeps the table as planned.
pub struct NftReconciler {
    config: Arc<Config>,
    /// Cancelled when the agent is to end: a program `nft` that hangs is then
    /// not waited for.
    stop: CancellationToken,
    /// None until it could be opened.
    table: Option<Table>,
    /// Version of the plan that the table agreed with when last nothing failed.
    agreed: Option<Version>,
}

impl NftReconciler {
    /// Opens nothing yet.
    pub fn new(config: &Arc<Config>, stop: CancellationToken) -> Self {
        Self {
            config: Arc::clone(config),
            stop,
            table: None,
            agreed: None,
        }
    }

    /// Readable when there are notifications; none before the table is open.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.table.as_ref().map(AsFd::as_fd)
    }

    /// Reads the notifications that have come, and says whether there is
    /// anything to reconcile.
    pub fn has_changes(&mut self) -> bool {
        let changed = |table: &mut Table| table.drain_notifications().unwrap_or(true);
        self.table.as_mut().is_some_and(changed)
    }

    /// Whether this kernel has nftables and the table was opened.
    pub fn is_open(&self) -> bool {
        self.table.is_some()
    }

    /// Makes the table as `network`, the planner's last, says. With `resync` the
    /// table is read even if no change of it is known.
    pub fn reconcile(
        &mut self,
        planner: &OverlayPlanner,
        network: &Network,
        resync: bool,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let agreed = self.agreed.take().filter(|_| !resync);
        match self.write(planner, network, agreed, resync) {
            Ok(repaired) => {
                self.agreed = Some(planner.version());
                outcome.wrote(ObjectKind::Nftables, repaired as u64);
            }
            Err(error) => outcome.fail(Problem::new(
                ProblemKind::Nftables,
                "inet tweed",
                error.to_string(),
            )),
        }
        outcome
    }

    /// Gives the number of objects that were put back.
    fn write(
        &mut self,
        planner: &OverlayPlanner,
        network: &Network,
        agreed: Option<Version>,
        resync: bool,
    ) -> Result<usize, Error> {
        let table = self.open()?;
        if agreed == Some(planner.version()) && !table.drain_notifications()? {
            return Ok(0);
        }
        let delta = agreed.and_then(|version| planner.delta_since(version));
        if let Some((removed, added)) = delta.map(sets)
            && let Some(outcome) = table.follow(&removed, &added)?
        {
            return Ok(outcome.repaired);
        }
        let outcome = table.reconcile(&network.desired.ruleset, resync)?;
        Ok(outcome.repaired)
    }

    fn open(&mut self) -> Result<&mut Table, Error> {
        match &mut self.table {
            Some(table) => Ok(table),
            empty => {
                let table = Table::open(&self.config.run_dir, &self.config.nft)?;
                Ok(empty.insert(table.stopped_by(self.stop.clone())))
            }
        }
    }
}

/// What `delta` removes from the sets of the table, and what it adds.
fn sets(delta: &Delta) -> (Ruleset, Ruleset) {
    let side = |added: bool| Ruleset {
        cluster_cidrs: keys(&delta.cluster_cidrs, added),
        node_addresses: keys(&delta.node_addresses, added),
        vxlan_sources: keys(&delta.vxlan_sources, added),
        ..Ruleset::default()
    };
    (side(false), side(true))
}

fn keys<K: Ord + Copy>(delta: &keyed::Delta<K, ()>, added: bool) -> BTreeSet<K> {
    let entries = if added { &delta.added } else { &delta.removed };
    entries.keys().copied().collect()
}
