//! The store of one network: records of attachments and claims on addresses.
//!
//! ```text
//! <dataDir>/<network>/
//!   lock                     flock(2); host-local uses the same file
//!   boot_id                  the boot that the rest belongs to
//!   attachments/<id>         a record (record.rs), <id> is Attachment::id()
//!   <address>                a claim: a symbolic link to attachments/<id>
//!   last_reserved_ip.<n>     the address last given from range set n
//! ```
//!
//! What always holds, also after a crash at any system call:
//! - An address has at most one claim, as a name exists once in a folder. A claim
//!   is a symbolic link because symlink(2) is atomic and exclusive and names the
//!   owner: a claim is never written in part.
//! - A claim counts while its record lists it, or cannot be read. ADD writes the
//!   cursor, then the record, then the claims; DEL removes the claims, then the
//!   record. So a record may exist without its claims, but no claim without its
//!   record. If a person removes a record, its claims count while its link is there.
//! - A process that adds or deletes holds a lock on the record's file: held.rs.
//! - Files are replaced by rename, so a reader sees the old or the new one.
//!   Readers need no lock. The exception is a full disk: writing.rs.
//! - Freeing needs no space: not for the lock, which exists, nor for the record that
//!   says that a DEL is in progress.
//!
//! A regular file that is named like an address belongs to host-local and is left
//! alone until the DEL of the container that it names, or a GC without it:
//! host_local.rs. After a reboot
//! everything here is void (boot.rs), so only the boot ID is synced to the disk: by it,
//! records are void that a power failure has left empty.

mod alarm;
mod boot;
pub mod disk;
mod error;
mod held;
mod host_local;
mod known;
mod load;
mod lock;
mod locked;
mod open;
mod reading;
mod reserve;
mod writing;

use std::path::{Path, PathBuf};
use std::{fs, io, net::IpAddr, sync::Arc, time::Duration};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use crate::record::Record;
use disk::{Disk, LocalDisk};
use lock::Purpose;
use tweed_core::attachment::{Attachment, NetworkName};
use tweed_core::paths::DEFAULT_BOOT_ID_FILE;

pub use boot::OtherBootId;
pub use error::StoreError;
pub use held::Held;
pub use known::{CLOCK_TICK, KnownFiles};
pub use locked::{Freed, Locked};
pub use reading::{Entry, Problem, Usage};

/// How long a CNI verb waits for the lock: less than a runtime waits for a plugin,
/// and far more than any queue of healthy processes needs.
pub const LOCK_WAIT: Duration = Duration::from_secs(20);

const LOCK: &str = "lock";
const BOOT_ID: &str = "boot_id";
const ATTACHMENTS: &str = "attachments";
const CURSOR_PREFIX: &str = "last_reserved_ip.";
/// Name under which a file is written before it is renamed. One name is enough, as
/// only the holder of the lock writes.
const TEMPORARY: &str = ".new";

/// What the store needs of the machine. Tests replace it.
#[derive(Debug, Clone)]
pub struct Host {
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// A file with the ID of the current boot.
    pub boot_id: PathBuf,
    /// Whether the network namespace of the calling thread has a link of this name. If
    /// that cannot be determined, it has.
    pub has_link: fn(&str) -> bool,
}

impl Host {
    /// This machine, with the ID of the current boot in another file: a container
    /// may see another ID than its node.
    pub fn with_boot_id(file: &Path) -> Self {
        Self {
            boot_id: file.to_owned(),
            ..Self::default()
        }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self {
            disk: Arc::new(LocalDisk),
            boot_id: DEFAULT_BOOT_ID_FILE.into(),
            has_link: |name| if_nametoindex(name) != Err(Errno::ENODEV),
        }
    }
}

/// The store of one network. Opening it does no I/O.
#[derive(Debug, Clone)]
pub struct Store {
    network: NetworkName,
    folder: PathBuf,
    /// Where host-local keeps this network's files by default, if they count.
    host_local: Option<PathBuf>,
    host: Host,
}

impl Store {
    /// The store of `network` under `data_dir`, on this machine.
    pub fn open(data_dir: &Path, network: &NetworkName) -> Self {
        Self::open_on(Host::default(), data_dir, network)
    }

