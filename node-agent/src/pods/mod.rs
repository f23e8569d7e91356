//! The links of local pods: put back what their records say, take back what
//! nobody owns any more.
//!
//! [`Pods::keep`] is the one entry point of a pass. A record may change at any
//! moment, since the plugin works on the same store: so whatever is written for
//! a pod is written under the store's lock, after its record was read again and
//! found to be the same. What is decided ([`diff`]) is pure.

pub mod diff;
pub mod leaving;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

use ipnetwork::IpNetwork;
use tweed_core::attachment::NetworkName;
use tweed_core::leaving::go_on_duty;
use tweed_ipam::ranges::{Range, RangeSet, RangeSets};
use tweed_ipam::record::{Record, State};
use tweed_ipam::store::{Entry, Store, StoreError};
use tweed_ipam::sweep::{self, Swept};
use tweed_netlink::Error;

use crate::kernel::change::Change;
use crate::kernel::{Kernel, Refusal, sysctl};
use crate::publish::conflist::NETWORK_NAME;
use crate::serve::metrics::RangeUse;
use leaving::{Leaving, Turn};
use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_netlink::owned;
use tweed_planner::overlay::Network;
use tweed_planner::overlay::desired::RouteKey;

/// How long a pass waits for a store's lock: an ADD holds it for milliseconds.
const LOCK_WAIT: Duration = Duration::from_millis(500);
/// Longer than a DEL takes: one that has not ended in a store where nothing has
/// changed for so long was cut off.
const DEL_TAKES: Duration = Duration::from_secs(5);
/// A folder that changed this recently may change again within the same tick of
/// the file system's clock, which its time stamp would not show.
const CLOCK_TICK: Duration = Duration::from_millis(50);
/// How many pods a message names.
const NAMED: usize = 5;

/// What a pass over the pods came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What the kernel refused.
    pub refusals: Vec<Refusal>,
    /// What was written, by kind.
    pub written: Vec<Change>,
    /// How many addresses were taken back because nobody owned them any more.
    pub swept: u64,
    /// Whether all of it could be looked at.
    pub complete: bool,
    /// When to look again at what has no notification, if that is soon.
    pub look_at: Option<Instant>,
}

/// The stores of this node, as they were last read.
#[derive(Debug)]
pub struct Pods {
    run_dir: PathBuf,
    data_dir: PathBuf,
    networks: BTreeMap<NetworkName, Known>,
    leaving: Leaving,
}

#[derive(Debug)]
struct Known {
    store: Store,
    /// When the folder of records last changed; none if it has to be read.
    stamp: Option<SystemTime>,
    records: Vec<Record>,
    problems: Vec<Problem>,
    /// Whether a link of this store was seen here: only then does a link that
    /// is missing prove anything. (An agent in another network namespace than
    /// the plugin's sees none.)
    seen: bool,
}

impl Pods {
    /// The pods whose records lie in `<run_dir>/ipam`.
    #[must_use]
    pub fn new(run_dir: &Path) -> Self {
        Self {
            run_dir: run_dir.to_owned(),
            data_dir: run_dir.join("ipam"),
            networks: BTreeMap::new(),
            leaving: Leaving::default(),
        }
    }

    /// Reads the stores that have changed, or all if `all` says so. Says
    /// whether any was read.
    ///
    /// # Errors
    /// When a store cannot be read; the others were.
    pub fn read(&mut self, all: bool) -> Result<bool, StoreError> {
        let names: BTreeSet<NetworkName> = Store::networks(&self.data_dir)?.into_iter().collect();
        self.networks.retain(|name, _| names.contains(name));
        let mut changed = all;
        let mut result = Ok(());
        for name in names {
            let known = self.networks.entry(name).or_insert_with_key(|name| Known {
                store: Store::open(&self.data_dir, name),
                stamp: None,
                records: Vec::new(),
                problems: Vec::new(),
                seen: false,
            });
            if all {
                known.stamp = None;
            }
            match known.read() {
                Ok(read) => changed |= read,
                Err(error) => result = Err(error),
            }
        }
        result.map(|()| changed)
    }

