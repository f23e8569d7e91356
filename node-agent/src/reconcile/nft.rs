//! The reconciler of the table `inet tweed`.

use std::os::fd::{AsFd, BorrowedFd};
use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use tokio_util::sync::CancellationToken;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{keyed, version::Version};
use tweed_nft::{Error, Table};
use tweed_planner::overlay::desired::Ruleset;
use tweed_planner::overlay::{Network, OverlayPlanner};

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
    /// The links of pods that it agreed with then.
    pod_links: PodLinks,
}

/// The addresses of local pods, each with the index of its link.
pub type PodLinks = BTreeSet<(IpAddr, u32)>;

impl NftReconciler {
    /// Opens nothing yet.
    pub fn new(config: &Arc<Config>, stop: CancellationToken) -> Self {
        Self {
            config: Arc::clone(config),
            stop,
            table: None,
            agreed: None,
            pod_links: PodLinks::new(),
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

    /// Makes the table as `network`, the planner's last, and the local pods say.
    /// With `resync` the table is read even if no change of it is known.
    pub fn reconcile(
        &mut self,
        planner: &OverlayPlanner,
        network: &Network,
        pod_links: &PodLinks,
        resync: bool,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let agreed = self.agreed.take();
        let sides = agreed.filter(|_| !resync).and_then(|version| {
            let (mut removed, mut added) = sides(planner, version)?;
            removed.pod_links = &self.pod_links - pod_links;
            added.pod_links = pod_links - &self.pod_links;
            Some((removed, added))
        });
        match self.write(network, pod_links, sides, resync) {
            Ok(repaired) => {
                self.agreed = Some(planner.version());
                self.pod_links.clone_from(pod_links);
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

    /// Gives the number of objects that were put back. `sides` is what the sets are
    /// known to differ by from what they were left with: elements to remove, and to
    /// add.
    fn write(
        &mut self,
        network: &Network,
        pod_links: &PodLinks,
        sides: Option<(Ruleset, Ruleset)>,
        resync: bool,
    ) -> Result<usize, Error> {
        let table = self.open()?;
        if let Some((removed, added)) = sides {
            let nothing = Ruleset::default();
            if removed == nothing && added == nothing && !table.drain_notifications()? {
                return Ok(0);
            }
            if let Some(outcome) = table.follow(&removed, &added)? {
                return Ok(outcome.repaired);
            }
        }
        let ruleset = Ruleset {
            pod_links: pod_links.clone(),
            ..network.desired.ruleset.clone()
        };
        Ok(table.reconcile(&ruleset, resync)?.repaired)
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

/// What the plan of now removes from the sets since `agreed`, and what it adds,
/// where that is known.
fn sides(planner: &OverlayPlanner, agreed: Version) -> Option<(Ruleset, Ruleset)> {
    if agreed == planner.version() {
        return Some((Ruleset::default(), Ruleset::default()));
    }
    let delta = planner.delta_since(agreed)?;
    let side = |added: bool| Ruleset {
        cluster_cidrs: keys(&delta.cluster_cidrs, added),
        node_addresses: keys(&delta.node_addresses, added),
        underlay_addresses: keys(&delta.underlay_addresses, added),
        vxlan_sources: keys(&delta.vxlan_sources, added),
        ..Ruleset::default()
    };
    Some((side(false), side(true)))
}

fn keys<K: Ord + Copy>(delta: &keyed::Delta<K, ()>, added: bool) -> BTreeSet<K> {
    let entries = if added { &delta.added } else { &delta.removed };
    entries.keys().copied().collect()
}