    /// The same on a given machine.
    pub fn open_on(host: Host, data_dir: &Path, network: &NetworkName) -> Self {
        Self {
            network: network.clone(),
            folder: data_dir.join(network.as_str()),
            host_local: None,
            host,
        }
    }

    /// The networks that have a store under `data_dir`, sorted; none if the folder
    /// does not exist.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the folder cannot be read.
    pub fn networks(data_dir: &Path) -> Result<Vec<NetworkName>, StoreError> {
        let entries = match LocalDisk.list(data_dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::io("read", data_dir)(error)),
        };
        let mut networks: Vec<NetworkName> = entries
            .into_iter()
            .filter_map(|(name, _)| NetworkName::new(name.into_string().ok()?).ok())
            .filter(|name| data_dir.join(name.as_str()).join(ATTACHMENTS).is_dir())
            .collect();
        networks.sort();
        Ok(networks)
    }

    /// The network's name.
    pub fn network(&self) -> &NetworkName {
        &self.network
    }

    /// The store's folder: `<dataDir>/<network>`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn record_path(&self, id: &str) -> PathBuf {
        self.folder.join(ATTACHMENTS).join(id)
    }

    fn claim_path(&self, address: IpAddr) -> PathBuf {
        self.folder.join(address.to_string())
    }

    /// The places of entries by which `address` is taken.
    fn entry_paths(&self, address: IpAddr) -> impl Iterator<Item = PathBuf> {
        let name = address.to_string();
        self.host_local_folders()
            .map(move |folder| folder.join(&name))
    }

    /// The record of `attachment`, without the lock: it may change at any time. A
    /// record of another boot does not count.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the file is not a record of this attachment;
    /// [`StoreError::Io`], [`StoreError::NoBootId`].
    pub fn read(&self, attachment: &Attachment) -> Result<Option<Record>, StoreError> {
        let boot = self.boot()?;
        match self.read_any_boot(attachment) {
            Ok(record) => Ok(record.filter(|record| record.boot_id == boot.id)),
            Err(StoreError::Damaged { .. }) if boot.is_another_in_the_folder() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read_any_boot(&self, attachment: &Attachment) -> Result<Option<Record>, StoreError> {
        let id = attachment.id();
        match load::load(self, &id) {
            load::Loaded::Missing => Ok(None),
            load::Loaded::Record(record) => Ok(Some(*record)),
            load::Loaded::Damaged(why) => Err(StoreError::Damaged {
                attachment: attachment.to_string(),
                path: self.record_path(&id),
                why,
            }),
            load::Loaded::Unreadable(error) => {
                Err(StoreError::io("read", self.record_path(&id))(error))
            }
        }
    }

    /// Takes the store's lock, and creates the folder if it does not exist. The
    /// contents of another boot are removed first.
    ///
    /// # Errors
    /// [`StoreError::LockTimeout`] after `wait`; [`StoreError::Io`],
    /// [`StoreError::NoBootId`].
    pub fn lock(&self, wait: Duration) -> Result<Locked<'_>, StoreError> {
        let attachments = self.path(ATTACHMENTS);
        let made = self.host.disk.make_folder(&attachments);
        made.map_err(StoreError::io("create the folder", attachments))?;
        let file = lock::take(&self.path(LOCK), wait, Purpose::Add)?;
        Locked::begin(self, file)
    }

    /// Takes the lock of a store that exists, to free something; none if there is no
    /// folder, or one that cannot be written and has no record: then a DEL has nothing
    /// to do. This needs no free space.
    ///
    /// # Errors
    /// As [`Store::lock`].
    pub fn lock_existing(&self, wait: Duration) -> Result<Option<Locked<'_>>, StoreError> {
        let attachments = self.path(ATTACHMENTS);
        match fs::metadata(&attachments) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("look up", attachments)(error)),
        }
        let locked = lock::take(&self.path(LOCK), wait, Purpose::Free)
            .and_then(|file| Locked::begin(self, file));
        match locked {
            // What is there is void, of another boot, or only the lock is missing.
            Err(error) if error.is_read_only() && self.records()?.0.is_empty() => Ok(None),
            locked => locked.map(Some),
        }
    }
}