    /// The keys of the routes to local pods: nobody else's to remove.
    #[must_use]
    pub fn route_keys(&self) -> BTreeSet<RouteKey> {
        self.kept().flat_map(diff::route_keys).collect()
    }

    /// How many pods are kept.
    #[must_use]
    pub fn count(&self) -> usize {
        self.kept().count()
    }

    fn kept(&self) -> impl Iterator<Item = &Record> {
        self.networks
            .values()
            .flat_map(|known| &known.records)
            .filter(|record| diff::is_kept(record))
    }

    /// How full this node's pod CIDRs are. One that cannot be counted, or holds
    /// no address, is left out.
    #[must_use]
    pub fn usage(&self, pod_cidrs: &[IpNetwork]) -> Vec<RangeUse> {
        let Ok(name) = NetworkName::new(NETWORK_NAME) else {
            return Vec::new();
        };
        let store = Store::open(&self.data_dir, &name);
        let of_one = |cidr: &IpNetwork| {
            let range = Range::new(*cidr, None, None, None).ok()?;
            let set = RangeSet::new(vec![range]).ok()?;
            let usage = store.usage(&RangeSets::new(vec![set]).ok()?).ok()?;
            let usage = usage.first()?;
            Some(RangeUse {
                range: *cidr,
                used: usage.used,
                free: usage.free,
            })
        };
        pod_cidrs.iter().filter_map(of_one).collect()
    }

    /// The sysctls that differ on links of live pods.
    #[must_use]
    pub fn sysctls(&self, kernel: &Kernel) -> Vec<sysctl::Sysctl> {
        self.kept()
            .filter_map(|record| Some((record, diff::link_of(record, kernel.mirror())?)))
            .flat_map(|(record, link)| {
                let has_ipv6 = record.addresses.iter().any(|address| address.is_ipv6());
                sysctl::pod_link(link, has_ipv6)
            })
            .collect()
    }

    /// Puts back what the records say, finishes links on their way out, and
    /// sweeps. `network` is this node's part in the plan, where there is one.
    ///
    /// # Errors
    /// When the kernel's socket fails.
    pub fn keep(
        &mut self,
        kernel: &mut Kernel,
        network: Option<&Network>,
    ) -> Result<Outcome, Error> {
        let mut outcome = Outcome {
            complete: true,
            ..Outcome::default()
        };
        let none = BTreeMap::new();
        let sources = network.map_or(&none, |network| &network.host_sources);
        self.finish_leaving(kernel, &mut outcome)?;
        for known in self.networks.values_mut() {
            outcome.problems.extend(known.problems.iter().cloned());
            known.look_for_links(kernel);
            known.mend(kernel, sources, &mut outcome)?;
            known.sweep(kernel, &mut outcome);
        }
        outcome
            .problems
            .extend(network.and_then(|network| self.outside(network)));
        Ok(outcome)
    }

    /// Deletes the links on their way out that nobody else does.
    fn finish_leaving(&mut self, kernel: &mut Kernel, outcome: &mut Outcome) -> Result<(), Error> {
        let links = kernel.mirror().leaving_links();
        let on_duty = match self.leaving.turn(&links, Instant::now()) {
            Turn::Nothing => return Ok(()),
            Turn::Wait(until) => {
                outcome.look_at = Some(until);
                return Ok(());
            }
            Turn::Try(again) => match go_on_duty(&self.run_dir) {
                Ok(Some(duty)) => Some(duty),
                other => {
                    tracing::debug!(?other, "links on their way out are left to a finisher");
                    outcome.look_at = Some(again);
                    return Ok(());
                }
            },
            Turn::Finish => None,
        };
        outcome.refusals.extend(kernel.finish_leaving()?);
        drop(on_duty);
        Ok(())
    }

