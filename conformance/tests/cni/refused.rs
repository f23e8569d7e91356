//! An ADD that fails reports the reason and changes nothing.

use std::fs;

use serde_json::{Value, json};
use tweed_lab::Snapshot;

use crate::fixture::{Fixture, assert_refused, assert_refused_with};

subjects! {
    all: an_existing_interface_is_left_alone, a_second_add_leaves_the_first_alone;
    tweed: an_existing_interface_is_code_102, a_second_add_is_code_102,
        a_conflicting_link_on_the_host_is_named, a_conflicting_route_is_named,
        a_live_address_is_not_assigned_again_after_the_store_was_wiped,
        a_live_address_is_not_assigned_again_after_its_record_was_removed, a_host_source_that_no_interface_has_is_named,
        a_path_that_is_no_network_namespace_is_code_8, a_config_that_makes_no_sense_is_code_7,
        cnitool_shows_the_reason, unknown_keys_are_warned_of_and_ignored,
        an_add_whose_result_nobody_can_get_leaves_nothing;
}

fn an_existing_interface_is_left_alone(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    pod.netns()
        .ip([
            "link add eth0 type bridge",
            "addr add 192.168.7.1/24 dev eth0",
        ])
        .unwrap();
    let (inside, outside) = (Snapshot::of(pod.netns()).unwrap(), fixture.snapshot());
    assert_refused(&fixture.run(&fixture.call("ADD", &pod)));
    fixture.assert_nothing_left(&outside);
    let changes = inside.changes(&Snapshot::of(pod.netns()).unwrap());
    assert_eq!(changes, [""; 0]);
}

fn an_existing_interface_is_code_102(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    pod.netns().ip(["link add eth0 type bridge"]).unwrap();
    let output = fixture.run(&fixture.call("ADD", &pod));
    assert_refused_with(
        &output,
        102,
        &["interface eth0 exists already in the container"],
    );
}

