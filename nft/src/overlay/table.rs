//! The overlay's table in the kernel.

use std::collections::BTreeSet;
use std::path::Path;

use tweed_netlink::nf::object::TableKey;
use tweed_planner::overlay::desired::{Ruleset, RulesetDelta};

use super::inner::{self, InnerPrefix};
use super::{changes, contents, declarations, skeleton};
use crate::connection::Connection;
use crate::error::Error;
use crate::keeper::{Keeper, Outcome};
use crate::tables::{TABLE, Table};

/// The file in the run folder that remembers how the kernel shows the whole table.
const BASELINE: &str = "nft-skeleton";

/// The table `inet tweed`, for one thread in one network namespace.
pub struct OverlayTable {
    keeper: Keeper,
    /// Whether dropped packets are logged.
    log: bool,
    /// Which sets of sources inside of VXLAN the table was last made with.
    prefixes: BTreeSet<InnerPrefix>,
}

impl OverlayTable {
    /// Changes nothing yet. `run_dir` must exist. With `log` packets are logged before they
    /// are dropped.
    pub fn new(run_dir: &Path, log: bool) -> Self {
        Self {
            keeper: Keeper::new(TABLE, &run_dir.join(BASELINE)),
            log,
            prefixes: BTreeSet::new(),
        }
    }
}

impl Table for OverlayTable {
    type Desired = Ruleset;
    type Delta = RulesetDelta;

    const KEY: TableKey<'static> = TABLE;

    fn reconcile(
        &mut self,
        nft: &mut Connection,
        desired: &Ruleset,
        force_observe: bool,
    ) -> Result<Outcome, Error> {
        self.prefixes = inner::prefixes(desired);
        let contents = contents(&self.prefixes, desired);
        let skeleton = skeleton(desired, self.log);
        (self.keeper).reconcile(nft, &skeleton, contents, None, force_observe)
    }

    /// A set whose last element goes stays until [`Self::reconcile`].
    fn follow(
        &mut self,
        nft: &mut Connection,
        delta: &RulesetDelta,
    ) -> Result<Option<Outcome>, Error> {
        let prefixes = &self.prefixes;
        let mut added = delta.vxlan_sources.added.keys();
        if !added.all(|(_, inner)| prefixes.contains(&inner.into())) {
            return Ok(None);
        }
        let changes = changes(prefixes, delta);
        self.keeper.follow(nft, &declarations(prefixes), [changes])
    }

    fn keeper(&mut self) -> &mut Keeper {
        &mut self.keeper
    }

    fn remove(&mut self, nft: &mut Connection) -> Result<Outcome, Error> {
        self.keeper.remove(nft)
    }
}
