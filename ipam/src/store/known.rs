//! The files of records as they were last read, so that a pod that comes does not have
//! those of all others read again.
//!
//! A file is the same if its inode, its size and both its times are. The kernel's clock for
//! these stands still for some milliseconds at a time, in which a file may change once more
//! without a trace; so a file that had changed shortly before it was looked at counts as
//! changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::Store;
use super::load::{Loaded, load};

/// Longer than the clock of any file system stands still.
pub const CLOCK_TICK: Duration = Duration::from_millis(50);

/// The files of records of one store, as they were last read.
#[derive(Debug, Default)]
pub struct KnownFiles(BTreeMap<String, KnownFile>);

#[derive(Debug)]
struct KnownFile {
    /// None if the file has to be read again in any case.
    stamp: Option<Stamp>,
    loaded: Loaded,
}

/// What tells a file from another of its name, and from itself with another content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// That of a file now; none if it has changed just now or cannot be looked at.
    fn of(path: &Path) -> Option<Self> {
        let file = fs::symlink_metadata(path).ok()?;
        let stamp = Self {
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        };
        stamp.age().filter(|age| *age > CLOCK_TICK).map(|_| stamp)
    }

    /// How long ago it was changed; none if that is in the future.
    fn age(&self) -> Option<Duration> {
        let (seconds, more) = self.changed;
        let since = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(more).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since)?.elapsed().ok()
    }
}

impl KnownFiles {
    /// The content of the files with these names, and of no others. Those that may have
    /// changed are read.
    pub(super) fn read(
        &mut self,
        store: &Store,
        ids: BTreeSet<String>,
    ) -> impl Iterator<Item = (&String, &Loaded)> {
        self.0.retain(|id, _| ids.contains(id));
        for id in ids {
            // Looked at before it is read: a change between the two is read next time.
            let current = Stamp::of(&store.record_path(&id));
            let known = self.0.get(&id).and_then(|file| file.stamp);
            if current.is_none() || known != current {
                let loaded = load(store, &id);
                // What keeps a file from being read may end without a change of it.
                let stamp = current.filter(|_| !matches!(loaded, Loaded::Unreadable(_)));
                self.0.insert(id, KnownFile { stamp, loaded });
            }
        }
        self.0.iter().map(|(id, file)| (id, &file.loaded))
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName};

    use super::*;
    use crate::record::{Owner, Process, Record};
    use crate::store::{Held, LOCK_WAIT};

    fn attachment(container: &str) -> Attachment {
        Attachment {
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new(container).unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        }
    }

    fn add(store: &Store, container: &str) -> Held {
        let by = Process::current().unwrap();
        let seed = Record::adding(attachment(container), Owner::Tweed, by);
        let mut locked = store.lock(LOCK_WAIT).unwrap();
        locked
            .track(&seed, vec!["10.244.1.5/24".parse().unwrap()])
            .unwrap()
    }

    fn records(store: &Store, known: &mut KnownFiles) -> Vec<Record> {
        store.records_again(known).unwrap().0
    }

    /// Puts a mark on what is known of a file, which is gone when the file is read again.
    fn mark(known: &mut KnownFiles, container: &str) {
        let file = known.0.get_mut(&attachment(container).id()).unwrap();
        match &mut file.loaded {
            Loaded::Record(record) => record.mtu = Some(7),
            other => panic!("{other:?}"),
        }
    }

    fn marked(records: &[Record]) -> Vec<&str> {
        let marked = records.iter().filter(|record| record.mtu == Some(7));
        marked.map(|record| record.container_id.as_str()).collect()
    }

    #[test]
    fn only_files_that_have_changed_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &attachment("a").network);
        let _held = ["a", "b", "c"].map(|container| add(&store, container));
        let mut known = KnownFiles::default();
        records(&store, &mut known);
        for container in ["a", "b", "c"] {
            mark(&mut known, container);
        }
        // They are so young that they may have changed since.
        assert!(marked(&records(&store, &mut known)).is_empty());
        sleep(2 * CLOCK_TICK);
        records(&store, &mut known);
        for container in ["a", "b", "c"] {
            mark(&mut known, container);
        }
        // In place, with the same size, and with the time that it had.
        let path = store.record_path(&attachment("b").id());
        let content = fs::read(&path).unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, content).unwrap();
        fs::File::open(&path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        store
            .lock(LOCK_WAIT)
            .unwrap()
            .free(&attachment("c"))
            .unwrap();
        let _new = add(&store, "d");
        let now = records(&store, &mut known);
        assert_eq!(marked(&now), ["a"]);
        let names: Vec<&str> = now
            .iter()
            .map(|record| record.container_id.as_str())
            .collect();
        assert_eq!(names, ["a", "b", "d"]);
    }

    #[test]
    fn a_file_that_is_no_record_is_named_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &attachment("a").network);
        let _held = add(&store, "a");
        fs::write(store.record_path(&attachment("a").id()), "{}").unwrap();
        sleep(2 * CLOCK_TICK);
        let mut known = KnownFiles::default();
        let first = store.records_again(&mut known).unwrap();
        assert_eq!(first.1.len(), 1);
        assert_eq!(store.records_again(&mut known).unwrap(), first);
        assert_eq!(store.records().unwrap(), first);
    }
}
