//! From a change of the plan to the kernel, where all that was asked for before
//! is there: only what changes is compared and written.

use std::collections::{BTreeMap, BTreeSet};

use tweed_netlink::Error;

use super::change::Kind;
use super::state::Mirror;
use super::wanted::Wanted;
use super::{Kernel, device, diff};
use tweed_planner::overlay::Delta;
use tweed_planner::overlay::desired::{Desired, RouteKey};

/// What it came to.
#[derive(Debug, Default)]
pub struct Followed {
    /// Writes, by kind.
    pub written: BTreeMap<Kind, u64>,
    /// Objects that are as they should be, by kind, where that has changed.
    pub objects: BTreeMap<Kind, usize>,
}

impl Kernel {
    /// Makes the kernel follow `delta`, which led to `desired`. What the plan
    /// before asked for must be there, as [`Kernel::converge`] left it, with
    /// the same `kept`. None if it is not as simple as that: then
    /// [`Kernel::converge`] has to look at everything.
    ///
    /// # Errors
    /// When the kernel's socket fails.
    pub fn follow(
        &mut self,
        desired: &Desired,
        delta: &Delta,
        kept: &BTreeSet<RouteKey>,
    ) -> Result<Option<Followed>, Error> {
        let device = device::plan(&self.mirror, desired.vxlan.as_ref());
        if !device.is_done() {
            return Ok(None);
        }
        let host = self.mirror.host_facts();
        let removed = Desired {
            routes: delta.routes.removed.clone(),
            neighbours: delta.neighbours.removed.clone(),
            fdb: delta.fdb.removed.clone(),
            ..Desired::default()
        };
        let added = Desired {
            routes: delta.routes.added.clone(),
            neighbours: delta.neighbours.added.clone(),
            fdb: delta.fdb.added.clone(),
            ..Desired::default()
        };
        let (before, _) = Wanted::resolve(&removed, device.index, &host);
        let (mut wanted, problems) = Wanted::resolve(&added, device.index, &host);
        if !problems.is_empty() {
            return Ok(None);
        }
        wanted.kept.clone_from(kept);
        let changes = diff::tables(&self.mirror.part(&before, &wanted), &wanted);
        let mut followed = Followed::default();
        for change in &changes {
            *followed.written.entry(change.kind()).or_default() += 1;
        }
        let refusals = self.write(changes)?;
        let left = diff::tables(&self.mirror.part(&before, &wanted), &wanted);
        if !refusals.is_empty() || !left.is_empty() {
            self.doubt(super::notice::Part::ALL);
            return Ok(None);
        }
        followed.objects = BTreeMap::from([
            (Kind::Route, desired.routes.len()),
            (Kind::Neighbour, desired.neighbours.len()),
            (Kind::Fdb, desired.fdb.len()),
        ]);
        Ok(Some(followed))
    }
}

impl Mirror {
    /// As much of it as has a key of `before` or `after`, with the links that
    /// its routes lead to.
    fn part(&self, before: &Wanted, after: &Wanted) -> Self {
        let mut part = Self::default();
        for key in before.routes.keys().chain(after.routes.keys()) {
            let routes = self.routes_with(key);
            if routes.is_empty() {
                continue;
            }
            for link in routes
                .iter()
                .filter_map(|route| self.links.get(&route.out?))
            {
                part.links.insert(link.index, link.clone());
            }
            part.routes.insert(*key, routes.to_vec());
        }
        for key in before.neighbours.keys().chain(after.neighbours.keys()) {
            part.neighbours
                .extend(self.neighbours.get(key).map(|mac| (*key, *mac)));
        }
        for key in before.fdb.keys().chain(after.fdb.keys()) {
            part.fdb
                .extend(self.fdb.get(key).map(|entries| (*key, entries.clone())));
        }
        part
    }
}
