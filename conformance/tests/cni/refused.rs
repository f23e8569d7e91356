//! An ADD that cannot be served says why, and leaves all as it was.

use std::fs;

use serde_json::{Value, json};
use tweed_lab::Snapshot;

use crate::bench::{Bench, refused, refused_with};

subjects! {
    all: an_interface_that_is_there_is_left_alone, a_second_add_leaves_the_first_alone;
    tweed: an_interface_that_is_there_is_code_102, a_second_add_is_code_102,
        a_link_in_the_way_on_the_host_is_named, a_route_in_the_way_is_named,
        a_live_address_of_a_wiped_store_is_not_given_twice, a_source_of_nobody_is_named,
        cnitool_shows_the_reason, unknown_keys_are_warned_of_and_ignored;
}

fn an_interface_that_is_there_is_left_alone(bench: &Bench) {
    let pod = bench.pod("pod");
    pod.netns()
        .ip([
            "link add eth0 type bridge",
            "addr add 192.168.7.1/24 dev eth0",
        ])
        .unwrap();
    let (inside, outside) = (Snapshot::of(pod.netns()).unwrap(), bench.snapshot());
    refused(&bench.run(&bench.call("ADD", &pod)));
    bench.assert_nothing_left(&outside);
    let changes = inside.changes(&Snapshot::of(pod.netns()).unwrap());
    assert_eq!(changes, [""; 0]);
}

fn an_interface_that_is_there_is_code_102(bench: &Bench) {
    let pod = bench.pod("pod");
    pod.netns().ip(["link add eth0 type bridge"]).unwrap();
    let output = bench.run(&bench.call("ADD", &pod));
    refused_with(
        &output,
        102,
        &["interface eth0 exists already in the container"],
    );
}

