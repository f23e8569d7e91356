//! DEL: whatever is gone already, it ends with success, and nothing is left.

use std::fs;

use serde_json::{Value, json};
use tweed_lab::{PluginCall, Pod};

use crate::bench::{Bench, silent, with_prev_result};

/// What DEL finds, prepared after an ADD; gives the call that is to succeed.
type Prepare = fn(&Bench, &mut Option<Pod>, PluginCall) -> PluginCall;

fn leaves_nothing(bench: &Bench, prepare: Prepare) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    let call = bench
        .call("DEL", &pod)
        .config(&with_prev_result(bench.config(), &added));
    let mut pod = Some(pod);
    let call = prepare(bench, &mut pod, call);
    silent(&bench.run(&call));
    bench.assert_nothing_left(&before);
    // And once more, as runtimes do.
    silent(&bench.run(&call));
    bench.assert_nothing_left(&before);
}

mod leaves_nothing_with {
    use super::*;

    rows! {
        leaves_nothing;
        all {
            all_there: |_, _, call| call;
            namespace_gone: |_, pod, call| { *pod = None; call };
            namespace_gone_and_empty: |_, pod, call| { *pod = None; call.netns("") };
            no_mtu: |bench, _, call| call.config(&without(bench, "/mtu"));
            no_prev_result: |bench, _, call| call.config(&bench.config());
            store_wiped: |bench, _, call| {
                fs::remove_dir_all(bench.data_dir()).unwrap();
                call
            };
            interface_gone: |_, pod, call| {
                pod.as_ref().unwrap().netns().ip(["link del eth0"]).unwrap();
                call
            };
        }
        tweed {
            namespace_there_but_empty: |_, _, call| call.netns("");
            namespace_of_the_host: |_, _, call| call.netns("/proc/self/ns/net");
            path_no_namespace: |_, _, call| call.netns("/etc/passwd");
            host_link_gone: |bench, _, call| {
                let links = bench.node.netns().json("ip -j link show group 116").unwrap();
                // Links of other groups are empty objects.
                let mut names = links.as_array().unwrap().iter().map(|link| &link["ifname"]);
                let name = names.find_map(|name| name.as_str()).unwrap();
                bench.node.netns().ip([format!("link del {name}")]).unwrap();
                call
            };
            no_ranges: |bench, _, call| call.config(&without(bench, "/ipam/ranges"));
            prev_result_garbage: |bench, _, call| {
                let mut config = bench.config();
                config["prevResult"] = json!([7]);
                call.config(&config)
            };
            agent_not_ready: |bench, _, call| {
                let mut config = bench.config();
                config["readyFile"] = "/nowhere/ready".into();
                call.config(&config)
            };
            record_garbage: |bench, _, call| { overwrite_records(bench, "\0 no record"); call };
            record_empty: |bench, _, call| { overwrite_records(bench, ""); call };
            arguments_garbage: |_, _, call| call.env("CNI_ARGS", "no pairs");
        }
    }
}

fn overwrite_records(bench: &Bench, content: &str) {
    for entry in fs::read_dir(bench.store().join("attachments")).unwrap() {
        fs::write(entry.unwrap().path(), content).unwrap();
    }
}

fn without(bench: &Bench, pointer: &str) -> Value {
    let mut config = bench.config();
    *config.pointer_mut(pointer).unwrap() = Value::Null;
    config
}

subjects! {
    all: of_what_was_never_added, the_namespace_can_be_used_again_at_once;
    tweed: the_way_to_the_pod_is_gone_when_it_returns, of_an_old_sandbox_spares_the_new_one, of_one_interface_spares_the_other,
        a_foreign_link_of_the_name_is_left_alone, makes_no_folder;
}

fn of_what_was_never_added(bench: &Bench) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    bench.del(&pod);
    bench.tool().del(&pod).unwrap();
    bench.assert_nothing_left(&before);
}

/// The link itself may take a moment more.
fn the_way_to_the_pod_is_gone_when_it_returns(bench: &Bench) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    let address = added.address().unwrap();
    bench.del(&pod);
    let node = bench.node.netns();
    let routes = node.json(&format!("ip -j route show {address}")).unwrap();
    assert_eq!(routes, json!([]));
    let neighbours = node.json(&format!("ip -j neigh show {address}")).unwrap();
    assert_eq!(neighbours, json!([]));
    let links = node.json("ip -j link show").unwrap();
    let mut names = links.as_array().unwrap().iter().map(|link| &link["ifname"]);
    assert!(!names.any(|name| name == added.host_link()), "{links}");
    bench.assert_nothing_left(&before);
}

fn makes_no_folder(bench: &Bench) {
    bench.del(&bench.pod("pod"));
    assert!(!bench.data_dir().exists());
}

fn the_namespace_can_be_used_again_at_once(bench: &Bench) {
    let pod = bench.pod("pod");
    for _ in 0..5 {
        bench.add(&pod);
        bench.del(&pod);
    }
}

/// A late DEL of a sandbox that is gone: its successor has the same namespace
/// path and the same interface name.
fn of_an_old_sandbox_spares_the_new_one(bench: &Bench) {
    let pod = bench.pod("pod");
    let old = |verb| bench.call(verb, &pod).container("old");
    assert_eq!(bench.run(&old("ADD")).code, Some(0));
    silent(&bench.run(&old("DEL")));
    let added = bench.add(&pod);
    let (before, reserved) = (bench.snapshot(), bench.reserved());
    silent(&bench.run(&old("DEL")));
    bench.assert_same_kernel(&before);
    assert_eq!(bench.reserved(), reserved);
    silent(&bench.check(&pod, &added));
}

fn of_one_interface_spares_the_other(bench: &Bench) {
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    let (before, reserved) = (bench.snapshot(), bench.reserved());
    let mut config = bench.config();
    config["ipam"]["routes"] = json!([{ "dst": "10.99.0.0/16" }]);
    let second = |verb| bench.call(verb, &pod).ifname("net1").config(&config);
    assert_eq!(bench.run(&second("ADD")).code, Some(0));
    assert_eq!(bench.reserved().len(), 2);
    silent(&bench.run(&second("DEL")));
    bench.assert_same_kernel(&before);
    assert_eq!(bench.reserved(), reserved);
    silent(&bench.check(&pod, &added));
}

fn a_foreign_link_of_the_name_is_left_alone(bench: &Bench) {
    let pod = bench.pod("pod");
    let name = bench.add(&pod).host_link().to_owned();
    bench.del(&pod);
    let node = bench.node.netns();
    for foreign in [
        "",
        "group 116 alias mine",
        "alias tweed:pods/other/eth0 group 116",
    ] {
        node.ip([format!("link add {name} type bridge")]).unwrap();
        if !foreign.is_empty() {
            node.ip([format!("link set {name} {foreign}")]).unwrap();
        }
        let before = bench.snapshot();
        bench.del(&pod);
        bench.assert_nothing_left(&before);
        node.ip([format!("link del {name}")]).unwrap();
    }
}
