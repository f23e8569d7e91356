//! Two programs of one boot that read different boot IDs, as the plugin on a node that
//! is an LXC container, and an agent in a container there.

use std::fs::{self, File};
use std::sync::Mutex;
use std::time::SystemTime;

use nix::sched::{CloneFlags, unshare};
use tweed_ipam::record::State;
use tweed_ipam::store::{Held, OtherBootId, Store};

use crate::common::*;

fn add_with_link(store: &Store, container_id: &str) -> String {
    let mut seed = seed(container_id);
    seed.link = Some(seed.attachment().link_name());
    let mut locked = lock(store);
    let held = locked.reserve(&seed, &subnet("10.1.0.0/24"), &[]).unwrap();
    let record = locked.mark_live(&held).unwrap();
    addresses(&record).remove(0)
}

#[test]
fn a_record_whose_link_is_there_counts_for_both() {
    let lab = Lab::new();
    let plugin = lab.seen_with(BOOT_1, |_| true);
    let agent = lab.seen_with(BOOT_2, |_| true);
    let first = add_with_link(&plugin, "one");
    let records = plugin.records().unwrap().0;
    assert_eq!(records.len(), 1);
    let usage = |store: &Store| store.usage(&subnet("10.1.0.0/24")).unwrap()[0].used;

    for _ in 0..2 {
        drop(lock(&agent));
        sweep(&agent);
        assert_eq!(agent.records().unwrap().0, records);
        assert_eq!(plugin.records().unwrap().0, records);
        assert_eq!((usage(&agent), usage(&plugin)), (1, 1));
        assert_eq!(
            agent.read(&attachment("one")).unwrap().as_ref(),
            records.first()
        );
    }
    let ids = OtherBootId {
        here: BOOT_2.to_owned(),
        in_store: BOOT_1.to_owned(),
    };
    assert_eq!(agent.other_boot_id().unwrap(), Some(ids));
    assert_eq!(plugin.other_boot_id().unwrap(), None);

    // What either writes, the other reads.
    let second = add_with_link(&agent, "two");
    assert_ne!(first, second);
    assert_eq!(plugin.records().unwrap().0.len(), 2);
    del(&plugin, "two");
    del(&agent, "one");
    assert_eq!(claims(&lab), [""; 0]);
    assert_eq!(
        agent.other_boot_id().unwrap(),
        None,
        "nothing proves it any more"
    );
}

