//! The frozen format of a record, and records of other versions.

use std::fs;

use tweed_cni::Route;
use tweed_ipam::record::{Made, Record, State};
use tweed_ipam::store::LOCK_WAIT;

use crate::common::*;

/// A record of a later version, with keys that this one does not know, and
/// the least that an earlier one may have written.
#[test]
fn records_of_neighbouring_versions_count() {
    let lab = Lab::new();
    let store = lab.store();
    let one = add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
    let path = lab.path("attachments").join(attachment("one").id());

    let mut later: serde_json::Value = serde_json::to_value(&one).unwrap();
    later["version"] = 2.into();
    later["bandwidth"] = serde_json::json!({ "ingressRate": 1 });
    fs::write(&path, later.to_string()).unwrap();
    let read = store.read(&attachment("one")).unwrap().unwrap();
    assert_eq!(Record { version: 1, ..read }, one);

    let earlier = format!(
        r#"{{"version":0,"network":"net","containerId":"one","ifname":"eth0",
            "addresses":["10.1.0.2/24"],"owner":"tweed","bootId":"{BOOT_1}",
            "state":{{"is":"adding","by":{{"pid":1,"startTime":2}}}}}}"#
    );
    fs::write(&path, earlier).unwrap();
    let read = store.read(&attachment("one")).unwrap().unwrap();
    assert!(matches!(read.state, State::Adding { .. }));
    assert_eq!((read.link, read.pod_uid), (None, None));
    // Nobody holds its lock.
    assert_eq!(sweep(&store).freed.len(), 1);
    assert_eq!(claims(&lab), [""; 0]);
}

/// Frozen: another version of this program reads it.
#[test]
fn the_format_of_a_record_is_frozen() {
    let lab = Lab::new();
    let mut whole = seed("one");
    whole.netns = Some("/run/netns/one".to_owned());
    whole.link = Some(whole.attachment().link_name());
    whole.host_mac = Some(whole.attachment().host_mac());
    whole.pod_mac = Some(whole.attachment().pod_mac());
    whole.mtu = Some(1450);
    whole.host_netns = Some(4_026_531_840);
    whole.ipam = Some("host-local".to_owned());
    whole.pod_uid = Some("7a1b".to_owned());
    whole.pod = Some(tweed_core::attachment::PodName {
        namespace: "default".to_owned(),
        name: "web-0".to_owned(),
    });
    let store = lab.store();
    let record = lock(&store)
        .reserve(&whole, &subnet("10.1.0.0/24"), &[])
        .unwrap();
    let State::Adding { by } = record.state else {
        panic!("{record:?}");
    };
    let path = lab.path("attachments").join(attachment("one").id());
    let text = fs::read_to_string(path).unwrap();
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    let frozen = serde_json::json!({
        "version": 1,
        "network": "net",
        "containerId": "one",
        "ifname": "eth0",
        "netns": "/run/netns/one",
        "addresses": ["10.1.0.2/24"],
        "ipam": "host-local",
        "hostNetns": 4_026_531_840_u64,
        "owner": "tweed",
        "link": "tw35e70c953497",
        "hostMac": whole.host_mac.unwrap().to_string(),
        "podMac": whole.pod_mac.unwrap().to_string(),
        "mtu": 1450,
        "pod": { "namespace": "default", "name": "web-0" },
        "podUid": "7a1b",
        "bootId": BOOT_1,
        "state": { "is": "adding", "by": {
            "pid": by.pid, "startTime": by.start_time, "pidNamespace": by.pid_namespace } },
        "held": true,
    });
    assert_eq!(found, frozen);
    assert_eq!(
        fs::read_link(lab.path("10.1.0.2")).unwrap().to_str(),
        Some(format!("attachments/{}", attachment("one").id()).as_str())
    );
}

/// What the ADD did is written when it is done, and is frozen too.
#[test]
fn a_live_record_says_what_the_add_did() {
    let lab = Lab::new();
    let store = lab.store();
    let mut held = lock(&store)
        .reserve(&seed("one"), &subnet("10.1.0.0/24"), &[])
        .unwrap();
    let made = Made {
        host_source: vec!["192.0.2.7".parse().unwrap()],
        routes: vec![Route {
            gw: Some("169.254.1.1".parse().unwrap()),
            table: Some(100),
            ..Route::to("10.0.0.0/8".parse().unwrap())
        }],
        unwritten: vec!["accept_ra".to_owned()],
    };
    held.set_made(made.clone());
    store.mark_live(&held, LOCK_WAIT).unwrap();
    drop(held);
    let path = lab.path("attachments").join(attachment("one").id());
    let text = fs::read_to_string(path).unwrap();
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    let frozen = serde_json::json!({
        "hostSource": ["192.0.2.7"],
        "routes": [{ "dst": "10.0.0.0/8", "gw": "169.254.1.1", "table": 100 }],
        "unwritten": ["accept_ra"],
    });
    assert_eq!(found["made"], frozen);
    let read = store.read(&attachment("one")).unwrap().unwrap();
    assert_eq!(read.made, Some(made));
}
