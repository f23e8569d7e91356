//! Which address an ADD gets.

use std::fs;

use tweed_ipam::record::{Owner, Record};
use tweed_ipam::store::StoreError;

use crate::common::*;
use crate::given;

#[test]
fn an_address_is_used_again_only_after_every_other_free_one() {
    let lab = Lab::new();
    // .1 is the gateway, .0 and .7 are network and broadcast address: five remain.
    let mut given_in_order = Vec::new();
    for n in 0..10 {
        given_in_order.extend(given(&lab, &format!("c{n}"), "10.1.0.0/29"));
        del(&lab.store(), &format!("c{n}"));
    }
    let once = ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"];
    assert_eq!(given_in_order[..5], once);
    assert_eq!(given_in_order[5..], once);
}

/// At most twelve pods exist at a time: between two uses of an address are as many
/// ADDs as the range has free addresses.
#[test]
fn an_address_is_not_reused_soon_under_hundreds_of_adds_and_dels() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = subnet("10.1.0.0/27");
    let mut last_use = std::collections::HashMap::new();
    for n in 0..400 {
        let record = add(&store, &format!("c{n}"), &ranges).unwrap();
        let before = last_use.insert(addresses(&record), n);
        assert!(before.is_none_or(|before| n - before >= 29 - 12));
        // In another order than that of their ADDs.
        if n >= 9 {
            let oldest = n - 9;
            del(&store, &format!("c{}", oldest / 3 * 3 + 2 - oldest % 3));
        }
    }
    assert_eq!(last_use.len(), 29);
}

#[test]
fn taken_addresses_are_skipped_however_many_there_are() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = subnet("10.1.0.0/23");
    let mut last = None;
    for n in 0..509 {
        last = Some(add(&store, &format!("c{n}"), &ranges).unwrap());
    }
    assert_eq!(addresses(&last.unwrap()), ["10.1.1.254"]);
    // One is free, behind more taken ones than are looked at one by one.
    del(&store, "c300");
    let record = add(&store, "late", &ranges).unwrap();
    assert_eq!(addresses(&record), ["10.1.1.46"]);
}

#[test]
fn one_address_of_every_range_set() {
    let lab = Lab::new();
    let ranges = ranges(
        r#"{"ranges":[[{"subnet":"10.1.0.0/30"},{"subnet":"10.2.0.0/30"}],[{"subnet":"fd00::/64"}]]}"#,
    );
    let one = add(&lab.store(), "one", &ranges).unwrap();
    assert_eq!(one.addresses[0].to_string(), "10.1.0.2/30");
    assert_eq!(one.addresses[1].to_string(), "fd00::2/64");
    let two = add(&lab.store(), "two", &ranges).unwrap();
    assert_eq!(addresses(&two), ["10.2.0.2", "fd00::3"]);
}

#[test]
fn a_full_range_is_named_with_its_count_and_nothing_is_kept() {
    let lab = Lab::new();
    let ranges = ranges(r#"{"ranges":[[{"subnet":"fd00::/64"}],[{"subnet":"10.1.0.0/30"}]]}"#);
    add(&lab.store(), "one", &ranges).unwrap();
    let error = add(&lab.store(), "two", &ranges).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StoreError::Exhausted { index: 1, .. }));
    assert!(text.contains("10.1.0.1-10.1.0.2"), "{text}");
    assert!(text.contains("1 of 1 addresses"), "{text}");
    assert_eq!(claims(&lab), ["10.1.0.2", "fd00::2"]);
    assert_eq!(lab.store().read(&attachment("two")).unwrap(), None);
}

