//! GC: what the runtime does not list goes; nothing else does.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use tweed_lab::{PluginCall, Pod};

use crate::bench::{Bench, refused_with, silent, with_prev_result};

subjects! {
    all: a_listed_attachment_stays, an_empty_store_is_success;
    tweed: what_is_not_listed_goes, an_empty_list_frees_all, the_older_key_counts_too,
        the_newer_key_wins, no_list_frees_nothing_that_lives, null_is_no_list,
        no_list_frees_what_is_provably_dead, another_network_is_left_alone,
        foreign_links_are_left_alone, foreign_files_are_left_alone,
        a_leaked_link_goes, a_listed_link_without_a_record_stays,
        another_interface_of_the_container_is_not_listed_with_it,
        a_damaged_record_goes_with_its_link, a_list_of_another_shape_frees_nothing,
        what_an_add_left_before_its_result_was_saved_goes, cnitools_gc;
}

/// The names of attachments, as a runtime lists them.
fn listed(pods: &[&Pod]) -> Value {
    pods.iter()
        .map(|pod| json!({ "containerID": pod.container_id(), "ifname": "eth0" }))
        .collect()
}

fn gc_with(bench: &Bench, key: &str, list: Value) {
    let mut config = bench.config();
    config[key] = list;
    silent(&bench.run(&PluginCall::new("GC").config(&config)));
}

fn gc(bench: &Bench, pods: &[&Pod]) {
    gc_with(bench, "cni.dev/valid-attachments", listed(pods));
}

fn links(bench: &Bench) -> Vec<String> {
    let links = bench.node.netns().json("ip -j link show").unwrap();
    let names = links.as_array().unwrap().iter();
    names
        .map(|link| link["ifname"].as_str().unwrap().to_owned())
        .collect()
}

fn an_empty_store_is_success(bench: &Bench) {
    let before = bench.snapshot();
    gc(bench, &[]);
    bench.assert_nothing_left(&before);
}

fn a_listed_attachment_stays(bench: &Bench) {
    let pods = ["one", "two"].map(|name| bench.pod(name));
    let added = [0, 1].map(|i: usize| bench.add(&pods[i]));
    let (before, reserved) = (bench.snapshot(), bench.reserved());
    gc(bench, &[&pods[0], &pods[1]]);
    bench.assert_same_kernel(&before);
    assert_eq!(bench.reserved(), reserved);
    for (pod, added) in pods.iter().zip(&added) {
        silent(&bench.check(pod, added));
    }
}

fn what_is_not_listed_goes(bench: &Bench) {
    let [stays, goes] = ["stays", "goes"].map(|name| bench.pod(name));
    let kept = bench.add(&stays);
    let before = bench.snapshot();
    bench.add(&goes);
    gc(bench, &[&stays]);
    bench.assert_same_kernel(&before);
    assert_eq!(bench.reserved(), [kept.address().unwrap()].into());
    silent(&bench.check(&stays, &kept));
    // Its runtime may yet call DEL.
    bench.del(&goes);
}

fn an_empty_list_frees_all(bench: &Bench) {
    let before = bench.snapshot();
    let pods = ["one", "two", "three"].map(|name| bench.pod(name));
    pods.iter().for_each(|pod| drop(bench.add(pod)));
    gc(bench, &[]);
    bench.assert_nothing_left(&before);
}

fn the_older_key_counts_too(bench: &Bench) {
    let [stays, goes] = ["stays", "goes"].map(|name| bench.pod(name));
    let kept = bench.add(&stays).address().unwrap();
    bench.add(&goes);
    gc_with(bench, "cni.dev/attachments", listed(&[&stays]));
    assert_eq!(bench.reserved(), [kept].into());
}

fn the_newer_key_wins(bench: &Bench) {
    let pod = bench.pod("pod");
    let kept = bench.add(&pod).address().unwrap();
    let mut config = bench.config();
    config["cni.dev/attachments"] = json!([]);
    config["cni.dev/valid-attachments"] = listed(&[&pod]);
    silent(&bench.run(&PluginCall::new("GC").config(&config)));
    assert_eq!(bench.reserved(), [kept].into());
}

fn no_list_frees_nothing_that_lives(bench: &Bench) {
    let pod = bench.pod("pod");
    let kept = bench.add(&pod);
    silent(&bench.run(&PluginCall::new("GC").config(&bench.config())));
    assert_eq!(bench.reserved(), [kept.address().unwrap()].into());
    silent(&bench.check(&pod, &kept));
}

fn null_is_no_list(bench: &Bench) {
    let pod = bench.pod("pod");
    let kept = bench.add(&pod);
    gc_with(bench, "cni.dev/valid-attachments", Value::Null);
    silent(&bench.check(&pod, &kept));
}

