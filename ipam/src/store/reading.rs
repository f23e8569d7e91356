//! Reading the store without the lock: records, usage, and problems.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::{ffi::OsString, fmt, io, net::IpAddr};

use super::known::KnownFiles;
use super::load::{Loaded, load};
use super::{ATTACHMENTS, BOOT_ID, CURSOR_PREFIX, LOCK, Store, StoreError, TEMPORARY, disk::Kind};
use ipnetwork::IpNetwork;

use crate::ranges::{Range, RangeSet, RangeSets};
use crate::record::Record;
use tweed_core::ownership::LINK_PREFIX;

/// An entry of the store's folder that is damaged or foreign. It was left alone, and
/// does no harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, and what removes it.
    pub what: String,
    /// The name of the link's host end if it is the record of an attachment: `tweed`
    /// gives the link an alias that names the pod.
    pub link: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// How full a range set is, in addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The set's ranges, as text.
    pub set: String,
    /// Addresses of attachments of the store or of host-local.
    pub used: u128,
    /// Addresses that can still be given.
    pub free: u128,
    /// Addresses that can be given when the set is empty.
    pub total: u128,
}

/// A file among the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The file's name: [`Attachment::id`](tweed_core::attachment::Attachment::id) of
    /// the attachment that it stands for.
    pub id: String,
    /// Its content; none if it cannot be read as this attachment's record.
    pub record: Option<Record>,
}

impl Entry {
    /// The name of the link's host end, as
    /// [`Attachment::link_name`](tweed_core::attachment::Attachment::link_name) derives it.
    pub fn link_name(&self) -> String {
        link_name_of(&self.id)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.record {
            Some(record) => record.attachment().fmt(f),
            None => write!(f, "attachments/{}", self.id),
        }
    }
}

/// Whether a file name is that of a record.
pub(super) fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of the link's host end of the attachment that `id` stands for.
pub(super) fn link_name_of(id: &str) -> String {
    format!("{LINK_PREFIX}{}", id.get(..12).unwrap_or(id))
}

/// The address that a file name claims: only in the one spelling that the store
/// and host-local write.
pub(super) fn claimed_address(name: &str) -> Option<IpAddr> {
    let address: IpAddr = name.parse().ok()?;
    (address.to_string() == name).then_some(address)
}

/// The record's name in a claim's target.
fn claim_owner(target: &Path) -> Option<&str> {
    let id = target.to_str()?.strip_prefix("attachments/")?;
    is_id(id).then_some(id)
}

impl Store {
    /// All records of this boot, sorted by attachment, and problems of the folder.
    /// A file that cannot be read as a record does not hide the others.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the folder cannot be read (a missing one
    /// is empty), [`StoreError::NoBootId`].
    pub fn records(&self) -> Result<(Vec<Record>, Vec<Problem>), StoreError> {
        self.records_again(&mut KnownFiles::default())
    }

