//! The whole plan to the kernel: the device, its addresses, then what packets
//! look up, in this order, because each needs the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use ipnetwork::IpNetwork;
use tweed_core::problem::Problem;
use tweed_netlink::route::Route;
use tweed_netlink::{Error, owned};
use tweed_planner::overlay::desired::{Desired, Route as Way, RouteKey};

use super::change::{Change, route_beside, route_inside};
use super::{Kernel, device, diff};
use super::{mirror::MirrorPart, resolved::Resolved};
use crate::reconcile::outcome::{ObjectKind, Outcome, RefusedWrite};

/// Maximum number of attempts before the next reconcile: a write may be refused
/// because what was known of the kernel was old.
const MAX_ATTEMPTS: u32 = 3;

/// What [`Kernel::converge`] did and found.
#[derive(Debug, Default)]
pub(super) struct Converged {
    /// Writes, and what is wrong.
    pub(super) outcome: Outcome,
    /// Whether the mirror at the end is just as planned. What others changed
    /// meanwhile may be in it already, and is left to the next reconcile.
    pub(super) settled: bool,
    /// Whether every part of the plan could be written: what is wrong besides is only
    /// to be named.
    pub(super) complete: bool,
}

impl Kernel {
    /// Makes the kernel hold what `desired` says, and nothing else of tweed's
    /// except routes with the keys in `kept`. Where the kernel refuses only
    /// objects that `refused` names, it refused them in the reconcile before
    /// too: these are not tried again at once.
    ///
    /// # Errors
    /// When the kernel's socket fails.
    pub(super) fn converge(
        &mut self,
        desired: &Desired,
        kept: &BTreeSet<RouteKey>,
        refused: &BTreeSet<String>,
    ) -> Result<Converged, Error> {
        let mut converged = Converged::default();
        for _ in 0..MAX_ATTEMPTS {
            self.attempt(desired, kept, &mut converged)?;
            let outcome = &converged.outcome;
            let is_old = |write: &RefusedWrite| refused.contains(&write.error.object);
            let failed = outcome.failed();
            if converged.settled || (failed && outcome.refused.iter().all(is_old)) {
                break;
            }
            if failed {
                self.invalidate(MirrorPart::COMPARED);
            }
        }
        Ok(converged)
    }

    fn attempt(
        &mut self,
        desired: &Desired,
        kept: &BTreeSet<RouteKey>,
        converged: &mut Converged,
    ) -> Result<(), Error> {
        // Of the attempts before, only the writes still count.
        let mut outcome = Outcome {
            written: mem::take(&mut converged.outcome.written),
            names: mem::take(&mut converged.outcome.names),
            ..Outcome::default()
        };
        self.observe()?;
        let device = self.ensure_device(desired.vxlan.as_ref())?;
        let name = desired.vxlan.as_ref().map_or("", |device| &device.name);
        outcome.wrote(ObjectKind::Link, device.written, name);
        let device_failed = device.problem.is_some();
        self.observe()?;

        let host = self.mirror.host_facts();
        let (mut resolved, problems) = Resolved::resolve(desired, device.index, &host);
        resolved.kept.clone_from(kept);
        let is_whole = problems.is_empty();
        outcome.problems.extend(problems);
        if let Some(problem) = device.problem {
            outcome.fail(problem);
        }

        let addresses = diff::addresses(&self.mirror, &resolved);
        if addresses.iter().any(Change::is_removal) {
            // The kernel removes objects with an address without notification.
            self.invalidate([MirrorPart::Routes, MirrorPart::Neighbours]);
        }
        outcome.merge(self.write(addresses)?);
        self.observe()?;
        outcome.merge(self.write(diff::tables(&self.mirror, &resolved))?);

        // A device of an earlier VNI is removed when nothing uses it any more, whatever else
        // was refused.
        if !device_failed {
            let stale = device.stale.into_iter();
            let unused = stale.filter(|index| !diff::is_needed(&self.mirror, &resolved, *index));
            let remove = unused.map(|index| Change::RemoveLink { index }).collect();
            outcome.merge(self.write(remove)?);
        }
        self.observe()?;
        outcome
            .problems
            .extend(self.foreign_problems(desired, kept));
        let left = diff::diff(&self.mirror, &resolved);
        let device = device::plan(&self.mirror, desired.vxlan.as_ref());
        converged.settled = left.is_empty() && device.is_done();
        converged.complete = is_whole && !outcome.failed();
        outcome.objects = count(&resolved, &left);
        converged.outcome = outcome;
        Ok(())
    }

    /// What others do to what tweed wrote, which is there all the same: routes of theirs beside
    /// those of `desired` and of local pods or inside pod CIDRs, and a device without carrier.
    pub(super) fn foreign_problems(
        &self,
        desired: &Desired,
        kept: &BTreeSet<RouteKey>,
    ) -> Vec<Problem> {
        let is_ours = |key: &RouteKey| desired.routes.contains_key(key) || kept.contains(key);
        let (beside, others): (Vec<_>, Vec<_>) =
            (self.mirror.beside().into_iter()).partition(|(key, _)| is_ours(key));
        let routes = others.into_iter().flat_map(|(_, routes)| routes);
        let inside =
            routes.filter_map(|route| Some(route_inside(self.taken(desired, route)?, route)));
        let vxlan = desired.vxlan.as_ref();
        let carrier = vxlan.and_then(|want| device::carrier_problem(&self.mirror, want));
        { beside.iter() }
            .map(|(key, routes)| route_beside(key, routes))
            .chain(inside)
            .chain(carrier)
            .collect()
    }

    /// The pod CIDR that a route of somebody else takes packets from; none if it may: a link
    /// of tweed's, or a bridge with pods of another plugin in this node's own pod CIDR.
    fn taken(&self, desired: &Desired, route: &Route) -> Option<IpNetwork> {
        let link = route.out.and_then(|index| self.mirror.links.get(&index));
        let is_own =
            link.is_some_and(|link| self.mirror.is_device(link) || owned::is_in_group(link));
        if is_own {
            return None;
        }
        let is_bridge = link.is_some_and(|link| link.kind.as_deref() == Some("bridge"));
        let local = desired.ruleset.local_cidrs.iter().filter(|_| !is_bridge);
        let remote = desired.routes.iter().filter_map(|(key, way)| match way {
            Way::Overlay { .. } | Way::Direct { .. } => Some(&key.destination),
            Way::Unreachable => None,
        });
        let holds = |range: &&IpNetwork| {
            range.prefix() < route.destination.prefix()
                && range.contains(route.destination.network())
        };
        local.chain(remote).find(holds).copied()
    }
}

/// Number of desired objects that are there, by kind; `left` is what still has
/// to be written.
fn count(desired: &Resolved, left: &[Change]) -> BTreeMap<ObjectKind, usize> {
    let mut counts = BTreeMap::from([
        (ObjectKind::Link, usize::from(desired.device.is_some())),
        (ObjectKind::Address, desired.addresses.len()),
        (ObjectKind::Route, desired.routes.len()),
        (ObjectKind::Neighbour, desired.neighbours.len()),
        (ObjectKind::Fdb, desired.fdb.len()),
    ]);
    for change in left.iter().filter(|change| !change.is_removal()) {
        counts
            .entry(change.kind())
            .and_modify(|count| *count = count.saturating_sub(1));
    }
    counts
}