fn a_second_add_leaves_the_first_alone(bench: &Bench) {
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    let reserved = bench.reserved();
    let (inside, outside) = (Snapshot::of(pod.netns()).unwrap(), bench.snapshot());
    refused(&bench.run(&bench.call("ADD", &pod)));
    assert_eq!(bench.reserved(), reserved);
    bench.assert_same_kernel(&outside);
    let changes = inside.changes(&Snapshot::of(pod.netns()).unwrap());
    assert_eq!(changes, [""; 0]);
    let checked = bench.check(&pod, &added);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

fn a_second_add_is_code_102(bench: &Bench) {
    let pod = bench.pod("pod");
    let address = bench.add(&pod).address().unwrap().to_string();
    refused_with(&bench.run(&bench.call("ADD", &pod)), 102, &[&address]);
}

/// The name that the pod's link has on the host, found by an ADD and a DEL.
fn host_link_of(bench: &Bench, pod: &tweed_lab::Pod) -> String {
    let name = bench.add(pod).host_link().to_owned();
    bench.del(pod);
    name
}

fn a_link_in_the_way_on_the_host_is_named(bench: &Bench) {
    let pod = bench.pod("pod");
    let name = host_link_of(bench, &pod);
    let node = bench.node.netns();
    node.ip([format!("link add {name} type bridge")]).unwrap();
    let before = bench.snapshot();
    let output = bench.run(&bench.call("ADD", &pod));
    refused_with(
        &output,
        102,
        &[&format!("link {name} exists already on the host")],
    );
    bench.assert_nothing_left(&before);
    bench.del(&pod);
    bench.assert_nothing_left(&before);
}

fn a_route_in_the_way_is_named(bench: &Bench) {
    let node = bench.node.netns();
    node.ip(["route add 10.244.1.2/32 dev eth0 scope link"])
        .unwrap();
    let before = bench.snapshot();
    let output = bench.run(&bench.call("ADD", &bench.pod("pod")));
    refused_with(&output, 103, &["10.244.1.2", "link eth0"]);
    bench.assert_nothing_left(&before);
}

fn a_live_address_of_a_wiped_store_is_not_given_twice(bench: &Bench) {
    let mut config = bench.config();
    config["ipam"]["ranges"][0][0]["rangeStart"] = "10.244.1.5".into();
    config["ipam"]["ranges"][0][0]["rangeEnd"] = "10.244.1.5".into();
    let [old, new] = ["old", "new"].map(|name| bench.pod(name));
    let alive = bench.add_with(&old, &config);
    fs::remove_dir_all(bench.data_dir()).unwrap();
    let before = bench.snapshot();
    let output = bench.run(&bench.call("ADD", &new).config(&config));
    refused_with(&output, 103, &["10.244.1.5", alive.host_link()]);
    bench.assert_nothing_left(&before);
}

fn a_source_of_nobody_is_named(bench: &Bench) {
    let before = bench.snapshot();
    let mut config = bench.config();
    config["hostSource"] = json!(["192.0.2.200"]);
    let output = bench.run(&bench.call("ADD", &bench.pod("pod")).config(&config));
    refused_with(&output, 103, &["192.0.2.200", "hostSource"]);
    bench.assert_nothing_left(&before);
}

fn cnitool_shows_the_reason(bench: &Bench) {
    let pod = bench.pod("pod");
    pod.netns().ip(["link add eth0 type bridge"]).unwrap();
    let said = bench.tool().add(&pod).unwrap_err().chain();
    assert!(
        said.contains("interface eth0 exists already in the container"),
        "{said}"
    );
}

fn unknown_keys_are_warned_of_and_ignored(bench: &Bench) {
    let mut config = bench.config();
    config["mtuu"] = 9000.into();
    config["ipMasq"] = true.into();
    config["ipam"]["rangeStrat"] = "x".into();
    let output = bench.run(&bench.call("ADD", &bench.pod("pod")).config(&config));
    assert_eq!(output.code, Some(0), "{output:?}");
    for key in ["mtuu", "ipMasq", "rangeStrat"] {
        assert!(output.stderr.contains(key), "{key}: {}", output.stderr);
    }
    assert!(!output.stderr.contains("cniVersion"), "{}", output.stderr);
}

mod netns {
    use super::*;

    /// `FOLDER` stands for the lab's folder.
    fn is_code_8(bench: &Bench, path: &str, prepare: &str) {
        let folder = bench.node.folder().display().to_string();
        let [path, prepare] = [path, prepare].map(|text| text.replace("FOLDER", &folder));
        bench.node.netns().sh(&prepare).unwrap();
        let before = bench.snapshot();
        let pod = bench.pod("pod");
        for verb in ["ADD", "CHECK"] {
            let mut config = bench.config();
            config["prevResult"] = json!({ "cniVersion": "1.1.0" });
            let output = bench.run(&bench.call(verb, &pod).netns(&path).config(&config));
            refused_with(&output, 8, &[&path]);
        }
        bench.assert_nothing_left(&before);
    }

    rows! {
        is_code_8;
        tweed {
            missing: "/run/netns/there-is-none", "true";
            a_file: "FOLDER/file", "touch FOLDER/file";
            a_folder: "/run/netns", "true";
            a_fifo_without_a_writer: "FOLDER/fifo", "mkfifo FOLDER/fifo";
            another_kind_of_namespace: "/proc/self/ns/uts", "true";
            of_the_host_itself: "/proc/self/ns/net", "true";
        }
    }

    #[test]
    fn none_is_code_4() {
        let bench = Bench::tweed();
        let before = bench.snapshot();
        let output = bench.run(&bench.call("ADD", &bench.pod("pod")).netns(""));
        refused_with(&output, 4, &["CNI_NETNS"]);
        bench.assert_nothing_left(&before);
    }
}

mod config {
    use super::*;

    fn is_code_7(bench: &Bench, pointer: &str, value: Value, word: &str) {
        let before = bench.snapshot();
        let mut config = bench.config();
        *config.pointer_mut(pointer).unwrap() = value;
        let output = bench.run(&bench.call("ADD", &bench.pod("pod")).config(&config));
        refused_with(&output, 7, &[word]);
        bench.assert_nothing_left(&before);
    }

    rows! {
        is_code_7;
        tweed {
            no_mtu: "/mtu", Value::Null, "mtu is missing";
            mtu_a_text: "/mtu", json!("1450"), "mtu";
            mtu_zero: "/mtu", json!(0), "mtu";
            mtu_too_large: "/mtu", json!(65536), "mtu";
            no_ipam: "/ipam", Value::Null, "ipam";
            no_ranges: "/ipam/ranges", Value::Null, "ranges";
            empty_ranges: "/ipam/ranges", json!([]), "ranges";
            an_empty_set: "/ipam/ranges/0", json!([]), "ranges";
            subnet_no_subnet: "/ipam/ranges/0/0/subnet", json!("10.244.1"), "subnet";
            subnet_too_small: "/ipam/ranges/0/0/subnet", json!("10.244.1.0/32"), "10.244.1.0/32 is too small";
            subnet_an_address: "/ipam/ranges/0/0/subnet", json!("10.244.1.7/24"), "10.244.1.7/24";
            host_source_no_list: "/hostSource", json!("192.0.2.11"), "hostSource";
            run_dir_relative: "/runDir", json!("run"), "runDir";
        }
    }
}