/// The store's boot ID may be lost, or be that of the program that finds no link.
#[test]
fn a_link_that_is_there_keeps_its_record_whatever_the_folder_says() {
    for marker in [None, Some(""), Some(BOOT_2)] {
        let lab = Lab::new();
        add_with_link(&lab.seen_with(BOOT_1, |_| true), "one");
        match marker {
            None => fs::remove_file(lab.path("boot_id")).unwrap(),
            Some(text) => fs::write(lab.path("boot_id"), text).unwrap(),
        }
        let other = lab.seen_with("33333333-3333-4333-8333-333333333333", |_| true);
        let two = add_with_link(&other, "two");
        assert_eq!(two, "10.1.0.3", "{marker:?}");
        assert_eq!(other.records().unwrap().0.len(), 2, "{marker:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_keeps_its_address_while_its_link_is_there() {
    let lab = Lab::new();
    let store = lab.seen_with(BOOT_1, |_| true);
    add_with_link(&store, "one");
    fs::write(lab.path("attachments").join(attachment("one").id()), "{").unwrap();
    drop(lock(&lab.seen_with(BOOT_2, |_| true)));
    assert_eq!(claims(&lab), ["10.1.0.2"]);
    drop(lock(&lab.seen_with(BOOT_1, |_| false)));
    assert_eq!(claims(&lab), [""; 0]);
}

/// An ADD has no link yet, but holds its record's lock.
#[test]
fn an_add_at_work_is_not_of_another_boot() {
    let lab = Lab::new();
    let plugin = lab.seen_with(BOOT_1, |_| false);
    let agent = lab.seen_with(BOOT_2, |_| false);
    let ranges = subnet("10.1.0.0/24");
    let held = lock(&plugin).reserve(&seed("one"), &ranges, &[]).unwrap();
    drop(lock(&agent));
    sweep(&agent);
    let live = plugin.mark_live(&held, WAIT).unwrap();
    assert_eq!(live.state, State::Live);
    assert_eq!(plugin.records().unwrap().0, [live]);
    // Now nothing shows any more that it is of this boot.
    assert_eq!(agent.records().unwrap().0, []);
    drop(lock(&agent));
    assert_eq!(plugin.records().unwrap().0, []);
}

/// The agent's sweep has asked for the boot ID, finds nothing in use, and then the plugin
/// writes a record.
#[test]
fn an_add_that_begins_during_a_sweep_is_not_of_another_boot() {
    static PLUGIN: Mutex<Option<Store>> = Mutex::new(None);
    static HELD: Mutex<Option<Held>> = Mutex::new(None);
    fn no_link(_: &str) -> bool {
        if let Some(plugin) = PLUGIN.lock().unwrap().take() {
            let ranges = subnet("10.1.0.0/24");
            let held = lock(&plugin).reserve(&seed("two"), &ranges, &[]);
            *HELD.lock().unwrap() = Some(held.unwrap());
        }
        false
    }
    let lab = Lab::new();
    let plugin = || lab.seen_with(BOOT_1, |_| true);
    // Its link is what the sweep looks for.
    add_with_link(&plugin(), "one");
    *PLUGIN.lock().unwrap() = Some(plugin());
    let swept = sweep(&lab.seen_with(BOOT_2, no_link));
    assert!(swept.freed.is_empty(), "{swept:?}");
    let held = HELD.lock().unwrap().take().unwrap();
    let live = plugin().mark_live(&held, WAIT).unwrap();
    assert_eq!(addresses(&live), ["10.1.0.3"]);
    assert!(claims(&lab).contains(&"10.1.0.3".to_owned()));
}

/// The path is that of the caller's own namespace, as after a reboot one with the number
/// of another process is.
#[test]
fn a_namespace_that_is_not_the_pods_proves_nothing() {
    for netns in ["/proc/self/ns/net", "/etc/passwd", "/nowhere"] {
        let lab = Lab::new();
        let mut seed = seed("one");
        seed.netns = Some(netns.to_owned());
        let store = lab.store();
        let mut locked = lock(&store);
        let held = locked.reserve(&seed, &subnet("10.1.0.0/24"), &[]).unwrap();
        locked.mark_live(&held).unwrap();
        drop((locked, held));
        lab.boot(BOOT_2);
        assert_eq!(lab.store().records().unwrap().0, [], "{netns}");
    }
}

/// A path of a namespace may be there again after a reboot, as of `ip netns add blue` in a
/// unit: a record of the boot before is older than the machine's start.
#[test]
fn a_namespace_proves_nothing_of_a_record_that_is_older_than_the_boot() {
    // That of the process, as seen from a thread in another one.
    let netns = format!("/proc/{}/ns/net", std::process::id());
    unshare(CloneFlags::CLONE_NEWNET).expect("this test needs root");
    for (written, kept) in [(SystemTime::now(), 1), (SystemTime::UNIX_EPOCH, 0)] {
        let lab = Lab::new();
        let mut seed = seed("one");
        seed.netns = Some(netns.clone());
        let store = lab.store();
        let mut locked = lock(&store);
        let held = locked.reserve(&seed, &subnet("10.1.0.0/24"), &[]).unwrap();
        locked.mark_live(&held).unwrap();
        drop((locked, held));
        let record = lab.path("attachments").join(attachment("one").id());
        let file = File::options().write(true).open(record).unwrap();
        file.set_modified(written).unwrap();
        lab.boot(BOOT_2);
        assert_eq!(lab.store().records().unwrap().0.len(), kept, "{written:?}");
        drop(lock(&lab.store()));
        assert_eq!(claims(&lab).len(), kept, "{written:?}");
    }
}
