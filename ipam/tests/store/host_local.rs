//! Files of host-local in a folder that this store took over, and in host-local's default
//! folder.

use std::fs;
use std::path::{Path, PathBuf};

use tweed_ipam::record::Record;
use tweed_ipam::store::StoreError;

use crate::common::*;

fn write(folder: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("lock"), "").unwrap();
    for (address, text) in files {
        fs::write(folder.join(address), text).unwrap();
    }
}

/// What is in a folder besides the lock.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let all = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = all.filter(|name| name != "lock").collect();
    names.sort();
    names
}

/// As with a config of host-local without `dataDir`, of which only the type was changed.
#[test]
fn addresses_in_the_default_folder_are_taken_until_their_container_is_deleted() {
    let lab = Lab::new();
    let data_dir = lab.data_dir().with_file_name("networks");
    let store = lab.store().after_host_local(&data_dir);
    let ranges = subnet("10.1.0.0/29");
    let given = |who: &str| addresses(&add(&store, who, &ranges).unwrap());
    assert_eq!(given("before"), ["10.1.0.2"]);

    let theirs = data_dir.join(NETWORK);
    write(
        &theirs,
        &[("10.1.0.3", "one\r\neth0"), ("10.1.0.4", "two\r\neth0")],
    );
    assert_eq!(given("three"), ["10.1.0.5"]);
    let error = add_asking(&store, "four", &ranges, &["10.1.0.4"]).unwrap_err();
    let refused = error.to_string();
    assert!(
        refused.contains(theirs.join("10.1.0.4").to_str().unwrap()),
        "{refused}"
    );
    assert_eq!(given("four"), ["10.1.0.6"]);
    // Also where the range is full and the folder is listed.
    let full = add(&store, "five", &ranges).unwrap_err();
    assert!(
        matches!(full, StoreError::Exhausted { used: 5, .. }),
        "{full}"
    );
    assert_eq!(store.usage(&ranges).unwrap()[0].free, 0);

    let freed = store.free_host_local(&attachment("two"), WAIT).unwrap();
    assert_eq!(freed, ["10.1.0.4".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(files(&theirs), ["10.1.0.3"]);
    assert_eq!(given("five"), ["10.1.0.4"]);
}

/// host-local leaks an address if its ADD is killed, and has no GC.
#[test]
fn a_gc_removes_the_files_of_attachments_that_are_not_listed() {
    let lab = Lab::new();
    let data_dir = lab.data_dir().with_file_name("networks");
    let store = lab.store().after_host_local(&data_dir);
    let theirs = data_dir.join(NETWORK);
    for (folder, last) in [(lab.path(""), 0), (theirs.clone(), 100)] {
        let address = |n: u8| format!("10.1.0.{}", n + last);
        let contents = [
            (2, "listed\r\neth0"),
            (3, "listed\r\nnet1"),
            (4, "gone\r\neth0"),
            (5, "listed"),
            (6, "gone"),
            (7, "recorded\r\neth0"),
            (8, "no container\r\neth0"),
            (9, ""),
        ];
        for (n, text) in contents {
            write(&folder, &[(&address(n), text)]);
        }
        fs::write(folder.join("last_reserved_ip.0"), address(9)).unwrap();
    }
    // An ADD by host-local that the runtime does not list yet.
    let by_host_local = Record {
        ipam: Some("host-local".to_owned()),
        ..seed("recorded")
    };
    let _held = lock(&store).track(&by_host_local, Vec::new()).unwrap();

    let valid = [attachment("listed")];
    let swept = tweed_ipam::sweep::gc(&store, WAIT, &valid, detach).unwrap();
    let mut removed: Vec<PathBuf> = swept.host_local;
    removed.sort();
    let gone =
        |folder: &Path, last: u8| [3, 4, 6].map(|n| folder.join(format!("10.1.0.{}", n + last)));
    let mut expected = [gone(&lab.path(""), 0), gone(&theirs, 100)].concat();
    expected.sort();
    assert_eq!(removed, expected);
    assert_eq!(
        claims(&lab),
        ["10.1.0.2", "10.1.0.5", "10.1.0.7", "10.1.0.8", "10.1.0.9"]
    );
    assert_eq!(files(&theirs).len(), 6);

    // Without a list nothing shows that a file is nobody's.
    sweep(&store);
    assert_eq!(files(&theirs).len(), 6);
}

#[test]
fn a_full_range_counts_the_files_of_host_local_and_names_their_folder() {
    let lab = Lab::new();
    let data_dir = lab.data_dir().with_file_name("networks");
    let store = lab.store().after_host_local(&data_dir);
    let ranges = subnet("10.1.0.0/29");
    add(&store, "one", &ranges).unwrap();
    let theirs = data_dir.join(NETWORK);
    write(
        &theirs,
        &[
            ("10.1.0.3", "a\r\neth0"),
            ("10.1.0.4", ""),
            ("10.9.0.1", "b\r\neth0"),
        ],
    );
    write(
        &lab.path(""),
        &[("10.1.0.5", "c\r\neth0"), ("10.1.0.6", "d\r\neth0")],
    );
    let full = add(&store, "two", &ranges).unwrap_err().to_string();
    assert!(full.contains("5 of 5 addresses are taken, "), "{full}");
    for folder in [&theirs, &lab.path("")] {
        let path = folder.display().to_string();
        let folder = path.trim_end_matches('/');
        let count = format!("2 of them by files of host-local in {folder}, ");
        assert!(full.contains(&count), "{count}: {full}");
    }
}

#[test]
fn a_del_removes_the_files_that_name_its_container() {
    let lab = Lab::new();
    let store = lab.store();
    fs::create_dir_all(lab.path("")).unwrap();
    fs::write(lab.path("lock"), "").unwrap();
    let left_by = |text: &str, addresses: &[&str]| {
        for address in addresses {
            fs::write(lab.path(address), text).unwrap();
        }
    };
    left_by("one\r\neth0", &["10.1.0.2", "fd00::2"]);
    left_by("one\r\nnet1", &["10.1.0.3"]);
    left_by("early", &["10.1.0.4"]);
    left_by("", &["10.1.0.5"]);
    let free = |who: &str| {
        let mut freed = store.free_host_local(&attachment(who), WAIT).unwrap();
        freed.sort();
        freed.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // Before the first ADD of this store, and after it.
    assert_eq!(free("other"), [""; 0]);
    assert_eq!(free("one"), ["10.1.0.2", "fd00::2"]);
    add(&store, "new", &subnet("10.1.0.0/24")).unwrap();
    assert_eq!(free("new"), [""; 0]);
    assert_eq!(free("early"), ["10.1.0.4"]);
    assert_eq!(claims(&lab), ["10.1.0.2", "10.1.0.3", "10.1.0.5"]);
}
