//! One network's store of records, as it was last read, and what is done for its
//! records.

use std::time::{Duration, SystemTime};
use std::{cell::RefCell, collections::BTreeMap, fs, net::IpAddr, path::Path};

use tweed_core::attachment::NetworkName;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{family::Family, netns, ownership::ALIAS_PREFIX};
use tweed_ipam::record::{Record, State};
use tweed_ipam::store::{CLOCK_TICK, Entry, Host, KnownFiles, OtherBootId, Store, StoreError};
use tweed_ipam::sweep::{self, Swept};
use tweed_netlink::{Error, link::Link, owned};

use super::plan;
use crate::{
    reconcile::kernel::Kernel, reconcile::kernel::change::Change, reconcile::outcome::Outcome,
    serve::metrics::Metrics,
};

/// Maximum time that a reconcile waits for a store's lock: an ADD holds it for
/// milliseconds.
const LOCK_WAIT: Duration = Duration::from_millis(500);
/// Longer than a DEL takes: where nothing in the store has changed for this
/// time, a DEL that has not ended was interrupted.
const DEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A store, as it was last read.
#[derive(Debug)]
pub(super) struct NetworkStore {
    store: Store,
    /// When the folder of records last changed; none if it has to be read.
    modified: Option<SystemTime>,
    records: Vec<Record>,
    files: KnownFiles,
    /// Files that do not belong there, and a boot ID that is not the agent's.
    problems: Vec<Problem>,
    /// Records that cannot be read, each with the name of its link.
    unreadable: Vec<(String, Problem)>,
    /// Whether a link of this store was seen here: only then does a link that
    /// is missing prove anything. (An agent in another network namespace than
    /// the plugin's sees none.)
    link_seen: bool,
}

impl NetworkStore {
    pub(super) fn new(host: &Host, data_dir: &Path, name: &NetworkName) -> Self {
        Self {
            store: Store::open_on(host.clone(), data_dir, name),
            modified: None,
            records: Vec::new(),
            files: KnownFiles::default(),
            problems: Vec::new(),
            unreadable: Vec::new(),
            link_seen: false,
        }
    }