    /// Pods that have an address outside the node's own CIDRs: they were made
    /// before these changed, and no other node has a route to them.
    fn outside(&self, network: &Network) -> Option<Problem> {
        let mut pods: Vec<String> = self
            .kept()
            .filter(|record| record.network.as_str() == NETWORK_NAME)
            .filter(|record| record.addresses.iter().any(|a| !network.holds(a.ip())))
            .map(name_of)
            .collect();
        pods.sort();
        let more = pods.len().saturating_sub(NAMED);
        let mut named = pods.get(..pods.len() - more)?.join(", ");
        if named.is_empty() {
            return None;
        }
        if more > 0 {
            named.push_str(&format!(" and {more} more"));
        }
        Some(Problem::new(
            ProblemKind::PodsOutsideCidr,
            NETWORK_NAME,
            format!(
                "pods have addresses outside this node's pod CIDR, so other nodes have no route to them: {named}"
            ),
        ))
    }
}

impl Known {
    fn read(&mut self) -> Result<bool, StoreError> {
        let stamp = changed_at(&self.store.folder().join("attachments"));
        if stamp.is_some() && stamp == self.stamp {
            return Ok(false);
        }
        // Taken before the reading: what changes meanwhile is read next time.
        let (records, problems) = self.store.records()?;
        self.records = records;
        self.problems = problems
            .into_iter()
            .map(|problem| {
                let path = problem.path.display().to_string();
                Problem::new(ProblemKind::StoreFile, path, problem.what)
            })
            .collect();
        self.stamp = stamp.filter(|stamp| stamp.elapsed().is_ok_and(|age| age > CLOCK_TICK));
        Ok(true)
    }

    fn look_for_links(&mut self, kernel: &Kernel) {
        self.seen |= self
            .records
            .iter()
            .any(|record| diff::link_of(record, kernel.mirror()).is_some());
    }

    fn mend(
        &mut self,
        kernel: &mut Kernel,
        sources: &BTreeMap<Family, IpAddr>,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let changes_for = |kernel: &Kernel, record: &Record| {
            let mirror = kernel.mirror();
            diff::link_of(record, mirror)
                .map(|link| diff::diff(record, link, mirror, sources))
                .unwrap_or_default()
        };
        let broken: Vec<&Record> = self
            .records
            .iter()
            .filter(|record| diff::is_kept(record) && !changes_for(kernel, record).is_empty())
            .collect();
        if broken.is_empty() {
            return Ok(());
        }
        let locked = match self.store.lock_existing(LOCK_WAIT) {
            Ok(Some(locked)) => locked,
            Ok(None) => return Ok(()),
            Err(error) => {
                outcome.complete = false;
                outcome.problems.push(store_problem(&error));
                return Ok(());
            }
        };
        // What was seen before the lock may be a DEL's or an ADD's half way.
        kernel.listen()?;
        kernel.refresh()?;
        let changes: Vec<Change> = broken
            .into_iter()
            .filter(|record| {
                let now = locked.read(&record.attachment());
                now.is_ok_and(|now| now.as_ref() == Some(record))
            })
            .flat_map(|record| changes_for(kernel, record))
            .collect();
        let refusals = kernel.write(changes.clone())?;
        drop(locked);
        outcome.written.extend(
            changes
                .into_iter()
                .filter(|change| !refusals.iter().any(|refusal| refusal.change == *change)),
        );
        outcome.refusals.extend(refusals);
        Ok(())
    }

