//! GC removes attachments that the runtime does not list, and nothing else.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use tweed_lab::{PluginCall, Pod};

use crate::fixture::{Fixture, assert_refused_with, assert_silent, with_prev_result};

subjects! {
    all: a_listed_attachment_stays, an_empty_store_is_success;
    tweed: an_unlisted_attachment_is_removed, an_empty_list_frees_all, the_older_key_is_accepted,
        the_newer_key_wins, without_a_list_live_attachments_stay, null_counts_as_no_list,
        without_a_list_dead_attachments_are_freed, without_a_list_a_renamed_link_keeps_its_attachment, another_network_is_left_alone,
        foreign_links_are_left_alone, foreign_files_are_left_alone,
        a_leaked_link_is_deleted, a_claim_whose_record_was_removed_goes_with_its_link, a_listed_link_without_a_record_stays,
        another_interface_of_the_container_is_not_listed_with_it,
        a_damaged_record_is_removed_with_its_link, a_damaged_record_takes_no_foreign_link_along,
        a_link_with_another_alias_is_removed_with_its_record, a_list_of_another_shape_frees_nothing,
        an_attachment_whose_result_was_not_saved_is_removed, cnitools_gc;
}

/// The names of attachments, as a runtime lists them.
fn listed(pods: &[&Pod]) -> Value {
    pods.iter()
        .map(|pod| json!({ "containerID": pod.container_id(), "ifname": "eth0" }))
        .collect()
}

fn gc_with(fixture: &Fixture, key: &str, list: Value) {
    let mut config = fixture.config();
    config[key] = list;
    assert_silent(&fixture.run(&PluginCall::new("GC").config(&config)));
}

fn gc(fixture: &Fixture, pods: &[&Pod]) {
    gc_with(fixture, "cni.dev/valid-attachments", listed(pods));
}

fn links(fixture: &Fixture) -> Vec<String> {
    let links = fixture.node.netns().json("ip -j link show").unwrap();
    let names = links.as_array().unwrap().iter();
    names
        .map(|link| link["ifname"].as_str().unwrap().to_owned())
        .collect()
}

fn an_empty_store_is_success(fixture: &Fixture) {
    let before = fixture.snapshot();
    gc(fixture, &[]);
    fixture.assert_nothing_left(&before);
}

fn a_listed_attachment_stays(fixture: &Fixture) {
    let pods = ["one", "two"].map(|name| fixture.pod(name));
    let added = [0, 1].map(|i: usize| fixture.add(&pods[i]));
    let (before, reserved) = (fixture.snapshot(), fixture.reserved());
    gc(fixture, &[&pods[0], &pods[1]]);
    fixture.assert_same_kernel(&before);
    assert_eq!(fixture.reserved(), reserved);
    for (pod, added) in pods.iter().zip(&added) {
        assert_silent(&fixture.check(pod, added));
    }
}

fn an_unlisted_attachment_is_removed(fixture: &Fixture) {
    let [kept_pod, removed_pod] = ["kept", "removed"].map(|name| fixture.pod(name));
    let kept = fixture.add(&kept_pod);
    let before = fixture.snapshot();
    fixture.add(&removed_pod);
    gc(fixture, &[&kept_pod]);
    fixture.assert_same_kernel(&before);
    assert_eq!(fixture.reserved(), [kept.address().unwrap()].into());
    assert_silent(&fixture.check(&kept_pod, &kept));
    // The runtime may still call DEL.
    fixture.del(&removed_pod);
}

fn an_empty_list_frees_all(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pods = ["one", "two", "three"].map(|name| fixture.pod(name));
    pods.iter().for_each(|pod| drop(fixture.add(pod)));
    gc(fixture, &[]);
    fixture.assert_nothing_left(&before);
}

fn the_older_key_is_accepted(fixture: &Fixture) {
    let [kept_pod, removed_pod] = ["kept", "removed"].map(|name| fixture.pod(name));
    let kept = fixture.add(&kept_pod).address().unwrap();
    fixture.add(&removed_pod);
    gc_with(fixture, "cni.dev/attachments", listed(&[&kept_pod]));
    assert_eq!(fixture.reserved(), [kept].into());
}

fn the_newer_key_wins(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let kept = fixture.add(&pod).address().unwrap();
    let mut config = fixture.config();
    config["cni.dev/attachments"] = json!([]);
    config["cni.dev/valid-attachments"] = listed(&[&pod]);
    assert_silent(&fixture.run(&PluginCall::new("GC").config(&config)));
    assert_eq!(fixture.reserved(), [kept].into());
}