    /// All records.
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// The records that the agent keeps.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| plan::is_kept(record))
    }

    /// Reads the records that have changed, or all of them if `force` says so. Says
    /// whether it read any.
    pub(super) fn read(&mut self, force: bool) -> Result<bool, StoreError> {
        if force {
            self.modified = None;
            self.files = KnownFiles::default();
        }
        let folder = fs::metadata(self.store.folder().join("attachments"));
        // Taken before the records are read: a later change is read next time.
        let modified = folder.and_then(|folder| folder.modified()).ok();
        if modified.is_some() && modified == self.modified {
            return Ok(false);
        }
        let (records, problems) = self.store.records_again(&mut self.files)?;
        self.records = records;
        self.problems.clear();
        self.unreadable.clear();
        for found in problems {
            let path = found.path.display().to_string();
            let problem = Problem::new(ProblemKind::StoreFile, path, found.what);
            match found.link {
                None => self.problems.push(problem),
                Some(link) => self.unreadable.push((link, problem)),
            }
        }
        let other = self.store.other_boot_id()?;
        let mismatch = other.map(|ids| boot_id_mismatch(self.store.network(), &ids));
        self.problems.extend(mismatch);
        // A folder that has changed this recently may change again with the same time.
        self.modified = modified.filter(|modified| is_older(*modified, CLOCK_TICK));
        Ok(true)
    }

    /// Puts back what the records say. `pod_mtus` are the MTUs of the pods' ends, by the
    /// index of the host end, as far as they are known.
    pub(super) fn repair(
        &mut self,
        kernel: &mut Kernel,
        pod_mtus: &BTreeMap<u32, u32>,
        sources: &BTreeMap<Family, IpAddr>,
    ) -> Result<Outcome, Error> {
        let mut outcome = Outcome::of(self.problems.clone());
        let mirror = kernel.mirror();
        let unreadable = self.unreadable.iter();
        let named = unreadable.map(|(link, problem)| unreadable_record(problem, mirror.link(link)));
        outcome.problems.extend(named);
        let mut records = self.records.iter();
        self.link_seen |= records.any(|record| plan::link_of(record, mirror).is_some());

        // A machine may have thousands of addresses, and pods are many.
        let usable = |kernel: &Kernel| plan::usable(sources, kernel.mirror());
        let changes_for = |kernel: &Kernel, record: &Record, sources: &_| {
            let mirror = kernel.mirror();
            let Some(link) = plan::link_of(record, mirror) else {
                return Vec::new();
            };
            let pod_mtu = pod_mtus.get(&link.index).copied();
            plan::diff(record, link, pod_mtu, mirror, sources)
        };
        let now = usable(kernel);
        let broken: Vec<&Record> = self
            .kept()
            .filter(|record| !changes_for(kernel, record, &now).is_empty())
            .collect();
        if broken.is_empty() {
            return Ok(outcome);
        }
        let locked = match self.store.lock_existing(LOCK_WAIT) {
            Ok(Some(locked)) => locked,
            Ok(None) => return Ok(outcome),
            Err(error) => {
                outcome.fail(store_problem(&error));
                return Ok(outcome);
            }
        };
        // What was read before the lock may be an unfinished ADD or DEL.
        kernel.read_notifications()?;
        kernel.refresh()?;
        let is_same = |record: &&Record| {
            let read = locked.read(&record.attachment());
            read.is_ok_and(|read| read.as_ref() == Some(record))
        };
        let now = usable(kernel);
        let changes: Vec<Change> = broken
            .into_iter()
            .filter(is_same)
            .flat_map(|record| changes_for(kernel, record, &now))
            .collect();
        outcome.merge(kernel.write(changes)?);
        Ok(outcome)
    }

    /// Takes back the addresses of records that nobody owns any more.
    pub(super) fn sweep(&mut self, kernel: &mut Kernel, metrics: &Metrics) -> Outcome {
        let mut outcome = Outcome::default();
        let unchanged = self.modified.is_some_and(|at| is_older(at, DEL_TIMEOUT));
        let is_suspect = |record: &Record| match (record.state, &record.link) {
            // Only the plugin can give the address back to another IPAM plugin.
            _ if record.ipam.is_some() => false,
            (State::Adding { .. }, _) => self.store.is_abandoned(record),
            (State::Live, Some(link)) => {
                let mirror = kernel.mirror();
                let is_missing = mirror.link(link).is_none();
                self.link_seen
                    && is_missing
                    && plan::link_of(record, mirror).is_none()
                    && is_here(record)
            }
            (State::Live, None) => false,
            (State::Deleting, _) => unchanged,
        };
        if !self.records.iter().any(is_suspect) {
            return outcome;
        }
        let kernel = RefCell::new(kernel);
        let link_seen = self.link_seen;
        let link_gone = |record: &Record| {
            let recorded = record.link.clone();
            let name = recorded.unwrap_or_else(|| record.attachment().link_name());
            // Not from the mirror, which may be older than the record.
            let mut kernel = kernel.borrow_mut();
            link_seen
                && is_here(record)
                && matches!(kernel.has_link(&name), Ok(false))
                && matches!(is_renamed(&mut kernel, record), Ok(false))
        };
        let detach = |entry: &Entry| detach(&mut kernel.borrow_mut(), entry);
        match sweep::sweep(&self.store, LOCK_WAIT, link_gone, detach) {
            Ok(swept) => {
                metrics.swept.inc_by(report(&swept, &mut outcome));
                if let Some(error) = &swept.stopped {
                    outcome.fail(store_problem(error));
                }
                if !swept.freed.is_empty() {
                    self.modified = None;
                }
            }
            Err(error) => outcome.fail(store_problem(&error)),
        }
        outcome
    }
}

/// Whether the record's link is in this network namespace, as far as is known. Two
/// nodes that are namespaces of one machine may have one run folder.
fn is_here(record: &Record) -> bool {
    let is_own = |netns| netns::own().is_ok_and(|own| own == netns);
    record.host_netns.is_none_or(is_own)
}

/// Whether the pod's link is there under another name.
fn is_renamed(kernel: &mut Kernel, record: &Record) -> Result<bool, Error> {
    kernel.read_notifications()?;
    kernel.refresh()?;
    Ok(plan::link_of(record, kernel.mirror()).is_some())
}

fn is_older(time: SystemTime, age: Duration) -> bool {
    time.elapsed().is_ok_and(|elapsed| elapsed > age)
}

/// Deletes the link of an attachment that nobody owns any more.
fn detach(kernel: &mut Kernel, entry: &Entry) -> Result<(), Error> {
    kernel.read_notifications()?;
    kernel.refresh()?;
    let link = kernel.mirror().link(&entry.link_name());
    let Some(link) = link.filter(|link| owned::is_any_pod_link(link)) else {
        return Ok(());
    };
    let changes = vec![Change::RemoveLink { index: link.index }];
    match kernel.write(changes)?.refused.pop() {
        Some(refused) => Err(refused.error),
        None => Ok(()),
    }
}

