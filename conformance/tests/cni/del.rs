//! DEL succeeds and leaves nothing, whatever has been removed before.

use std::fs;

use serde_json::{Value, json};
use tweed_lab::{PluginCall, Pod};

use crate::fixture::{Fixture, assert_silent, with_prev_result};

/// Prepares the state that DEL finds after an ADD. Returns the call that must succeed.
type Prepare = fn(&Fixture, &mut Option<Pod>, PluginCall) -> PluginCall;

fn leaves_nothing(fixture: &Fixture, prepare: Prepare) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    let call = fixture
        .call("DEL", &pod)
        .config(&with_prev_result(fixture.config(), &added));
    let mut pod = Some(pod);
    let call = prepare(fixture, &mut pod, call);
    assert_silent(&fixture.run(&call));
    fixture.assert_nothing_left(&before);
    // Once more, because runtimes repeat DEL.
    assert_silent(&fixture.run(&call));
    fixture.assert_nothing_left(&before);
}

mod leaves_nothing_with {
    use super::*;

    cases! {
        leaves_nothing;
        all {
            nothing_removed: |_, _, call| call;
            namespace_deleted: |_, pod, call| { *pod = None; call };
            namespace_deleted_and_path_empty: |_, pod, call| { *pod = None; call.netns("") };
            no_mtu: |fixture, _, call| call.config(&without(fixture, "/mtu"));
            no_prev_result: |fixture, _, call| call.config(&fixture.config());
            store_wiped: |fixture, _, call| {
                fs::remove_dir_all(fixture.data_dir()).unwrap();
                call
            };
            interface_deleted: |_, pod, call| {
                pod.as_ref().unwrap().netns().ip(["link del eth0"]).unwrap();
                call
            };
        }
        tweed {
            namespace_exists_but_path_empty: |_, _, call| call.netns("");
            namespace_of_the_host: |_, _, call| call.netns("/proc/self/ns/net");
            path_no_namespace: |_, _, call| call.netns("/etc/passwd");
            host_link_deleted: |fixture, _, call| {
                let name = host_link(fixture);
                fixture.node.netns().ip([format!("link del {name}")]).unwrap();
                call
            };
            alias_changed: |fixture, _, call| { change_link(fixture, "alias mine"); call };
            alias_removed: |fixture, _, call| { change_link(fixture, "alias ''"); call };
            group_changed: |fixture, _, call| { change_link(fixture, "group 7"); call };
            no_ranges: |fixture, _, call| call.config(&without(fixture, "/ipam/ranges"));
            prev_result_garbage: |fixture, _, call| {
                let mut config = fixture.config();
                config["prevResult"] = json!([7]);
                call.config(&config)
            };
            agent_not_ready: |fixture, _, call| {
                let mut config = fixture.config();
                config["readyFile"] = "/nowhere/ready".into();
                call.config(&config)
            };
            record_garbage: |fixture, _, call| { overwrite_records(fixture, "\0 no record"); call };
            record_empty: |fixture, _, call| { overwrite_records(fixture, ""); call };
            arguments_garbage: |_, _, call| call.env("CNI_ARGS", "no pairs");
        }
    }
}

/// The name of the only pod's link on the node.
fn host_link(fixture: &Fixture) -> String {
    let netns = fixture.node.netns();
    let listed = netns.json("ip -j link show group 116").unwrap();
    // `ip` prints links of other groups as empty objects.
    let mut links = listed.as_array().unwrap().iter();
    let name = links.find_map(|link| link["ifname"].as_str());
    name.unwrap().to_owned()
}

fn change_link(fixture: &Fixture, change: &str) {
    let line = format!("ip link set {} {change}", host_link(fixture));
    fixture.node.netns().sh(&line).unwrap();
}

fn overwrite_records(fixture: &Fixture, content: &str) {
    for entry in fs::read_dir(fixture.store().join("attachments")).unwrap() {
        fs::write(entry.unwrap().path(), content).unwrap();
    }
}

fn without(fixture: &Fixture, pointer: &str) -> Value {
    let mut config = fixture.config();
    *config.pointer_mut(pointer).unwrap() = Value::Null;
    config
}

subjects! {
    all: of_a_pod_that_was_never_added, the_namespace_can_be_used_again_at_once;
    tweed: when_it_returns_route_and_neighbour_are_removed, of_an_old_sandbox_leaves_the_new_one_alone, of_one_interface_leaves_the_other_alone,
        a_foreign_link_of_the_same_name_is_left_alone, creates_no_folder,
        the_name_in_the_pod_is_free_at_once_for_any_plugin, a_foreign_interface_of_the_pod_keeps_its_name;
}

fn of_a_pod_that_was_never_added(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    fixture.del(&pod);
    fixture.tool().del(&pod).unwrap();
    fixture.assert_nothing_left(&before);
}