fn without_a_list_live_attachments_stay(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let kept = fixture.add(&pod);
    assert_silent(&fixture.run(&PluginCall::new("GC").config(&fixture.config())));
    assert_eq!(fixture.reserved(), [kept.address().unwrap()].into());
    assert_silent(&fixture.check(&pod, &kept));
}

fn null_counts_as_no_list(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let kept = fixture.add(&pod);
    gc_with(fixture, "cni.dev/valid-attachments", Value::Null);
    assert_silent(&fixture.check(&pod, &kept));
}

fn without_a_list_dead_attachments_are_freed(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    fixture.add(&pod);
    drop(pod);
    fixture.assert_same_kernel(&before);
    assert_eq!(fixture.reserved().len(), 1);
    assert_silent(&fixture.run(&PluginCall::new("GC").config(&fixture.config())));
    fixture.assert_nothing_left(&before);
}

/// The pod still has the address.
fn without_a_list_a_renamed_link_keeps_its_attachment(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let kept = fixture.add(&pod);
    let name = kept.host_link();
    let rename = |from: &str, to: &str| {
        let lines = [
            format!("link set {from} down"),
            format!("link set {from} name {to}"),
        ];
        fixture.node.netns().ip(lines).unwrap();
    };
    rename(name, "away0");
    assert_silent(&fixture.run(&PluginCall::new("GC").config(&fixture.config())));
    assert_eq!(fixture.reserved(), [kept.address().unwrap()].into());
    rename("away0", name);
}

fn another_network_is_left_alone(fixture: &Fixture) {
    let mut others = fixture.config();
    others["name"] = "other".into();
    others["ipam"]["ranges"] = json!([[{ "subnet": "10.245.1.0/24" }]]);
    let pod = fixture.pod("pod");
    let added = fixture.add_with(&pod, &others);
    let before = fixture.snapshot();
    fixture.add(&fixture.pod("mine"));
    gc(fixture, &[]);
    fixture.assert_nothing_left(&before);
    let config = with_prev_result(others, &added);
    assert_silent(&fixture.run(&fixture.call("CHECK", &pod).config(&config)));
}

fn foreign_links_are_left_alone(fixture: &Fixture) {
    fixture
        .node
        .netns()
        .ip([
            "link add tw0123456789ab type bridge",
            "link add tw0123456789ac type bridge",
            "link set tw0123456789ac group 116",
            "link add tw0123456789ad type bridge",
            "link set tw0123456789ad alias tweed:pods/c1/eth0",
            "link add br7 type bridge",
            "link set br7 group 116 alias tweed:pods/c1/eth0",
            "link add tw0123456789ae type bridge",
            "link set tw0123456789ae group 116 alias tweed:pods2/c1/eth0",
        ])
        .unwrap();
    let before = fixture.snapshot();
    fixture.add(&fixture.pod("pod"));
    gc(fixture, &[]);
    fixture.assert_nothing_left(&before);
}

fn foreign_files_are_left_alone(fixture: &Fixture) {
    fixture.add(&fixture.pod("pod"));
    let store = fixture.store();
    fs::write(store.join("10.244.1.77"), "of-host-local\neth0").unwrap();
    fs::write(store.join("notes.txt"), "mine").unwrap();
    fs::create_dir(store.join("folder")).unwrap();
    fs::write(store.join("attachments/README"), "mine").unwrap();
    symlink("/etc/passwd", store.join("10.244.1.78")).unwrap();
    gc(fixture, &[]);
    for name in [
        "10.244.1.77",
        "notes.txt",
        "folder",
        "attachments/README",
        "lock",
    ] {
        assert!(store.join(name).exists(), "{name}");
    }
    assert!(fs::metadata("/etc/passwd").unwrap().len() > 0);
    assert!(!fixture.reserved().contains(&"10.244.1.2".parse().unwrap()));
}

fn a_leaked_link_is_deleted(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    fixture.add(&pod);
    fs::remove_dir_all(fixture.data_dir()).unwrap();
    gc(fixture, &[]);
    fixture.assert_nothing_left(&before);
    fixture.add(&pod);
}