/// Logs what was taken back and gives the number of addresses.
fn report(swept: &Swept<Error>, outcome: &mut Outcome) -> u64 {
    for (freed, reason) in &swept.freed {
        tracing::info!(attachment = %freed.id, addresses = ?freed.addresses, %reason, "swept");
    }
    if !swept.void_claims.is_empty() {
        tracing::info!(addresses = ?swept.void_claims, "claims without a record removed");
    }
    for failed in &swept.failed {
        outcome.fail(Problem::new(
            ProblemKind::SweepFailed,
            &failed.id,
            format!("an address that nobody uses any more cannot be taken back: {failed}"),
        ));
    }
    let freed = swept.freed.iter().map(|(freed, _)| freed.addresses.len());
    (freed.sum::<usize>() + swept.void_claims.len()) as u64
}

/// The problem of a record that cannot be read, with the pod by its link's alias. The
/// record must not be removed while the pod runs.
fn unreadable_record(problem: &Problem, link: Option<&Link>) -> Problem {
    let alias = link
        .filter(|link| owned::is_any_pod_link(link))
        .and_then(|link| link.alias.as_deref()?.strip_prefix(ALIAS_PREFIX));
    let mut named = problem.clone();
    let pod = match alias {
        Some(alias) => {
            named.message = format!(
                "{}; it is that of {alias}, which is attached",
                named.message
            );
            "restart that pod"
        }
        None => "restart its pod if that still runs",
    };
    named.with_cure(format!(
        "{pod}, or leave the file to the runtime's DEL or GC; never remove it, as its addresses could then be given to another pod while this one has them"
    ))
}

fn boot_id_mismatch(network: &NetworkName, ids: &OtherBootId) -> Problem {
    let OtherBootId { here, in_store } = ids;
    Problem::new(
        ProblemKind::BootIdMismatch,
        network.as_str(),
        format!(
            "the plugin reads the boot ID {in_store} and the agent {here}: only the pods' links show that the address store is not of an earlier boot"
        ),
    )
}

/// A store that cannot be read or locked, as a problem.
pub(super) fn store_problem(error: &StoreError) -> Problem {
    Problem::new(ProblemKind::StoreUnusable, "ipam", error.to_string())
}

#[cfg(test)]
mod tests {
    use tweed_core::attachment::{Attachment, ContainerId, IfName};
    use tweed_ipam::record::{Owner, Process};
    use tweed_ipam::store::Held;

    use super::*;

    fn attachment(container: &str) -> Attachment {
        Attachment {
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new(container).unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        }
    }

    /// A record as an ADD makes it, with an address that another plugin gives.
    fn add(store: &Store, container: &str, address: &str) -> Held {
        let by = Process::current().unwrap();
        let seed = Record::adding(attachment(container), Owner::Tweed, by);
        let mut locked = store.lock(LOCK_WAIT).unwrap();
        locked.track(&seed, vec![address.parse().unwrap()]).unwrap()
    }

    /// Without its record the store would give the pod's address to another one.
    #[test]
    fn a_record_that_cannot_be_read_is_named_with_its_pod_and_never_to_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (host, network) = (Host::default(), attachment("one").network);
        let store = Store::open_on(host.clone(), folder.path(), &network);
        drop(add(&store, "one", "10.244.1.5/24"));
        let record = store
            .folder()
            .join("attachments")
            .join(attachment("one").id());
        fs::write(record, "{").unwrap();
        fs::write(store.folder().join("notes"), "").unwrap();
        let mut last_read = NetworkStore::new(&host, folder.path(), &network);
        last_read.read(true).unwrap();

        let [foreign] = last_read.problems.as_slice() else {
            panic!("{:?}", last_read.problems);
        };
        assert!(foreign.cure.contains("but never a record"), "{foreign}");
        let [(name, problem)] = last_read.unreadable.as_slice() else {
            panic!("{:?}", last_read.unreadable);
        };
        assert_eq!(*name, attachment("one").link_name());
        let link = Link {
            name: name.clone(),
            group: tweed_core::ownership::LINK_GROUP,
            alias: Some("tweed:tweed/one/eth0 shop/cart-0".to_owned()),
            ..Link::default()
        };
        let named = unreadable_record(problem, Some(&link));
        assert!(
            named.message.contains("tweed/one/eth0 shop/cart-0"),
            "{named}"
        );
        for problem in [named, unreadable_record(problem, None)] {
            assert!(problem.cure.contains("never remove it"), "{problem}");
        }
    }
}
