//! A store in a temporary folder, and short functions to use it.
#![expect(dead_code, reason = "not every test file uses every function")]

pub mod mortal;
pub mod mounted;
pub mod program;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName};
use tweed_ipam::ranges::{IpamConfig, RangeSets};
use tweed_ipam::record::{Owner, Process, Record, State};
use tweed_ipam::store::disk::{Disk, LocalDisk};
use tweed_ipam::store::{Entry, Host, Locked, Store, StoreError};
use tweed_ipam::sweep::Swept;

pub const WAIT: Duration = Duration::from_secs(30);
pub const NETWORK: &str = "net";
pub const BOOT_1: &str = "11111111-1111-4111-8111-111111111111";
pub const BOOT_2: &str = "22222222-2222-4222-8222-222222222222";

/// In memory if possible, as `/run` is.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// A data folder and a machine whose boot ID the test chooses. Deleted on drop.
pub struct Lab {
    // Unmounted before the folder is removed.
    disk: Option<mounted::Disk>,
    folder: tempfile::TempDir,
}

impl Lab {
    pub fn new() -> Self {
        Self::with(None, folder())
    }

    /// On a file system of its own, which only the calling thread sees.
    pub fn on_disk(options: &str) -> Self {
        let folder = folder();
        let disk = mounted::Disk::over(folder.path(), options);
        Self::with(Some(disk), folder)
    }

    fn with(disk: Option<mounted::Disk>, folder: tempfile::TempDir) -> Self {
        let lab = Self { disk, folder };
        lab.boot(BOOT_1);
        lab
    }

    /// The file system of [`Lab::on_disk`].
    pub fn disk(&self) -> &mounted::Disk {
        self.disk.as_ref().expect("the lab is on a disk of its own")
    }

    pub fn boot(&self, id: &str) {
        std::fs::write(self.folder.path().join("boot_id"), format!("{id}\n")).unwrap();
    }

    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn store(&self) -> Store {
        self.store_on(Arc::new(LocalDisk))
    }

    pub fn store_on(&self, disk: Arc<dyn Disk>) -> Store {
        let host = Host {
            disk,
            ..Host::with_boot_id(&self.folder.path().join("boot_id"))
        };
        Store::open_on(host, &self.data_dir(), &NetworkName::new(NETWORK).unwrap())
    }

    /// The same store for a program that reads the boot ID `id`, and `has_link` of the
    /// kernel.
    pub fn seen_with(&self, id: &str, has_link: fn(&str) -> bool) -> Store {
        let file = self.folder.path().join(format!("boot_id-{id}"));
        std::fs::write(&file, format!("{id}\n")).unwrap();
        let host = Host {
            has_link,
            ..Host::with_boot_id(&file)
        };
        Store::open_on(host, &self.data_dir(), &NetworkName::new(NETWORK).unwrap())
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.data_dir().join(NETWORK).join(name)
    }
}

pub fn attachment(container_id: &str) -> Attachment {
    Attachment {
        network: NetworkName::new(NETWORK).unwrap(),
        container_id: ContainerId::new(container_id).unwrap(),
        ifname: IfName::new("eth0").unwrap(),
    }
}

/// A process that has ended: no process has this number.
pub fn dead() -> Process {
    Process {
        pid: 0x3fff_ffff,
        ..Process::current().unwrap()
    }
}

pub fn seed(container_id: &str) -> Record {
    Record::adding(
        attachment(container_id),
        Owner::Tweed,
        Process::current().unwrap(),
    )
}

pub fn ranges(ipam: &str) -> RangeSets {
    let ipam = serde_json::from_str(ipam).unwrap();
    IpamConfig::parse(&ipam, None).unwrap().ranges
}

pub fn subnet(subnet: &str) -> RangeSets {
    ranges(&format!(r#"{{"subnet":"{subnet}"}}"#))
}

/// A whole ADD.
pub fn add(store: &Store, container_id: &str, ranges: &RangeSets) -> Result<Record, StoreError> {
    add_asking(store, container_id, ranges, &[])
}

pub fn add_asking(
    store: &Store,
    container_id: &str,
    ranges: &RangeSets,
    asked: &[&str],
) -> Result<Record, StoreError> {
    let asked: Vec<IpAddr> = asked.iter().map(|a| a.parse().unwrap()).collect();
    let mut locked = store.lock(WAIT)?;
    let record = locked.reserve(&seed(container_id), ranges, &asked)?;
    locked.mark_live(&record)
}

/// A whole DEL.
pub fn del(store: &Store, container_id: &str) {
    let mut locked = lock(store);
    locked.mark_deleting(&attachment(container_id)).unwrap();
    locked.free(&attachment(container_id)).unwrap();
}

pub fn lock(store: &Store) -> Locked<'_> {
    store.lock(WAIT).unwrap()
}

/// The addresses for which the store's folder has an entry.
pub fn claims(lab: &Lab) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(lab.path("")) else {
        return Vec::new();
    };
    let mut claims: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.parse::<IpAddr>().is_ok())
        .collect();
    claims.sort();
    claims
}

/// What must hold while no process works: no two records that may have a pod share
/// an address, and each has its claims.
pub fn assert_sound(store: &Store) {
    let (records, _) = store.records().unwrap();
    let mut seen = std::collections::HashMap::new();
    for record in records.iter().filter(|record| record.state == State::Live) {
        for address in &record.addresses {
            if let Some(other) = seen.insert(address.ip(), record.attachment()) {
                panic!(
                    "{address} belongs to {other} and to {}",
                    record.attachment()
                );
            }
        }
        assert_eq!(
            store.unclaimed(record).unwrap(),
            [] as [IpAddr; 0],
            "{record:?}"
        );
    }
}

/// A sweep of the agent when all links exist.
pub fn sweep(store: &Store) -> Swept<std::convert::Infallible> {
    let swept = tweed_ipam::sweep::sweep(store, WAIT, |_| false, detach).unwrap();
    assert!(swept.failed.is_empty(), "{swept:?}");
    assert!(swept.stopped.is_none(), "{swept:?}");
    swept
}

/// Removing a link that does not exist.
pub fn detach(_: &Entry) -> Result<(), std::convert::Infallible> {
    Ok(())
}

pub fn addresses(record: &Record) -> Vec<String> {
    record
        .addresses
        .iter()
        .map(|a| a.ip().to_string())
        .collect()
}
