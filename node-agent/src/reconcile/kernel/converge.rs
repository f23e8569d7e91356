//! From the plan to the kernel: the device, its addresses, and what packets
//! look up, in this order, because each stands on the one before.

use std::collections::{BTreeMap, BTreeSet};

use tweed_netlink::Error;

use super::change::{Change, Kind};
use super::notification::Part;
use super::resolved::Wanted;
use super::{Kernel, Refusal, device, diff};
use tweed_core::problem::Problem;
use tweed_planner::overlay::desired::{Desired, RouteKey};

/// How often what the kernel refuses is tried again at once: what was known of
/// it may have been old. Also how often reading may put more in doubt.
const TRIES: u32 = 3;

/// What it came to.
#[derive(Debug, Default)]
pub struct Converged {
    /// What the kernel still refuses.
    pub refusals: Vec<Refusal>,
    /// What is wrong besides.
    pub problems: Vec<Problem>,
    /// Whether the VXLAN device is as it should be.
    pub device_kept: bool,
    /// Whether the mirror at the end says just what was asked for. What was
    /// changed by others while it was written may stand in it already, and
    /// then is left to the next pass.
    pub settled: bool,
    /// Writes that came through, by kind.
    pub written: BTreeMap<Kind, u64>,
    /// Objects that are as they should be, by kind.
    pub objects: BTreeMap<Kind, usize>,
}

impl Converged {
    /// Whether nothing is left to be done.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.settled && self.problems.is_empty()
    }

    fn wrote(&mut self, kind: Kind, count: u64) {
        if count > 0 {
            *self.written.entry(kind).or_default() += count;
        }
    }
}

impl Kernel {
    /// Reads what is in doubt, until nothing is.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn observe(&mut self) -> Result<(), Error> {
        for _ in 0..TRIES {
            self.listen()?;
            if self.refresh()?.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Makes the kernel hold what `desired` says, and nothing else of what is
    /// tweed's but routes of the keys in `kept`. Refusals of objects that
    /// `refused` names are old news and not tried again at once.
    ///
    /// # Errors
    /// When the kernel's socket fails; what the kernel refuses is in
    /// [`Converged`].
    pub fn converge(
        &mut self,
        desired: &Desired,
        kept: &BTreeSet<RouteKey>,
        refused: &BTreeSet<String>,
    ) -> Result<Converged, Error> {
        let mut outcome = Converged::default();
        for _ in 0..TRIES {
            self.attempt(desired, kept, &mut outcome)?;
            let is_old = |refusal: &Refusal| refused.contains(&refusal.error.object);
            let stuck = !outcome.device_kept || !outcome.refusals.is_empty();
            if outcome.settled || (stuck && outcome.refusals.iter().all(is_old)) {
                break;
            }
            if stuck {
                self.doubt(Part::ALL);
            }
        }
        Ok(outcome)
    }

    fn attempt(
        &mut self,
        desired: &Desired,
        kept: &BTreeSet<RouteKey>,
        outcome: &mut Converged,
    ) -> Result<(), Error> {
        self.observe()?;
        let device = self.keep_device(desired.vxlan.as_ref())?;
        outcome.wrote(Kind::Link, device.written);
        outcome.device_kept = device.problem.is_none();
        self.observe()?;

        let host = self.mirror.host_facts();
        let (mut wanted, problems) = Wanted::resolve(desired, device.index, &host);
        wanted.kept.clone_from(kept);
        outcome.problems = problems;
        outcome.problems.extend(device.problem);

        let addresses = diff::addresses(&self.mirror, &wanted);
        if addresses.iter().any(Change::is_removal) {
            // What goes with an address goes untold.
            self.doubt([Part::Routes, Part::Neighbours]);
        }
        outcome.refusals = self.write_counted(addresses, outcome)?;
        self.observe()?;
        let tables = diff::tables(&self.mirror, &wanted);
        let refusals = self.write_counted(tables, outcome)?;
        outcome.refusals.extend(refusals);

        // An earlier device goes when nothing leads to it any more.
        if outcome.device_kept && outcome.refusals.is_empty() {
            let stale = device.stale.into_iter();
            let remove = stale.map(|index| Change::RemoveLink { index }).collect();
            outcome.refusals = self.write_counted(remove, outcome)?;
        }
        let left = diff::diff(&self.mirror, &wanted);
        let device = device::plan::plan(&self.mirror, desired.vxlan.as_ref());
        outcome.settled = left.is_empty() && device.is_done();
        outcome.objects = objects(&wanted, &left);
        Ok(())
    }

    fn write_counted(
        &mut self,
        changes: Vec<Change>,
        outcome: &mut Converged,
    ) -> Result<Vec<Refusal>, Error> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let mut tried = BTreeMap::<Kind, u64>::new();
        for change in &changes {
            *tried.entry(change.kind()).or_default() += 1;
        }
        let refusals = self.write(changes)?;
        for refusal in &refusals {
            if let Some(count) = tried.get_mut(&refusal.change.kind()) {
                *count -= 1;
            }
        }
        for (kind, count) in tried {
            outcome.wrote(kind, count);
        }
        Ok(refusals)
    }
}

/// How many of the wanted objects are there, by kind.
fn objects(wanted: &Wanted, left: &[Change]) -> BTreeMap<Kind, usize> {
    let mut counts = BTreeMap::from([
        (Kind::Link, usize::from(wanted.device.is_some())),
        (Kind::Address, wanted.addresses.len()),
        (Kind::Route, wanted.routes.len()),
        (Kind::Neighbour, wanted.neighbours.len()),
        (Kind::Fdb, wanted.fdb.len()),
    ]);
    for change in left.iter().filter(|change| !change.is_removal()) {
        counts
            .entry(change.kind())
            .and_modify(|count| *count = count.saturating_sub(1));
    }
    counts
}
