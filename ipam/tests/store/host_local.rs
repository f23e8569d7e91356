//! Files of host-local in a folder that this store took over.

use std::fs;

use crate::common::*;

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