/// The link itself may be deleted a little later.
fn when_it_returns_route_and_neighbour_are_removed(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    let address = added.address().unwrap();
    fixture.del(&pod);
    let node = fixture.node.netns();
    let routes = node.json(&format!("ip -j route show {address}")).unwrap();
    assert_eq!(routes, json!([]));
    let neighbours = node.json(&format!("ip -j neigh show {address}")).unwrap();
    assert_eq!(neighbours, json!([]));
    let links = node.json("ip -j link show").unwrap();
    let mut names = links.as_array().unwrap().iter().map(|link| &link["ifname"]);
    assert!(!names.any(|name| name == added.host_link()), "{links}");
    fixture.assert_nothing_left(&before);
}

fn creates_no_folder(fixture: &Fixture) {
    fixture.del(&fixture.pod("pod"));
    assert!(!fixture.data_dir().exists());
}

fn the_namespace_can_be_used_again_at_once(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    for _ in 0..5 {
        fixture.add(&pod);
        fixture.del(&pod);
    }
}

fn the_name_in_the_pod_is_free_at_once_for_any_plugin(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let reference = json!({
        "cniVersion": "1.1.0", "name": "other", "type": "ptp",
        "ipam": { "type": "host-local", "subnet": "10.77.0.0/24", "dataDir": fixture.data_dir(),
                  "routes": [{ "dst": "0.0.0.0/0" }] },
    });
    for _ in 0..5 {
        fixture.add_with(&pod, &fixture.dual_stack_config());
        fixture.del(&pod);
        for family in ["-4", "-6"] {
            let line = format!("ip {family} route show default");
            assert_eq!(pod.netns().sh(&line).unwrap(), "");
        }
        let call = |verb| fixture.call(verb, &pod).config(&reference);
        let added = call("ADD").run(&fixture.node, "ptp").unwrap();
        assert_eq!(added.code, Some(0), "{added:?}");
        let default = pod.netns().sh("ip route show default").unwrap();
        assert!(default.contains("dev eth0"), "{default}");
        let deleted = call("DEL").run(&fixture.node, "ptp").unwrap();
        assert_eq!(deleted.code, Some(0), "{deleted:?}");
    }
    fixture.assert_nothing_left(&before);
}

/// `CNI_NETNS` may by now be the path of another pod's namespace, in which the
/// interface has the same name and the same index.
fn a_foreign_interface_of_the_pod_keeps_its_name(fixture: &Fixture) {
    let [pod, other] = ["pod", "other"].map(|name| fixture.pod(name));
    fixture.add(&pod);
    let added = fixture.add(&other);
    let del = fixture.call("DEL", &pod).netns(&other.path());
    assert_silent(&fixture.run(&del));
    assert_silent(&fixture.check(&other, &added));
}

/// A late DEL of an old sandbox. The new one has the same namespace path and the same
/// interface name.
fn of_an_old_sandbox_leaves_the_new_one_alone(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let old = |verb| fixture.call(verb, &pod).container("old");
    assert_eq!(fixture.run(&old("ADD")).code, Some(0));
    assert_silent(&fixture.run(&old("DEL")));
    let added = fixture.add(&pod);
    let (before, reserved) = (fixture.snapshot(), fixture.reserved());
    assert_silent(&fixture.run(&old("DEL")));
    fixture.assert_same_kernel(&before);
    assert_eq!(fixture.reserved(), reserved);
    assert_silent(&fixture.check(&pod, &added));
}

fn of_one_interface_leaves_the_other_alone(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    let (before, reserved) = (fixture.snapshot(), fixture.reserved());
    let mut config = fixture.config();
    config["ipam"]["routes"] = json!([{ "dst": "10.99.0.0/16" }]);
    let second = |verb| fixture.call(verb, &pod).ifname("net1").config(&config);
    assert_eq!(fixture.run(&second("ADD")).code, Some(0));
    assert_eq!(fixture.reserved().len(), 2);
    assert_silent(&fixture.run(&second("DEL")));
    fixture.assert_same_kernel(&before);
    assert_eq!(fixture.reserved(), reserved);
    assert_silent(&fixture.check(&pod, &added));
}

fn a_foreign_link_of_the_same_name_is_left_alone(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let name = fixture.add(&pod).host_link().to_owned();
    fixture.del(&pod);
    let node = fixture.node.netns();
    for foreign in ["", "alias mine", "alias tweed:pods/other/eth0"] {
        node.ip([format!("link add {name} type bridge")]).unwrap();
        if !foreign.is_empty() {
            node.ip([format!("link set {name} {foreign}")]).unwrap();
        }
        let before = fixture.snapshot();
        fixture.del(&pod);
        fixture.assert_nothing_left(&before);
        node.ip([format!("link del {name}")]).unwrap();
    }
}
