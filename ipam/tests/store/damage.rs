//! Damaged records, foreign files, and a wrong boot ID.

use std::fs;
use std::os::unix::fs::symlink;

use tweed_ipam::store::StoreError;

use crate::common::*;
use crate::given;

/// The file was deleted or overwritten, but the records say that they are of this
/// boot.
#[test]
fn a_lost_boot_id_of_the_folder_frees_no_live_record() {
    for marker in [None, Some(""), Some("garbage"), Some(BOOT_2)] {
        let lab = Lab::new();
        let store = lab.store();
        let one = add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
        add(&store, "damaged", &subnet("10.1.0.0/24")).unwrap();
        let damaged = lab.path("attachments").join(attachment("damaged").id());
        fs::write(damaged, "{").unwrap();
        match marker {
            None => fs::remove_file(lab.path("boot_id")).unwrap(),
            Some(text) => fs::write(lab.path("boot_id"), text).unwrap(),
        }
        let two = add(&store, "two", &subnet("10.1.0.0/24")).unwrap();
        assert_eq!(store.records().unwrap().0, [one, two]);
        assert_sound(&store);
        // For a record that cannot be read, the boot ID of the folder decides.
        let is_kept = marker != Some(BOOT_2);
        assert_eq!(claims(&lab).contains(&"10.1.0.3".to_owned()), is_kept);
    }
}