fn a_claim_whose_record_was_removed_goes_with_its_link(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    fixture.add(&pod);
    for record in fs::read_dir(fixture.store().join("attachments")).unwrap() {
        fs::remove_file(record.unwrap().path()).unwrap();
    }
    gc(fixture, &[&pod]);
    assert_eq!(fixture.reserved().len(), 1);
    gc(fixture, &[]);
    fixture.assert_nothing_left(&before);
}

fn a_listed_link_without_a_record_stays(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    fs::remove_dir_all(fixture.data_dir()).unwrap();
    gc(fixture, &[&pod]);
    assert!(links(fixture).contains(&added.host_link().to_owned()));
}

fn another_interface_of_the_container_is_not_listed_with_it(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let kept = fixture.add(&pod).address().unwrap();
    let mut config = fixture.config();
    config["ipam"]["routes"] = json!([{ "dst": "10.99.0.0/16" }]);
    let second = fixture.call("ADD", &pod).ifname("net1").config(&config);
    assert_eq!(fixture.run(&second).code, Some(0));
    gc(fixture, &[&pod]);
    assert_eq!(fixture.reserved(), [kept].into());
}

fn a_damaged_record_is_removed_with_its_link(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    fixture.add(&pod);
    for entry in fs::read_dir(fixture.store().join("attachments")).unwrap() {
        fs::write(entry.unwrap().path(), "{\"version\":").unwrap();
    }
    gc(fixture, &[]);
    fixture.assert_nothing_left(&before);
}

/// One with the name of the pod's, and neither its group nor its alias.
fn a_damaged_record_takes_no_foreign_link_along(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let link = fixture.add(&pod).host_link().to_owned();
    for entry in fs::read_dir(fixture.store().join("attachments")).unwrap() {
        fs::write(entry.unwrap().path(), "{").unwrap();
    }
    let line = format!("link set {link} group 0 alias mine");
    fixture.node.netns().ip([line]).unwrap();
    gc(fixture, &[]);
    assert!(links(fixture).contains(&link));
}

/// Otherwise its address could be given to another pod while the link is in use.
fn a_link_with_another_alias_is_removed_with_its_record(fixture: &Fixture) {
    let before = fixture.snapshot();
    for damaged in [false, true] {
        let pod = fixture.pod(&format!("pod-{damaged}"));
        let added = fixture.add(&pod);
        let line = format!("link set {} alias mine", added.host_link());
        fixture.node.netns().ip([line]).unwrap();
        if damaged {
            for entry in fs::read_dir(fixture.store().join("attachments")).unwrap() {
                fs::write(entry.unwrap().path(), "{").unwrap();
            }
        }
        gc(fixture, &[]);
        fixture.assert_nothing_left(&before);
    }
}

fn a_list_of_another_shape_frees_nothing(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let kept = fixture.add(&pod);
    for list in [
        json!("all"),
        json!({}),
        json!([7]),
        json!([{ "containerID": "x" }]),
    ] {
        let mut config = fixture.config();
        config["cni.dev/valid-attachments"] = list;
        let output = fixture.run(&PluginCall::new("GC").config(&config));
        assert_refused_with(&output, 7, &["cni.dev/valid-attachments"]);
    }
    assert_silent(&fixture.check(&pod, &kept));
}

/// The runtime was killed before it saved the result of an ADD: it does not list that
/// attachment, but lists the others.
fn an_attachment_whose_result_was_not_saved_is_removed(fixture: &Fixture) {
    let [known, lost] = ["known", "lost"].map(|name| fixture.pod(name));
    let kept = fixture.add(&known);
    let before = fixture.snapshot();
    fixture.add(&lost);
    drop(lost);
    gc(fixture, &[&known]);
    fixture.assert_same_kernel(&before);
    assert_eq!(fixture.reserved(), [kept.address().unwrap()].into());
}

/// `cnitool gc` calls DEL for each cached result, then GC with a list that is null.
fn cnitools_gc(fixture: &Fixture) {
    let before = fixture.snapshot();
    let cached = fixture.pod("cached");
    fixture.tool().add(&cached).unwrap();
    let [lives, died] = ["lives", "died"].map(|name| fixture.pod(name));
    let without_died = fixture.snapshot();
    fixture.add(&died);
    drop(died);
    fixture.assert_same_kernel(&without_died);
    let added = fixture.add(&lives);
    fixture.tool().gc().unwrap();
    assert_eq!(fixture.reserved(), [added.address().unwrap()].into());
    assert_silent(&fixture.check(&lives, &added));
    fixture.del(&lives);
    fixture.assert_nothing_left(&before);
}
