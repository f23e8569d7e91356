//! A change of the plan to the kernel, where everything that was planned before
//! is there: only what changes is compared and written.

use std::collections::{BTreeMap, BTreeSet};

use tweed_core::keyed;
use tweed_netlink::Error;
use tweed_planner::overlay::Delta;
use tweed_planner::overlay::desired::{Desired, RouteKey};

use super::key::{FdbKey, NeighbourKey};
use super::mirror::{Mirror, MirrorPart};
use super::resolved::Resolved;
use super::{Kernel, device, diff};
use crate::reconcile::outcome::{ObjectKind, Outcome};

impl Kernel {
    /// Applies `delta`, which made `desired` of the plan before. What that
    /// planned must be there, as [`Kernel::converge`] left it, and nothing else but
    /// routes with the keys in `kept`. None if more than the delta has to be compared: then
    /// [`Kernel::converge`] has to follow.
    ///
    /// # Errors
    /// When the kernel's socket fails.
    pub(super) fn apply_delta(
        &mut self,
        desired: &Desired,
        delta: &Delta,
        kept: &BTreeSet<RouteKey>,
    ) -> Result<Option<Outcome>, Error> {
        let device = device::plan(&self.mirror, desired.vxlan.as_ref());
        if !device.is_done() {
            return Ok(None);
        }
        let added = Desired {
            routes: delta.routes.added.clone(),
            neighbours: delta.neighbours.added.clone(),
            fdb: delta.fdb.added.clone(),
            ..Desired::default()
        };
        let host = self.mirror.host_facts();
        let (mut added, problems) = Resolved::resolve(&added, device.index, &host);
        if !problems.is_empty() {
            return Ok(None);
        }
        added.kept.clone_from(kept);
        let left = |mirror: &Mirror| diff::tables(&mirror.part(delta, device.index), &added);
        let mut outcome = self.write(left(&self.mirror))?;
        if outcome.failed() || !left(&self.mirror).is_empty() {
            self.invalidate(MirrorPart::COMPARED);
            return Ok(None);
        }
        outcome.problems = self.foreign_problems(desired, kept);
        outcome.objects = BTreeMap::from([
            (ObjectKind::Route, desired.routes.len()),
            (ObjectKind::Neighbour, desired.neighbours.len()),
            (ObjectKind::Fdb, desired.fdb.len()),
        ]);
        Ok(Some(outcome))
    }
}

impl Mirror {
    /// As much of it as `delta` changes, with the links of the routes. `device` is
    /// the index of the VXLAN device.
    fn part(&self, delta: &Delta, device: Option<u32>) -> Self {
        let routes = part(&self.routes, &delta.routes, |key| Some(*key));
        let links = (routes.values().flatten()).filter_map(|route| self.links.get(&route.out?));
        let neighbour = |ip: &_| device.map(|device| NeighbourKey { device, ip: *ip });
        let fdb = |mac: &_| device.map(|device| FdbKey { device, mac: *mac });
        Self {
            links: links.map(|link| (link.index, link.clone())).collect(),
            neighbours: part(&self.neighbours, &delta.neighbours, neighbour),
            fdb: part(&self.fdb, &delta.fdb, fdb),
            routes,
            ..Self::default()
        }
    }
}

/// The entries of `table` under the keys that `delta` changes; `key_of` gives the
/// key in the table.
fn part<P, K: Ord, V: Clone, W>(
    table: &BTreeMap<K, V>,
    delta: &keyed::Delta<P, W>,
    key_of: impl Fn(&P) -> Option<K>,
) -> BTreeMap<K, V> {
    let keys = (delta.removed.keys().chain(delta.added.keys())).filter_map(key_of);
    keys.filter_map(|key| table.get(&key).cloned().map(|value| (key, value)))
        .collect()
}
