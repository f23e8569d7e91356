//! What is not tweed's stays as it is, and what the plugin does not need may be
//! missing.

use serde_json::json;
use tweed_lab::{PingOptions, ping};

use crate::bench::{Bench, silent};

subjects! {
    all: foreign_objects_stay, policy_rules_stay, no_address_is_needed_on_the_node,
        the_ruleset_stays, nobody_else_is_talked_to, no_program_is_needed;
    tweed: a_read_only_proc_sys_is_let_pass;
}

fn foreign_objects_stay(bench: &Bench) {
    let node = bench.node.netns();
    node.ip([
        "link add twins type bridge",
        "link set twins up",
        "addr add 172.20.0.1/16 dev twins",
        "route add 10.244.0.0/16 via 192.0.2.1",
        "route add 10.244.1.250/32 dev twins proto 116",
        "route add unreachable 10.99.0.0/16 proto 4",
        "neigh add 10.244.1.99 lladdr 02:00:00:00:00:01 dev twins nud permanent",
        "rule add from 10.4.4.4 table 100",
        "route add default via 192.0.2.1 table 100",
    ])
    .unwrap();
    node.nft(
        "table ip mine {\n chain c {\n  type filter hook forward priority 0; policy accept;\n }\n}",
    )
    .unwrap();
    let before = bench.snapshot();
    let pods = ["one", "two"].map(|name| bench.pod(name));
    for _ in 0..2 {
        pods.iter().for_each(|pod| drop(bench.add(pod)));
        pods.iter().for_each(|pod| bench.del(pod));
        bench.assert_nothing_left(&before);
    }
}

fn policy_rules_stay(bench: &Bench) {
    let rules = || {
        let snapshot = bench.snapshot();
        let rules: Vec<_> = snapshot.of_kind("rule").map(str::to_owned).collect();
        rules
    };
    let before = rules();
    let pod = bench.pod("pod");
    bench.add(&pod);
    assert_eq!(rules(), before);
    bench.del(&pod);
    assert_eq!(rules(), before);
    assert!(
        before.iter().any(|rule| rule.contains("\"local\"")),
        "{before:?}"
    );
}

fn the_ruleset_stays(bench: &Bench) {
    let before = bench.node.netns().sh("nft list ruleset").unwrap();
    let pod = bench.pod("pod");
    bench.add(&pod);
    assert_eq!(bench.node.netns().sh("nft list ruleset").unwrap(), before);
}

/// No `iptables`, no `ip`, no shell: there is no PATH to find one in.
fn no_program_is_needed(bench: &Bench) {
    let before = bench.snapshot();
    let alone = bench.wrapper("alone", "exec /usr/bin/env -u PATH $PLUGIN");
    let pod = bench.pod("pod");
    let added = bench.call("ADD", &pod).run(&bench.node, &alone).unwrap();
    assert_eq!(added.code, Some(0), "{added:?}");
    let to = bench.node.address();
    let report = ping(pod.netns(), to, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
    silent(&bench.call("DEL", &pod).run(&bench.node, &alone).unwrap());
    bench.assert_nothing_left(&before);
}

/// No agent, no API server, no name service: not one packet of the node's own.
fn nobody_else_is_talked_to(bench: &Bench) {
    let node = bench.node.netns();
    node.nft(
        "table inet count {
           counter said { }
           chain output {
             type filter hook output priority 0; policy accept;
             meta l4proto { tcp, udp } counter name said
           }
         }",
    )
    .unwrap();
    let said = || {
        let counter = node.json("nft -j list counter inet count said").unwrap();
        let objects = counter["nftables"].as_array().unwrap();
        let found = objects
            .iter()
            .find_map(|o| o["counter"]["packets"].as_u64());
        found.unwrap()
    };
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    silent(&bench.check(&pod, &added));
    bench.del(&pod);
    assert_eq!(said(), 0);
    // The control.
    node.enter(|| std::net::UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", "127.0.0.1:9"))
        .unwrap()
        .unwrap();
    assert_eq!(said(), 1);
}

/// As in a container without privileges: settings that differ are warned of.
fn a_read_only_proc_sys_is_let_pass(bench: &Bench) {
    let read_only = bench.wrapper(
        "read_only",
        "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec $PLUGIN",
    );
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let call = bench.call("ADD", &pod).config(&bench.dual_stack_config());
    let output = call.run(&bench.node, &read_only).unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output.stderr.contains("/proc/sys is read-only"),
        "{output:?}"
    );
    let report = ping(pod.netns(), bench.node.address(), &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
    let call = bench.call("DEL", &pod);
    silent(&call.run(&bench.node, &read_only).unwrap());
    bench.assert_nothing_left(&before);
}

fn no_address_is_needed_on_the_node(bench: &Bench) {
    bench.node.netns().ip(["addr flush dev eth0"]).unwrap();
    let mut config = bench.config();
    config["hostSource"] = json!([]);
    let [one, two] = ["one", "two"].map(|name| bench.pod(name));
    bench.add_with(&one, &config);
    let to = bench.add_with(&two, &config).address().unwrap();
    let report = ping(one.netns(), to, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
}