    fn sweep(&mut self, kernel: &mut Kernel, outcome: &mut Outcome) {
        let quiet = self
            .stamp
            .is_some_and(|stamp| stamp.elapsed().is_ok_and(|age| age > DEL_TAKES));
        let suspicious = |record: &Record| match (record.state, &record.link) {
            (State::Adding { .. }, _) => self.store.is_abandoned(record),
            (State::Live, Some(link)) => self.seen && kernel.mirror().link(link).is_none(),
            (State::Live, None) => false,
            (State::Deleting, _) => quiet,
        };
        if !self.records.iter().any(suspicious) {
            return;
        }
        let kernel = std::cell::RefCell::new(kernel);
        let seen = self.seen;
        let link_gone = |record: &Record| {
            let name = record.link.clone();
            let name = name.unwrap_or_else(|| record.attachment().link_name());
            // The kernel itself is asked: the mirror may be older than the record.
            seen && matches!(kernel.borrow_mut().has_link(&name), Ok(false))
        };
        let detach = |entry: &Entry| detach(&mut kernel.borrow_mut(), entry);
        match sweep::sweep(&self.store, LOCK_WAIT, link_gone, detach) {
            Ok(swept) => {
                report(&swept, outcome);
                if !swept.freed.is_empty() {
                    self.stamp = None;
                }
            }
            Err(error) => {
                outcome.complete = false;
                outcome.problems.push(store_problem(&error));
            }
        }
    }
}

/// Takes away the link of an attachment that nobody owns any more.
fn detach(kernel: &mut Kernel, entry: &Entry) -> Result<(), Error> {
    kernel.listen()?;
    kernel.refresh()?;
    let link = kernel.mirror().link(&entry.link_name());
    let Some(index) = link
        .filter(|link| owned::is_any_pod_link(link))
        .map(|link| link.index)
    else {
        return Ok(());
    };
    match kernel.write(vec![Change::RemoveLink { index }])?.pop() {
        Some(refusal) => Err(refusal.error),
        None => Ok(()),
    }
}

fn report(swept: &Swept, outcome: &mut Outcome) {
    let freed = swept.freed.iter().map(|(freed, _)| freed.addresses.len());
    let addresses = freed.sum::<usize>() + swept.void_claims.len();
    outcome.swept += addresses as u64;
    for (freed, reason) in &swept.freed {
        tracing::info!(attachment = %freed.id, addresses = ?freed.addresses, %reason, "swept");
    }
    if !swept.void_claims.is_empty() {
        tracing::info!(addresses = ?swept.void_claims, "claims without a record removed");
    }
    for (id, why) in &swept.failed {
        outcome.complete = false;
        outcome.problems.push(Problem::new(
            ProblemKind::SweepFailed,
            id,
            format!("an address that nobody uses any more cannot be taken back: {why}"),
        ));
    }
}

/// The ranges that are used up. No reason to be not ready: a full node must not
/// be emptied.
#[must_use]
pub fn full_ranges(usage: &[RangeUse]) -> Vec<Problem> {
    let full = usage.iter().filter(|usage| usage.free == 0);
    full.map(|usage| {
        Problem::new(
            ProblemKind::RangeFull,
            usage.range.to_string(),
            format!(
                "all {} addresses of this node's pod CIDR are in use",
                usage.used
            ),
        )
    })
    .collect()
}

/// A store that cannot be read or locked, as a problem.
#[must_use]
pub fn store_problem(error: &StoreError) -> Problem {
    Problem::new(ProblemKind::StoreUnusable, "ipam", error.to_string())
}

fn name_of(record: &Record) -> String {
    let name = match &record.pod {
        Some(pod) => format!("{}/{}", pod.namespace, pod.name),
        None => record.container_id.to_string(),
    };
    let addresses: Vec<String> = record
        .addresses
        .iter()
        .map(|address| address.ip().to_string())
        .collect();
    format!("{name} ({})", addresses.join(", "))
}

fn changed_at(folder: &Path) -> Option<SystemTime> {
    let look = || -> io::Result<SystemTime> { fs::metadata(folder)?.modified() };
    look().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_core::problem::Effect;

    #[test]
    fn a_full_range_is_named_and_keeps_nobody_from_being_ready() {
        let usage = |range: &str, used, free| RangeUse {
            range: range.parse().unwrap(),
            used,
            free,
        };
        let ranges = [usage("10.244.1.0/24", 254, 0), usage("fd00::/64", 254, 1)];
        let problems = full_ranges(&ranges);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].object, "10.244.1.0/24");
        assert!(problems[0].message.contains("254"), "{problems:?}");
        assert_eq!(problems[0].effect, Effect::Warning);
    }
}