    /// As [`Store::records`], but of the files that `known` has from an earlier call only
    /// those are read that may have changed since.
    ///
    /// # Errors
    /// As [`Store::records`].
    pub fn records_again(
        &self,
        known: &mut KnownFiles,
    ) -> Result<(Vec<Record>, Vec<Problem>), StoreError> {
        let boot = self.boot()?;
        let is_void = boot.is_another_in_the_folder();
        let mut records = Vec::new();
        let mut problems = Vec::new();
        let entries = self.list_or_empty(self.path(ATTACHMENTS))?.into_iter();
        let names = entries.map(|(name, _)| name.to_string_lossy().into_owned());
        let (ids, others): (BTreeSet<String>, BTreeSet<String>) = names
            .filter(|name| name != TEMPORARY)
            .partition(|name| is_id(name));
        for name in others {
            let path = self.record_path(&name);
            let what = "is not a record's name; it is ignored".to_owned();
            problems.push(Problem {
                path,
                what,
                link: None,
            });
        }
        for (id, loaded) in known.read(self, ids) {
            let what = match loaded {
                Loaded::Missing => continue,
                Loaded::Record(record) => {
                    let is_of_boot = record.boot_id == boot.id;
                    records.extend(is_of_boot.then(|| (**record).clone()));
                    continue;
                }
                // The contents of another boot are void, damaged or not.
                _ if is_void => continue,
                Loaded::Damaged(why) => format!(
                    "is not a record ({why}); its addresses stay taken until a DEL of its \
                     attachment or a GC frees them"
                ),
                Loaded::Unreadable(error) => format!("cannot be read: {error}"),
            };
            let path = self.record_path(id);
            let link = Some(link_name_of(id));
            problems.push(Problem { path, what, link });
        }
        for (name, kind) in self.list_or_empty(self.folder.clone())? {
            let name = name.to_string_lossy().into_owned();
            if let Some(what) = foreign(&name, kind) {
                let path = self.path(&name);
                problems.push(Problem {
                    path,
                    what,
                    link: None,
                });
            }
        }
        records.sort_by_cached_key(Record::attachment);
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((records, problems))
    }

    /// How full each range set is. Claims of an interrupted ADD count until a sweep
    /// frees them.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the folder cannot be read (a missing one
    /// is empty), [`StoreError::NoBootId`].
    pub fn usage(&self, ranges: &RangeSets) -> Result<Vec<Usage>, StoreError> {
        let is_void = self.boot()?.is_another_in_the_folder();
        let mut taken = self.taken()?;
        if is_void {
            taken.retain(|_, kind| *kind != Kind::Link);
        }
        let usage = ranges.iter().map(|set| {
            let used = taken.keys().filter(|a| set.can_give(**a)).count() as u128;
            let total = set.capacity();
            Usage {
                set: set.to_string(),
                used,
                free: total - used,
                total,
            }
        });
        Ok(usage.collect())
    }

    /// How full a subnet is that is given from by default; none if it cannot be counted, or
    /// has no address to give.
    pub fn usage_of(&self, subnet: IpNetwork) -> Option<Usage> {
        let range = Range::new(subnet, None, None, None).ok()?;
        let sets = RangeSets::new(vec![RangeSet::new(vec![range]).ok()?]).ok()?;
        self.usage(&sets).ok()?.pop()
    }

    /// Every address that is taken by the store or by host-local, in order.
    ///
    /// # Errors
    /// As [`Store::usage`].
    pub fn taken_addresses(&self) -> Result<BTreeSet<IpAddr>, StoreError> {
        let is_void = self.boot()?.is_another_in_the_folder();
        let taken = self.taken()?.into_iter();
        let counts = taken.filter(|(_, kind)| !is_void || *kind != Kind::Link);
        Ok(counts.map(|(address, _)| address).collect())
    }

