//! Choosing and claiming addresses.
//!
//! The choice is the next free address after the one given last, so that an address
//! is given again only after every other free one. The search costs one
//! readlink(2) for each taken address that it skips, whatever the size of the
//! range; after [`PROBES`] of them the folder is listed once instead.

use std::path::{Path, PathBuf};
use std::{io, net::IpAddr};

use ipnetwork::IpNetwork;

use super::load::{Loaded, load};
use super::{ATTACHMENTS, CURSOR_PREFIX, StoreError, held::Held, locked::Locked};
use crate::ranges::{RangeSet, RangeSets};
use crate::record::{Owner, Record, State};

/// How many taken addresses are skipped one by one before the folder is listed.
const PROBES: usize = 64;

/// A chosen address, not yet claimed.
struct Choice {
    address: IpNetwork,
    /// The range set whose cursor it moves. A requested address moves none: the
    /// cursor would skip addresses that were not given yet.
    cursor_of: Option<usize>,
}

impl Locked<'_> {
    /// Gives the attachment one address from each range set, `requested` ones where
    /// a set contains them. The record is in state adding: [`Locked::mark_live`]
    /// completes the ADD, [`Locked::free`] undoes it. What an interrupted ADD or DEL
    /// of the same attachment left in the store is freed first; the caller has
    /// removed before what it left in the kernel.
    ///
    /// # Errors
    /// [`StoreError::Exhausted`], [`StoreError::RequestedTaken`],
    /// [`StoreError::RequestedOutside`]; [`StoreError::Attached`],
    /// [`StoreError::AddInProgress`], [`StoreError::DelInProgress`],
    /// [`StoreError::Damaged`] when the attachment has a record already;
    /// [`StoreError::Io`]. Nothing is reserved then.
    pub fn reserve(
        &mut self,
        seed: &Record,
        ranges: &RangeSets,
        requested: &[IpAddr],
    ) -> Result<Held, StoreError> {
        let attachment = seed.attachment();
        self.supersede(&attachment)?;
        let choices = self.choose(ranges, requested)?;
        for choice in &choices {
            if let Some(index) = choice.cursor_of {
                let path = self.store.path(&format!("{CURSOR_PREFIX}{index}"));
                let content = choice.address.ip().to_string();
                self.replace(&path, content.as_bytes())?;
            }
        }
        let addresses = choices.iter().map(|choice| choice.address).collect();
        let record = self.write_adding(seed, addresses)?;
        if let Err(error) = self.claim_all(&record) {
            // If this fails too, a record remains whose owner is about to end: the
            // next DEL, GC or sweep frees it.
            let _ = self.free(&attachment);
            return Err(error);
        }
        Ok(record)
    }

    fn claim_all(&mut self, record: &Record) -> Result<(), StoreError> {
        for address in &record.addresses {
            let path = self.store.claim_path(address.ip());
            let claimed = self.claim(record, address.ip());
            claimed.map_err(StoreError::io("claim", path))?;
        }
        Ok(())
    }

    pub(super) fn claim(&mut self, record: &Record, address: IpAddr) -> io::Result<()> {
        let target = Path::new(ATTACHMENTS).join(record.attachment().id());
        let path = self.store.claim_path(address);
        self.store.host.disk.link(&target, &path)
    }

    fn choose(
        &mut self,
        ranges: &RangeSets,
        requested: &[IpAddr],
    ) -> Result<Vec<Choice>, StoreError> {
        let mut left: Vec<IpAddr> = Vec::new();
        for address in requested {
            if !left.contains(address) {
                left.push(*address);
            }
        }
        let mut choices = Vec::new();
        for (index, set) in ranges.iter().enumerate() {
            let wanted = left.iter().position(|a| set.range_of(*a).is_some());
            let (address, cursor_of) = match wanted {
                Some(at) => (self.requested(set, left.remove(at), ranges)?, None),
                None => (self.next_free(index, set)?, Some(index)),
            };
            // Every address of a set is in one of its ranges.
            let prefix = set.range_of(address).map_or(0, |r| r.subnet().prefix());
            let address = IpNetwork::new(address, prefix).map_err(|_| outside(address, ranges))?;
            choices.push(Choice { address, cursor_of });
        }
        match left.first() {
            None => Ok(choices),
            Some(address) => Err(outside(*address, ranges)),
        }
    }

    fn requested(
        &mut self,
        set: &RangeSet,
        address: IpAddr,
        ranges: &RangeSets,
    ) -> Result<IpAddr, StoreError> {
        if set.is_gateway(address) {
            return Err(StoreError::RequestedOutside {
                address,
                why: "it is the gateway",
                ranges: ranges.to_string(),
            });
        }
        if self.is_taken(address)? {
            self.reclaim()?;
        }
        if self.is_taken(address)? {
            let holder = match self.store.claimed_by(address)? {
                Some(id) => match load(self.store, &id) {
                    Loaded::Record(record) => record.attachment().to_string(),
                    _ => format!("the record {}", self.store.record_path(&id).display()),
                },
                None => {
                    let mut paths = self.store.entry_paths(address);
                    let found = paths.find(|path| path.symlink_metadata().is_ok());
                    let path = found.unwrap_or_else(|| self.store.claim_path(address));
                    format!("the file {}", path.display())
                }
            };
            return Err(StoreError::RequestedTaken { address, holder });
        }
        Ok(address)
    }

    fn next_free(&mut self, index: usize, set: &RangeSet) -> Result<IpAddr, StoreError> {
        let cursor = self.cursor(index);
        let mut candidates = set.candidates(cursor);
        for address in candidates.by_ref().take(PROBES) {
            if !self.is_taken(address)? {
                return Ok(address);
            }
        }
        let taken = self.store.taken()?;
        if let Some(address) = candidates.find(|address| !taken.contains_key(address)) {
            return Ok(address);
        }
        drop(candidates);
        self.reclaim()?;
        let taken = self.store.taken()?;
        if let Some(address) = set.candidates(cursor).find(|a| !taken.contains_key(a)) {
            return Ok(address);
        }
        Err(StoreError::Exhausted {
            network: self.store.network.to_string(),
            index,
            set: set.to_string(),
            used: taken.keys().filter(|a| set.can_give(**a)).count() as u128,
            capacity: set.capacity(),
            host_local: self.host_locals_of(set)?,
        })
    }

    /// How many addresses of a set host-local has, in which folders.
    fn host_locals_of(&self, set: &RangeSet) -> Result<Vec<(PathBuf, usize)>, StoreError> {
        let mut found = Vec::new();
        for folder in self.store.host_local_folders() {
            let files = self.store.host_local_files(folder)?.into_iter();
            match files.filter(|(address, _)| set.can_give(*address)).count() {
                0 => {}
                count => found.push((folder.to_owned(), count)),
            }
        }
        Ok(found)
    }

    /// The address last given from a set. If it is not valid, the search starts at
    /// the first address.
    fn cursor(&self, index: usize) -> Option<IpAddr> {
        let path = self.store.path(&format!("{CURSOR_PREFIX}{index}"));
        let content = self.store.host.disk.read(&path).ok()?;
        std::str::from_utf8(&content).ok()?.trim().parse().ok()
    }

    fn is_taken(&self, address: IpAddr) -> Result<bool, StoreError> {
        for path in self.store.entry_paths(address) {
            match self.store.host.disk.read_link(&path) {
                // A claim; with EINVAL, another file of that name.
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io("read the link", path)(error)),
            }
        }
        Ok(false)
    }

    /// Frees addresses that provably have no owner and are not used in the kernel:
    /// void claims, and ADDs of other plugins that were interrupted before they got
    /// their result. An interrupted ADD of `tweed` may have left a link that uses the
    /// address: DEL, GC, the agent and the ADD that fails over it free that.
    fn reclaim(&mut self) -> Result<(), StoreError> {
        self.drop_void_claims()?;
        let (records, _) = self.store.records()?;
        for record in records {
            if let (Owner::Other, State::Adding { .. }) = (&record.owner, record.state)
                && self.store.is_abandoned(&record)
            {
                self.free(&record.attachment())?;
            }
        }
        Ok(())
    }
}

fn outside(address: IpAddr, ranges: &RangeSets) -> StoreError {
    StoreError::RequestedOutside {
        address,
        why: "no range set contains it, or its range set gives another requested address",
        ranges: ranges.to_string(),
    }
}
