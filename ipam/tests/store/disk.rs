//! Full and read-only disks.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::SystemTime;

use tweed_ipam::record::{Owner, Record, State};
use tweed_ipam::sweep;

use crate::common::*;

/// Without space, and without space and inodes.
fn on_full_disks(test: impl Fn(&Lab)) {
    for inodes in [false, true] {
        let lab = Lab::on_disk("size=128k,nr_inodes=100");
        let store = lab.store();
        let both = ranges(r#"{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]}"#);
        add(&store, "one", &both).unwrap();
        add(&store, "two", &both).unwrap();
        let interrupted = Record::adding(attachment("interrupted"), Owner::Tweed, dead());
        drop(lock(&store).reserve(&interrupted, &both, &[]).unwrap());
        lab.disk().fill(inodes);
        let refused = add(&store, "three", &both).unwrap_err();
        assert!(refused.to_string().contains("free some space"), "{refused}");
        test(&lab);
    }
}

#[test]
fn a_del_needs_neither_space_nor_an_inode() {
    on_full_disks(|lab| {
        let store = lab.store();
        let one = attachment("one");
        let records = File::open(lab.path("attachments")).unwrap();
        records.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let mut locked = store.lock_idle(&one, WAIT).unwrap().unwrap();
        let held = locked.mark_deleting(&one).unwrap().unwrap();
        drop(locked);
        // By this the agent sees that it has to look.
        let changed = records.metadata().unwrap().modified().unwrap();
        assert!(changed > SystemTime::UNIX_EPOCH);
        // Everybody sees that a DEL is at work, and nobody sweeps it.
        let found = store.read(&one).unwrap().unwrap();
        assert_eq!(found, *held);
        assert_eq!(found.state, State::Deleting);
        assert!(!store.is_abandoned(&found));
        let swept = sweep(&store);
        assert_eq!(swept.freed.len(), 1, "the interrupted ADD: {swept:?}");
        let mut locked = store.lock_existing(WAIT).unwrap().unwrap();
        assert_eq!(locked.free(&one).unwrap().unwrap().addresses.len(), 2);
        drop(held);
        // As `tweed-ipam` does it.
        assert!(locked.free(&attachment("two")).unwrap().is_some());
        assert_eq!(claims(lab), [""; 0]);
        assert_eq!(store.records().unwrap().0, []);
    });
}

#[test]
fn a_del_that_is_killed_on_a_full_disk_is_seen_as_interrupted() {
    on_full_disks(|lab| {
        let store = lab.store();
        drop(lock(&store).mark_deleting(&attachment("one")).unwrap());
        let found = store.read(&attachment("one")).unwrap().unwrap();
        assert!(store.is_abandoned(&found));
        assert_eq!(sweep(&store).freed.len(), 2);
    });
}

#[test]
fn a_gc_needs_neither_space_nor_an_inode() {
    on_full_disks(|lab| {
        let store = lab.store();
        assert_eq!(sweep(&store).freed.len(), 1);
        // What that has freed.
        lab.disk().fill(true);
        let swept = sweep::gc(&store, WAIT, &[attachment("one")], detach).unwrap();
        assert!(swept.failed.is_empty(), "{swept:?}");
        assert!(swept.stopped.is_none(), "{swept:?}");
        assert_eq!(swept.freed.len(), 1);
        assert_eq!(claims(lab).len(), 2);
        assert_sound(&store);
    });
}

/// The full disk is not why its record cannot be overwritten.
#[test]
fn a_del_on_a_full_disk_names_what_else_is_in_its_way() {
    let lab = Lab::on_disk("size=128k,nr_inodes=100");
    let store = lab.store();
    add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
    lab.disk().fill(true);
    let record = lab.path("attachments").join(attachment("one").id());
    let file = File::open(record).unwrap();
    file.lock().unwrap();
    let error = lock(&store).mark_deleting(&attachment("one")).unwrap_err();
    let refused = error.to_string();
    assert!(refused.contains("holds its lock"), "{refused}");
}

/// After a reboot that has left the disk full.
#[test]
fn what_another_boot_left_on_a_full_disk_is_freed() {
    on_full_disks(|lab| {
        // In place: nothing can be made longer.
        lab.boot(BOOT_2);
        let store = lab.store();
        drop(store.lock_existing(WAIT).unwrap().unwrap());
        assert_eq!(claims(lab), [""; 0]);
    });
}

/// What is freed makes no room: there is nothing.
#[test]
fn a_del_of_another_boot_needs_no_space_where_nothing_is_left() {
    let lab = Lab::on_disk("size=128k,nr_inodes=100");
    let store = lab.store();
    add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
    lock(&store).free(&attachment("one")).unwrap();
    lab.boot(BOOT_2);
    lab.disk().fill(true);
    let store = lab.store();
    let mut locked = store.lock_existing(WAIT).unwrap().unwrap();
    assert_eq!(locked.free(&attachment("one")).unwrap(), None);
}

#[test]
fn on_a_read_only_disk_there_is_nothing_to_free_of_an_unknown_attachment() {
    let lab = Lab::on_disk("size=1m");
    let store = lab.store();
    add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
    lab.disk().make_read_only();
    let mut locked = store
        .lock_idle(&attachment("never"), WAIT)
        .unwrap()
        .unwrap();
    assert_eq!(locked.free(&attachment("never")).unwrap(), None);
    let error = locked.free(&attachment("one")).unwrap_err();
    assert!(
        error.to_string().contains("needs a writable folder"),
        "{error}"
    );
    let error = store.lock(WAIT).map(drop).unwrap_err();
    assert!(
        error.to_string().contains("needs a writable folder"),
        "{error}"
    );
}

/// Nothing of this boot is there, but what there is cannot be removed.
#[test]
fn on_a_read_only_disk_of_another_boot_there_is_nothing_to_free() {
    let lab = Lab::on_disk("size=1m");
    add(&lab.store(), "one", &subnet("10.1.0.0/24")).unwrap();
    lab.boot(BOOT_2);
    lab.disk().make_read_only();
    assert!(lab.store().lock_existing(WAIT).unwrap().is_none());
}

#[test]
fn the_folder_may_be_a_symbolic_link() {
    let lab = Lab::new();
    let elsewhere = folder();
    fs::create_dir(lab.data_dir()).unwrap();
    symlink(elsewhere.path(), lab.data_dir().join(NETWORK)).unwrap();
    for boot in [BOOT_1, BOOT_2] {
        lab.boot(boot);
        add(&lab.store(), "one", &subnet("10.1.0.0/24")).unwrap();
        assert!(elsewhere.path().join("boot_id").exists());
    }
}

#[test]
fn a_file_that_cannot_get_its_name_is_removed() {
    let lab = Lab::new();
    fs::create_dir_all(lab.path("boot_id")).unwrap();
    let refused = lab.store().lock(WAIT).map(drop).unwrap_err();
    assert!(refused.to_string().contains("rename"), "{refused}");
    let entries = fs::read_dir(lab.path("")).unwrap();
    let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["attachments", "boot_id", "lock"]);
}