fn no_list_frees_what_is_provably_dead(bench: &Bench) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    bench.add(&pod);
    drop(pod);
    bench.assert_same_kernel(&before);
    assert_eq!(bench.reserved().len(), 1);
    silent(&bench.run(&PluginCall::new("GC").config(&bench.config())));
    bench.assert_nothing_left(&before);
}

fn another_network_is_left_alone(bench: &Bench) {
    let mut others = bench.config();
    others["name"] = "other".into();
    others["ipam"]["ranges"] = json!([[{ "subnet": "10.245.1.0/24" }]]);
    let pod = bench.pod("pod");
    let added = bench.add_with(&pod, &others);
    let before = bench.snapshot();
    bench.add(&bench.pod("mine"));
    gc(bench, &[]);
    bench.assert_nothing_left(&before);
    let config = with_prev_result(others, &added);
    silent(&bench.run(&bench.call("CHECK", &pod).config(&config)));
}

fn foreign_links_are_left_alone(bench: &Bench) {
    bench
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
    let before = bench.snapshot();
    bench.add(&bench.pod("pod"));
    gc(bench, &[]);
    bench.assert_nothing_left(&before);
}

fn foreign_files_are_left_alone(bench: &Bench) {
    bench.add(&bench.pod("pod"));
    let store = bench.store();
    fs::write(store.join("10.244.1.77"), "of-host-local\neth0").unwrap();
    fs::write(store.join("notes.txt"), "mine").unwrap();
    fs::create_dir(store.join("folder")).unwrap();
    fs::write(store.join("attachments/README"), "mine").unwrap();
    symlink("/etc/passwd", store.join("10.244.1.78")).unwrap();
    gc(bench, &[]);
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
    assert!(!bench.reserved().contains(&"10.244.1.2".parse().unwrap()));
}

fn a_leaked_link_goes(bench: &Bench) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    bench.add(&pod);
    fs::remove_dir_all(bench.data_dir()).unwrap();
    gc(bench, &[]);
    bench.assert_nothing_left(&before);
    bench.add(&pod);
}

fn a_listed_link_without_a_record_stays(bench: &Bench) {
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    fs::remove_dir_all(bench.data_dir()).unwrap();
    gc(bench, &[&pod]);
    assert!(links(bench).contains(&added.host_link().to_owned()));
}

fn another_interface_of_the_container_is_not_listed_with_it(bench: &Bench) {
    let pod = bench.pod("pod");
    let kept = bench.add(&pod).address().unwrap();
    let mut config = bench.config();
    config["ipam"]["routes"] = json!([{ "dst": "10.99.0.0/16" }]);
    let second = bench.call("ADD", &pod).ifname("net1").config(&config);
    assert_eq!(bench.run(&second).code, Some(0));
    gc(bench, &[&pod]);
    assert_eq!(bench.reserved(), [kept].into());
}

fn a_damaged_record_goes_with_its_link(bench: &Bench) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    bench.add(&pod);
    for entry in fs::read_dir(bench.store().join("attachments")).unwrap() {
        fs::write(entry.unwrap().path(), "{\"version\":").unwrap();
    }
    gc(bench, &[]);
    bench.assert_nothing_left(&before);
}

fn a_list_of_another_shape_frees_nothing(bench: &Bench) {
    let pod = bench.pod("pod");
    let kept = bench.add(&pod);
    for list in [
        json!("all"),
        json!({}),
        json!([7]),
        json!([{ "containerID": "x" }]),
    ] {
        let mut config = bench.config();
        config["cni.dev/valid-attachments"] = list;
        let output = bench.run(&PluginCall::new("GC").config(&config));
        refused_with(&output, 7, &["cni.dev/valid-attachments"]);
    }
    silent(&bench.check(&pod, &kept));
}

/// The runtime died between ADD and saving what it answered: it knows nothing
/// of the attachment, and lists the others.
fn what_an_add_left_before_its_result_was_saved_goes(bench: &Bench) {
    let [known, lost] = ["known", "lost"].map(|name| bench.pod(name));
    let kept = bench.add(&known);
    let before = bench.snapshot();
    bench.add(&lost);
    drop(lost);
    gc(bench, &[&known]);
    bench.assert_same_kernel(&before);
    assert_eq!(bench.reserved(), [kept.address().unwrap()].into());
}

/// It calls DEL for each result in its cache, then GC with null for a list.
fn cnitools_gc(bench: &Bench) {
    let before = bench.snapshot();
    let cached = bench.pod("cached");
    bench.tool().add(&cached).unwrap();
    let [lives, died] = ["lives", "died"].map(|name| bench.pod(name));
    let without_died = bench.snapshot();
    bench.add(&died);
    drop(died);
    bench.assert_same_kernel(&without_died);
    let added = bench.add(&lives);
    bench.tool().gc().unwrap();
    assert_eq!(bench.reserved(), [added.address().unwrap()].into());
    silent(&bench.check(&lives, &added));
    bench.del(&lives);
    bench.assert_nothing_left(&before);
}