#[test]
fn usage_counts_per_range_set() {
    let lab = Lab::new();
    let ranges = ranges(r#"{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]}"#);
    let empty = lab.store().usage(&ranges).unwrap();
    assert_eq!(
        (empty[0].used, empty[0].free, empty[0].total),
        (0, 253, 253)
    );
    add(&lab.store(), "one", &ranges).unwrap();
    fs::write(lab.path("10.1.0.77"), "other\r\neth0").unwrap();
    // The gateway is never given, so it is never free either.
    fs::write(lab.path("10.1.0.1"), "other\r\neth0").unwrap();
    let usage = lab.store().usage(&ranges).unwrap();
    assert_eq!(
        (usage[0].used, usage[0].free, usage[0].total),
        (2, 251, 253)
    );
    assert_eq!(usage[1].used, 1);
    assert_eq!(usage[1].total, (1 << 64) - 2);
    lab.boot(BOOT_2);
    let usage = lab.store().usage(&ranges).unwrap();
    assert_eq!((usage[0].used, usage[1].used), (1, 0));
}

#[test]
fn requested_addresses() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = ranges(r#"{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]}"#);
    let one = add_asking(&store, "one", &ranges, &["fd00::99", "10.1.0.50"]).unwrap();
    assert_eq!(addresses(&one), ["10.1.0.50", "fd00::99"]);
    // A requested address does not move the cursor.
    let two = add_asking(&store, "two", &ranges, &["10.1.0.60", "10.1.0.60"]).unwrap();
    assert_eq!(addresses(&two), ["10.1.0.60", "fd00::2"]);

    let refused = |asked: &[&str]| {
        let error = add_asking(&store, "three", &ranges, asked).unwrap_err();
        assert_eq!(store.read(&attachment("three")).unwrap(), None);
        error.to_string()
    };
    let taken = refused(&["10.1.0.50"]);
    assert!(
        taken.contains("10.1.0.50 is taken by net/one/eth0"),
        "{taken}"
    );
    fs::write(lab.path("10.1.0.70"), "x").unwrap();
    assert!(refused(&["10.1.0.70"]).contains("10.1.0.70"));
    assert!(refused(&["10.1.0.1"]).contains("gateway"));
    for outside in ["10.1.0.0", "10.1.0.255", "10.2.0.1", "fd01::1"] {
        assert!(refused(&[outside]).contains(outside));
    }
    assert!(refused(&["10.1.0.80", "10.1.0.81"]).contains("10.1.0.81"));
}

/// As after a switch of `ipam.type` while pods run.
#[test]
fn addresses_that_another_ipam_plugin_gave_are_taken_until_their_record_is_freed() {
    let lab = Lab::new();
    let store = lab.store();
    let by_other = Record {
        ipam: Some("other".to_owned()),
        ..seed("other")
    };
    let addresses = ["10.1.0.2/24", "10.1.0.3/24"].map(|it| it.parse().unwrap());
    // Its own file, as it shares the folder, stays.
    fs::create_dir_all(lab.path("")).unwrap();
    fs::write(lab.path("10.1.0.3"), "other\r\neth0").unwrap();
    let mut locked = lock(&store);
    drop(locked.track(&by_other, Vec::new()).unwrap());
    let held = locked.track(&by_other, addresses.to_vec()).unwrap();
    locked.mark_live(&held).unwrap();
    drop((locked, held));
    assert_eq!(given(&lab, "one", "10.1.0.0/29"), ["10.1.0.4"]);
    let refused = add_asking(&store, "two", &subnet("10.1.0.0/29"), &["10.1.0.2"]);
    assert!(refused.unwrap_err().to_string().contains("net/other/eth0"));

    let freed = lock(&store).free(&attachment("other")).unwrap().unwrap();
    assert!(!freed.is_complete(), "the other one has to free them too");
    assert_eq!(claims(&lab), ["10.1.0.3", "10.1.0.4"]);
}

#[test]
fn a_requested_address_of_an_interrupted_add_can_be_given() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = subnet("10.1.0.0/24");
    let asked = ["10.1.0.9".parse().unwrap()];
    let other = Record::adding(attachment("dead"), Owner::Other, dead());
    drop(lock(&store).reserve(&other, &ranges, &asked).unwrap());
    add_asking(&store, "one", &ranges, &["10.1.0.9"]).unwrap();

    // Not while a link of tweed may still use it.
    let asked = ["10.1.0.10".parse().unwrap()];
    let tweed = Record::adding(attachment("dead2"), Owner::Tweed, dead());
    drop(lock(&store).reserve(&tweed, &ranges, &asked).unwrap());
    add_asking(&store, "two", &ranges, &["10.1.0.10"]).unwrap_err();
}

#[test]
fn a_full_range_gives_what_interrupted_adds_of_other_plugins_hold() {
    let lab = Lab::new();
    let store = lab.store();
    let ranges = subnet("10.1.0.0/30");
    let other = Record::adding(attachment("dead"), Owner::Other, dead());
    drop(lock(&store).reserve(&other, &ranges, &[]).unwrap());
    assert_eq!(given(&lab, "one", "10.1.0.0/30"), ["10.1.0.2"]);
}

#[test]
fn a_damaged_cursor_loses_only_the_position() {
    for content in ["", "x", "fd00::7", "10.99.0.1", &"9".repeat(100_000)] {
        let lab = Lab::new();
        given(&lab, "one", "10.1.0.0/24");
        fs::write(lab.path("last_reserved_ip.0"), content).unwrap();
        assert_eq!(given(&lab, "two", "10.1.0.0/24"), ["10.1.0.3"]);
    }
}