#[test]
fn records_that_a_power_failure_left_empty_keep_no_address() {
    let lab = Lab::new();
    let disk = std::sync::Arc::new(mortal::MortalDisk::dying_at(1000));
    let range = ranges(r#"{"subnet":"10.1.0.0/29","rangeEnd":"10.1.0.3"}"#);
    for who in ["one", "two"] {
        add(&lab.store_on(disk.clone()), who, &range).unwrap();
    }
    disk.lose_power();
    let path = lab.path("attachments").join(attachment("one").id());
    assert_eq!(fs::read(path).unwrap(), b"");
    lab.boot(BOOT_2);
    for who in ["three", "four"] {
        add(&lab.store(), who, &range).unwrap();
    }
    assert_sound(&lab.store());
}

#[test]
fn a_record_that_nobody_could_read_is_not_written() {
    let lab = Lab::new();
    let mut seed = seed("one");
    seed.netns = Some("x".repeat(70_000));
    let answer = lock(&lab.store()).reserve(&seed, &subnet("10.1.0.0/24"), &[]);
    let refused = answer.unwrap_err().to_string();
    assert!(refused.contains("larger than 64 KiB"), "{refused}");
    assert_eq!(lab.store().records().unwrap(), (vec![], vec![]));
    assert_eq!(claims(&lab), [""; 0]);
}

#[test]
fn a_kernel_without_a_boot_id_is_an_error() {
    let lab = Lab::new();
    lab.boot("");
    let error = add(&lab.store(), "one", &subnet("10.1.0.0/24")).unwrap_err();
    assert!(matches!(error, StoreError::NoBootId { .. }), "{error}");
}

/// Whatever the file of a record contains, its address is not given again, other
/// records are read, and a DEL frees it.
#[test]
fn damaged_records_are_reported_and_keep_their_addresses() {
    let huge = " ".repeat(100_000);
    let lab = Lab::new();
    let whole = add(&lab.store(), "other", &subnet("10.1.0.0/24")).unwrap();
    let foreign = serde_json::to_string(&whole).unwrap();
    for content in ["", "{", "[]", "null", "\u{0}\u{0}", "{}", &huge, &foreign] {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = ranges(r#"{"subnet":"10.1.0.0/29","rangeEnd":"10.1.0.3"}"#);
        add(&store, "one", &ranges).unwrap();
        let path = lab.path("attachments").join(attachment("one").id());
        fs::write(&path, content).unwrap();

        let two = add(&store, "two", &ranges).unwrap();
        let (records, problems) = store.records().unwrap();
        assert_eq!(records, [two]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].path, path);
        let full = add(&store, "three", &ranges).unwrap_err();
        assert!(matches!(full, StoreError::Exhausted { .. }), "{full}");
        let again = add(&store, "one", &ranges).unwrap_err();
        assert!(matches!(again, StoreError::Damaged { .. }), "{again}");
        assert!(again.to_string().contains(path.to_str().unwrap()));
        sweep(&store);
        assert_eq!(claims(&lab), ["10.1.0.2", "10.1.0.3"]);

        del(&store, "one");
        let three = add(&store, "three", &ranges).unwrap();
        assert_eq!(addresses(&three), ["10.1.0.2"]);
    }
}

#[test]
fn foreign_files_are_reported_and_left_alone() {
    let lab = Lab::new();
    let store = lab.store();
    let one = add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
    let id = "0".repeat(64);
    fs::create_dir(lab.path("10.1.0.3")).unwrap();
    symlink("/nowhere", lab.path("10.1.0.4")).unwrap();
    fs::write(lab.path("10.1.0.05"), "").unwrap();
    fs::write(lab.path("README"), "").unwrap();
    fs::write(lab.path("attachments/notes"), "").unwrap();
    fs::create_dir(lab.path("attachments").join(&id)).unwrap();
    nix::unistd::mkfifo(
        &lab.path("attachments").join("1".repeat(64)),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    symlink("/etc/passwd", lab.path("attachments").join("2".repeat(64))).unwrap();

    let (records, problems) = store.records().unwrap();
    assert_eq!(records, [one]);
    let named: Vec<String> = problems
        .iter()
        .map(|p| p.path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        named,
        [
            "10.1.0.05",
            "10.1.0.3",
            "README",
            &id,
            &"1".repeat(64),
            &"2".repeat(64),
            "notes"
        ]
    );
    sweep(&store);
    assert_eq!(given(&lab, "two", "10.1.0.0/24"), ["10.1.0.5"]);
    lab.boot(BOOT_2);
    assert_eq!(given(&lab, "three", "10.1.0.0/24"), ["10.1.0.6"]);
    assert!(lab.path("10.1.0.3").is_dir() && lab.path("README").is_file());
    assert!(lab.path("10.1.0.4").is_symlink());
}

#[test]
fn an_obstacle_is_named_with_its_cure() {
    let lab = Lab::new();
    let store = lab.store();
    given(&lab, "one", "10.1.0.0/24");
    fs::remove_file(lab.path("last_reserved_ip.0")).unwrap();
    fs::create_dir(lab.path("last_reserved_ip.0")).unwrap();
    let error = add(&store, "two", &subnet("10.1.0.0/24")).unwrap_err();
    assert!(error.to_string().contains("last_reserved_ip.0"), "{error}");
    assert!(error.to_string().contains("move it elsewhere"), "{error}");

    let lab = Lab::new();
    fs::write(lab.data_dir(), "a file in place of the folder").unwrap();
    let error = add(&lab.store(), "one", &subnet("10.1.0.0/24")).unwrap_err();
    assert!(error.to_string().contains("/data/net"), "{error}");
}

/// A person removes the record of a pod that runs.
#[test]
fn a_claim_without_a_record_counts_while_the_link_is_there() {
    let lab = Lab::new();
    let store = lab.seen_with(BOOT_1, |_| true);
    let range = ranges(r#"{"subnet":"10.1.0.0/29","rangeEnd":"10.1.0.2"}"#);
    add(&store, "one", &range).unwrap();
    fs::remove_file(lab.path("attachments").join(attachment("one").id())).unwrap();
    // A full range, a request, a sweep, a GC that does not list it, and another boot ID.
    let full = add(&store, "two", &range).unwrap_err();
    assert!(matches!(full, StoreError::Exhausted { .. }), "{full}");
    add_asking(&store, "two", &range, &["10.1.0.2"]).unwrap_err();
    sweep(&store);
    let swept = tweed_ipam::sweep::gc(&store, WAIT, &[], detach).unwrap();
    assert_eq!(swept.void_claims.len(), 0);
    drop(lock(&lab.seen_with(BOOT_2, |_| true)));
    assert_eq!(claims(&lab), ["10.1.0.2"]);

    // Its DEL removes the link first.
    let freed = lock(&store).free(&attachment("one")).unwrap().unwrap();
    assert_eq!((freed.addresses.len(), freed.is_complete()), (1, false));
    assert_eq!(claims(&lab), [""; 0]);
    assert_eq!(lock(&store).free(&attachment("one")).unwrap(), None);
}

#[test]
fn a_claim_with_neither_a_record_nor_a_link_is_void() {
    let lab = Lab::new();
    let store = lab.store();
    let range = ranges(r#"{"subnet":"10.1.0.0/29","rangeEnd":"10.1.0.2"}"#);
    add(&store, "one", &range).unwrap();
    fs::remove_file(lab.path("attachments").join(attachment("one").id())).unwrap();
    add(&store, "two", &range).unwrap();
    assert_sound(&store);
}
