//! ADD, DEL and reboot of one attachment, and their order.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tweed_core::attachment::NetworkName;
use tweed_ipam::record::{Owner, Record};
use tweed_ipam::store::{Store, StoreError};

use crate::common::mortal::FullDisk;
use crate::common::*;
use crate::given;

#[test]
fn an_add_over_a_live_one_or_one_in_progress_is_an_error() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = subnet("10.1.0.0/24");
    let _held = lock(&store).reserve(&seed("one"), &ranges, &[]).unwrap();
    let in_progress = add(&store, "one", &ranges).unwrap_err();
    assert!(matches!(in_progress, StoreError::AddInProgress { .. }));
    del(&store, "one");
    add(&store, "one", &ranges).unwrap();
    let live = add(&store, "one", &ranges).unwrap_err();
    assert!(live.to_string().contains("10.1.0.3"), "{live}");
    let tracked = lock(&store).track(&seed("one"), vec![]).unwrap_err();
    assert!(matches!(tracked, StoreError::Attached { .. }));
    assert_eq!(claims(&lab), ["10.1.0.3"]);
}

#[test]
fn an_add_that_was_deleted_meanwhile_does_not_go_live() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = subnet("10.1.0.0/24");
    let record = lock(&store).reserve(&seed("one"), &ranges, &[]).unwrap();
    del(&store, "one");
    let error = lock(&store).mark_live(&record).unwrap_err();
    assert!(matches!(error, StoreError::RecordLost { found: None, .. }));
    add(&store, "one", &ranges).unwrap();
    let error = lock(&store).mark_live(&record).unwrap_err();
    assert!(error.to_string().contains("net/one/eth0"), "{error}");
}

/// The same attachment with the same address, but of another process.
#[test]
fn an_add_does_not_end_that_of_another_process() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = subnet("10.1.0.0/30");
    let record = lock(&store).reserve(&seed("one"), &ranges, &[]).unwrap();
    del(&store, "one");
    let other = Record::adding(attachment("one"), Owner::Tweed, dead());
    let theirs = lock(&store).reserve(&other, &ranges, &[]).unwrap();
    assert_eq!(record.addresses, theirs.addresses);
    let error = lock(&store).mark_live(&record).unwrap_err();
    assert!(error.to_string().contains("another ADD"), "{error}");
    assert_eq!(
        store.read(&attachment("one")).unwrap(),
        Some(theirs.clone())
    );
}

#[test]
fn a_claim_that_fails_leaves_nothing() {
    let lab = Lab::new();
    let store = lab.store_on(Arc::new(FullDisk));
    let error = add(&store, "one", &subnet("10.1.0.0/24")).unwrap_err();
    assert!(error.to_string().contains("free some space"), "{error}");
    assert_eq!(store.records().unwrap(), (vec![], vec![]));
}

/// A new sandbox of the same pod exists when the DEL of the old one arrives.
#[test]
fn a_late_del_of_an_old_sandbox_leaves_the_new_one_alone() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = subnet("10.1.0.0/30");
    add(&store, "old", &ranges).unwrap();
    del(&store, "old");
    let new = add(&store, "new", &ranges).unwrap();
    del(&store, "old");
    assert_eq!(store.read(&attachment("new")).unwrap(), Some(new));
    assert_eq!(claims(&lab), ["10.1.0.2"]);
}

/// The DEL of the old record was interrupted before its claims were removed; the
/// record lists an address that another attachment has by now.
#[test]
fn a_late_del_frees_only_the_claims_that_are_its_own() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = subnet("10.1.0.0/30");
    add(&store, "old", &ranges).unwrap();
    fs::remove_file(lab.path("10.1.0.2")).unwrap();
    drop(lock(&store).mark_deleting(&attachment("old")).unwrap());
    add(&store, "new", &ranges).unwrap();
    del(&store, "old");
    assert_eq!(claims(&lab), ["10.1.0.2"]);
    assert_sound(&store);
}

#[test]
fn tracked_addresses_are_claimed_and_can_be_recorded_later() {
    let lab = Lab::new();
    let store = lab.store();
    let _held = lock(&store).track(&seed("one"), vec![]).unwrap();
    let address = vec!["192.0.2.7/24".parse().unwrap()];
    let record = lock(&store).track(&seed("one"), address).unwrap();
    let record = lock(&store).mark_live(&record).unwrap();
    assert_eq!(store.read(&attachment("one")).unwrap(), Some(record));
    assert_eq!(claims(&lab), ["192.0.2.7"]);
    del(&store, "one");
    assert_eq!(store.records().unwrap(), (vec![], vec![]));
    assert_eq!(claims(&lab), [""; 0]);
}

/// The other plugin has freed the address, and has given it again before the DEL ends.
#[test]
fn a_tracked_address_is_claimed_by_the_attachment_that_has_it_now() {
    let lab = Lab::new();
    let store = lab.store();
    let track = |container_id: &str| {
        let seed = Record {
            ipam: Some("other".to_owned()),
            ..seed(container_id)
        };
        let address = vec!["192.0.2.7/24".parse().unwrap()];
        let mut locked = lock(&store);
        let held = locked.track(&seed, address).unwrap();
        locked.mark_live(&held).unwrap()
    };
    track("one");
    let two = track("two");
    del(&store, "one");
    assert_eq!(store.unclaimed(&two).unwrap().len(), 0);
    del(&store, "two");
    assert_eq!(claims(&lab), [""; 0]);
}

#[test]
fn a_missing_folder_is_an_empty_store_and_is_not_created() {
    let lab = Lab::new();
    let store = lab.store();
    assert_eq!(store.records().unwrap(), (vec![], vec![]));
    assert_eq!(store.read(&attachment("one")).unwrap(), None);
    assert_eq!(store.usage(&subnet("10.1.0.0/30")).unwrap()[0].used, 0);
    assert!(store.lock_existing(WAIT).unwrap().is_none());
    assert_eq!(Store::networks(&lab.data_dir()).unwrap(), []);
    assert!(!lab.data_dir().exists());
    add(&store, "one", &subnet("10.1.0.0/30")).unwrap();
    let net = NetworkName::new(NETWORK).unwrap();
    fs::create_dir(lab.data_dir().join("of-host-local")).unwrap();
    fs::write(lab.data_dir().join("a-file"), "").unwrap();
    assert_eq!(Store::networks(&lab.data_dir()).unwrap(), [net]);
}

#[test]
fn a_reboot_voids_everything_but_files_of_host_local_and_the_cursor() {
    let lab = Lab::new();
    let store = lab.store();
    given(&lab, "one", "10.1.0.0/24");
    fs::write(lab.path("10.1.0.4"), "x\r\neth0").unwrap();
    lab.boot(BOOT_2);
    assert_eq!(store.read(&attachment("one")).unwrap(), None);
    assert_eq!(store.records().unwrap().0, []);
    assert_eq!(given(&lab, "two", "10.1.0.0/24"), ["10.1.0.3"]);
    assert_eq!(claims(&lab), ["10.1.0.3", "10.1.0.4"]);
    assert_eq!(given(&lab, "three", "10.1.0.0/24"), ["10.1.0.5"]);
}

#[test]
fn a_held_lock_is_waited_for_and_then_named() {
    let lab = Lab::new();
    let store = lab.store();
    let held = lock(&store);
    let error = store.lock(Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, StoreError::LockTimeout { .. }));
    assert!(error.to_string().contains("/net/lock"), "{error}");
    let other = lab.store();
    let waiting = std::thread::spawn(move || other.lock(WAIT).map(drop));
    drop(held);
    waiting.join().unwrap().unwrap();
}