fn a_second_add_leaves_the_first_alone(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    let reserved = fixture.reserved();
    let settled = |netns| Snapshot::settled(netns).unwrap();
    let (inside, outside) = (settled(pod.netns()), settled(fixture.node.netns()));
    assert_refused(&fixture.run(&fixture.call("ADD", &pod)));
    assert_eq!(fixture.reserved(), reserved);
    fixture.assert_same_kernel(&outside);
    let changes = inside.changes(&Snapshot::of(pod.netns()).unwrap());
    assert_eq!(changes, [""; 0]);
    let checked = fixture.check(&pod, &added);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

fn a_second_add_is_code_102(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let address = fixture.add(&pod).address().unwrap().to_string();
    assert_refused_with(&fixture.run(&fixture.call("ADD", &pod)), 102, &[&address]);
}

/// The name of the pod's link on the host, read by an ADD and a DEL.
fn host_link_of(fixture: &Fixture, pod: &tweed_lab::Pod) -> String {
    let name = fixture.add(pod).host_link().to_owned();
    fixture.del(pod);
    name
}

fn a_conflicting_link_on_the_host_is_named(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let name = host_link_of(fixture, &pod);
    let node = fixture.node.netns();
    node.ip([format!("link add {name} type bridge")]).unwrap();
    let before = fixture.snapshot();
    let output = fixture.run(&fixture.call("ADD", &pod));
    assert_refused_with(
        &output,
        102,
        &[&format!("link {name} exists already on the host")],
    );
    fixture.assert_nothing_left(&before);
    fixture.del(&pod);
    fixture.assert_nothing_left(&before);
}

fn a_conflicting_route_is_named(fixture: &Fixture) {
    let node = fixture.node.netns();
    node.ip(["route add 10.244.1.2/32 dev eth0 scope link"])
        .unwrap();
    let before = fixture.snapshot();
    let output = fixture.run(&fixture.call("ADD", &fixture.pod("pod")));
    assert_refused_with(&output, 103, &["10.244.1.2", "link eth0"]);
    fixture.assert_nothing_left(&before);
}

fn a_live_address_is_not_assigned_again_after_the_store_was_wiped(fixture: &Fixture) {
    let mut config = fixture.config();
    config["ipam"]["ranges"][0][0]["rangeStart"] = "10.244.1.5".into();
    config["ipam"]["ranges"][0][0]["rangeEnd"] = "10.244.1.5".into();
    let [old, new] = ["old", "new"].map(|name| fixture.pod(name));
    let alive = fixture.add_with(&old, &config);
    fs::remove_dir_all(fixture.data_dir()).unwrap();
    let before = fixture.snapshot();
    let output = fixture.run(&fixture.call("ADD", &new).config(&config));
    assert_refused_with(&output, 103, &["10.244.1.5", alive.host_link()]);
    fixture.assert_nothing_left(&before);
}

fn a_live_address_is_not_assigned_again_after_its_record_was_removed(fixture: &Fixture) {
    let mut config = fixture.config();
    config["ipam"]["ranges"][0][0]["rangeEnd"] = "10.244.1.3".into();
    let [old, new, late] = ["old", "new", "late"].map(|name| fixture.pod(name));
    fixture.add_with(&old, &config);
    for record in fs::read_dir(fixture.store().join("attachments")).unwrap() {
        fs::remove_file(record.unwrap().path()).unwrap();
    }
    let added = fixture.add_with(&new, &config);
    assert_eq!(added.address(), Some("10.244.1.3".parse().unwrap()));
    // The range is full, for which the store looks for claims of nobody.
    let full = fixture.run(&fixture.call("ADD", &late).config(&config));
    assert_refused_with(&full, 100, &["2 of 2 addresses"]);
    fixture.del(&old);
    fixture.add_with(&late, &config);
}

fn a_host_source_that_no_interface_has_is_named(fixture: &Fixture) {
    let before = fixture.snapshot();
    let mut config = fixture.config();
    config["hostSource"] = json!(["192.0.2.200"]);
    let output = fixture.run(&fixture.call("ADD", &fixture.pod("pod")).config(&config));
    assert_refused_with(&output, 103, &["192.0.2.200", "hostSource"]);
    fixture.assert_nothing_left(&before);
}

fn an_add_whose_result_nobody_can_get_leaves_nothing(fixture: &Fixture) {
    let before = fixture.snapshot();
    for (name, stdout) in [("full", ">/dev/full"), ("closed", ">&-")] {
        let plugin = fixture.wrapper(name, &format!("exec $PLUGIN {stdout}"));
        let pod = fixture.pod(name);
        let add = fixture.call("ADD", &pod).run(&fixture.node, &plugin);
        let output = add.unwrap();
        assert_eq!(output.code, Some(1), "{name}: {output:?}");
        assert!(output.stderr.contains("was undone"), "{name}: {output:?}");
        fixture.assert_nothing_left(&before);
        fixture.add(&pod);
        // A DEL has no result to lose.
        let del = fixture.call("DEL", &pod).run(&fixture.node, &plugin);
        assert_eq!(del.unwrap().code, Some(0), "{name}");
        fixture.assert_nothing_left(&before);
    }
}

fn cnitool_shows_the_reason(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    pod.netns().ip(["link add eth0 type bridge"]).unwrap();
    let error = fixture.tool().add(&pod).unwrap_err().chain();
    assert!(
        error.contains("interface eth0 exists already in the container"),
        "{error}"
    );
}

fn unknown_keys_are_warned_of_and_ignored(fixture: &Fixture) {
    let mut config = fixture.config();
    config["mtuu"] = 9000.into();
    config["ipMasq"] = true.into();
    config["ipam"]["rangeStrat"] = "x".into();
    let output = fixture.run(&fixture.call("ADD", &fixture.pod("pod")).config(&config));
    assert_eq!(output.code, Some(0), "{output:?}");
    for key in ["mtuu", "ipMasq", "rangeStrat"] {
        assert!(output.stderr.contains(key), "{key}: {}", output.stderr);
    }
    assert!(!output.stderr.contains("cniVersion"), "{}", output.stderr);
}

fn a_path_that_is_no_network_namespace_is_code_8(fixture: &Fixture) {
    let file = |name| fixture.node.folder().join(name).display().to_string();
    let (regular, fifo) = (file("file"), file("fifo"));
    fixture.node.netns().run(["touch", &regular]).unwrap();
    fixture.node.netns().run(["mkfifo", &fifo]).unwrap();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let mut config = fixture.config();
    config["prevResult"] = json!({ "cniVersion": "1.1.0" });
    for path in [
        "/run/netns/there-is-none",
        &regular,
        "/run/netns",
        // Nobody writes to it.
        &fifo,
        "/proc/self/ns/uts",
        // That of the host itself.
        "/proc/self/ns/net",
    ] {
        for verb in ["ADD", "CHECK"] {
            let output = fixture.run(&fixture.call(verb, &pod).netns(path).config(&config));
            assert_refused_with(&output, 8, &[path]);
        }
    }
    let output = fixture.run(&fixture.call("ADD", &pod).netns(""));
    assert_refused_with(&output, 4, &["CNI_NETNS"]);
    fixture.assert_nothing_left(&before);
}

fn a_config_that_makes_no_sense_is_code_7(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let subnet = "/ipam/ranges/0/0/subnet";
    for (pointer, value, word) in [
        ("/mtu", Value::Null, "mtu is missing"),
        ("/mtu", json!("1450"), "mtu"),
        ("/mtu", json!(0), "mtu"),
        ("/mtu", json!(65536), "mtu"),
        ("/ipam", Value::Null, "ipam"),
        ("/ipam/ranges", Value::Null, "ranges"),
        ("/ipam/ranges", json!([]), "ranges"),
        ("/ipam/ranges/0", json!([]), "ranges"),
        (subnet, json!("10.244.1"), "subnet"),
        (subnet, json!("10.244.1.0/32"), "10.244.1.0/32 is too small"),
        (subnet, json!("10.244.1.7/24"), "10.244.1.7/24"),
        ("/hostSource", json!("192.0.2.11"), "hostSource"),
        ("/runDir", json!("run"), "runDir"),
    ] {
        println!("{pointer}: {value}");
        let mut config = fixture.config();
        *config.pointer_mut(pointer).unwrap() = value;
        let output = fixture.run(&fixture.call("ADD", &pod).config(&config));
        assert_refused_with(&output, 7, &[word]);
        fixture.assert_nothing_left(&before);
    }
}