    /// Every file among the records, of whatever boot.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        let names = self.list_or_empty(self.path(ATTACHMENTS))?.into_iter();
        let entry = |(name, _): (OsString, _)| self.entry(name.to_str().filter(|n| is_id(n))?);
        Ok(names.filter_map(entry).collect())
    }

    /// The file named `id` among the records; none if it does not exist.
    pub(crate) fn entry(&self, id: &str) -> Option<Entry> {
        let record = match load(self, id) {
            Loaded::Missing => return None,
            Loaded::Record(record) => Some(*record),
            Loaded::Damaged(_) | Loaded::Unreadable(_) => None,
        };
        Some(Entry {
            id: id.to_owned(),
            record,
        })
    }

    /// The addresses of `record` on which it has no claim. For a record of
    /// [`Locked::reserve`](super::Locked::reserve) there should be none; for one of
    /// [`Locked::track`](super::Locked::track) another entry may have been there.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn unclaimed(&self, record: &Record) -> Result<Vec<IpAddr>, StoreError> {
        let id = record.attachment().id();
        let mut unclaimed = Vec::new();
        for address in &record.addresses {
            if self.claimed_by(address.ip())?.as_ref() != Some(&id) {
                unclaimed.push(address.ip());
            }
        }
        Ok(unclaimed)
    }

    /// Whether there seem to be void claims. It is certain only under the lock.
    pub(crate) fn has_void_claims(&self) -> Result<bool, StoreError> {
        let mut claims = self.claims()?.into_iter();
        Ok(claims.any(|(address, id)| self.is_void(address, &id)))
    }

    /// Whether a claim of the record `id` on `address` is void. Claims of a record
    /// that cannot be read are not, nor those of one that somebody has removed while
    /// its pod, of which its link shows, is there.
    pub(super) fn is_void(&self, address: IpAddr, id: &str) -> bool {
        match load(self, id) {
            Loaded::Missing => !self.has_link_of(id),
            Loaded::Record(record) => record.addresses.iter().all(|a| a.ip() != address),
            Loaded::Damaged(_) | Loaded::Unreadable(_) => false,
        }
    }

    /// The claims of this store: address and the record's name.
    pub(super) fn claims(&self) -> Result<Vec<(IpAddr, String)>, StoreError> {
        let mut claims = Vec::new();
        for (address, kind) in self.taken()? {
            if kind == Kind::Link
                && let Some(id) = self.claimed_by(address)?
            {
                claims.push((address, id));
            }
        }
        Ok(claims)
    }

    /// The addresses that are claimed for the record `id`.
    pub(super) fn claims_of(&self, id: &str) -> Result<Vec<IpAddr>, StoreError> {
        let claims = self.claims()?.into_iter();
        let of_id = claims.filter_map(|(address, owner)| (owner == id).then_some(address));
        Ok(of_id.collect())
    }

    /// The name of the record that has `address`; none if no record of this store
    /// has it.
    pub(super) fn claimed_by(&self, address: IpAddr) -> Result<Option<String>, StoreError> {
        let path = self.claim_path(address);
        match self.host.disk.read_link(&path) {
            Ok(target) => Ok(claim_owner(&target).map(str::to_owned)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => Ok(None),
                _ => Err(StoreError::io("read the link", path)(error)),
            },
        }
    }

    /// Every address for which there is an entry, of the store or of host-local, with
    /// the entry's type.
    pub(super) fn taken(&self) -> Result<HashMap<IpAddr, Kind>, StoreError> {
        let mut taken = HashMap::new();
        if let Some(folder) = &self.host_local {
            let files = self.host_local_files(folder)?.into_iter();
            taken.extend(files.map(|(address, _)| (address, Kind::File)));
        }
        // An entry of the store comes before a file elsewhere.
        let entries = self.list_or_empty(self.folder.clone())?.into_iter();
        let own = |(name, kind): (OsString, _)| Some((claimed_address(name.to_str()?)?, kind));
        taken.extend(entries.filter_map(own));
        Ok(taken)
    }

    pub(super) fn list_or_empty(&self, path: PathBuf) -> Result<Vec<(OsString, Kind)>, StoreError> {
        match self.host.disk.list(&path) {
            Ok(entries) => Ok(entries),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(StoreError::io("read the folder", path)(error)),
        }
    }
}

/// What is wrong with an entry of the store's folder, if anything.
fn foreign(name: &str, kind: Kind) -> Option<String> {
    let ours = matches!(name, LOCK | BOOT_ID | ATTACHMENTS | TEMPORARY)
        || name
            .strip_prefix(CURSOR_PREFIX)
            .is_some_and(|index| index.parse::<usize>().is_ok());
    if ours {
        return None;
    }
    match (claimed_address(name), kind) {
        (Some(_), Kind::File | Kind::Link) => None,
        (Some(address), Kind::Other) => Some(format!(
            "is neither a claim nor a file of host-local; {address} counts as taken"
        )),
        (None, _) => Some("is not of this store; it is ignored".to_owned()),
    }
}
