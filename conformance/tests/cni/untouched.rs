//! Foreign objects are not changed, and the plugin works without programs, network and
//! addresses that it does not need.

use serde_json::json;
use tweed_lab::{PingOptions, Snapshot, ping};

use crate::fixture::{Fixture, assert_silent};

subjects! {
    all: foreign_objects_stay, policy_rules_stay, no_address_is_needed_on_the_node,
        the_ruleset_stays, no_packet_is_sent, no_program_is_needed;
    tweed: a_read_only_proc_sys_is_no_error;
}

fn foreign_objects_stay(fixture: &Fixture) {
    let node = fixture.node.netns();
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
    let before = Snapshot::settled(node).unwrap();
    let pods = ["one", "two"].map(|name| fixture.pod(name));
    for _ in 0..2 {
        pods.iter().for_each(|pod| drop(fixture.add(pod)));
        pods.iter().for_each(|pod| fixture.del(pod));
        fixture.assert_nothing_left(&before);
    }
}

/// tweed needs no policy routing, so it does not change the rules of `ip rule`.
fn policy_rules_stay(fixture: &Fixture) {
    let rules = || {
        let snapshot = fixture.snapshot();
        let rules: Vec<_> = snapshot.of_kind("rule").map(str::to_owned).collect();
        rules
    };
    let before = rules();
    let pod = fixture.pod("pod");
    fixture.add(&pod);
    assert_eq!(rules(), before);
    fixture.del(&pod);
    assert_eq!(rules(), before);
    assert!(
        before.iter().any(|rule| rule.contains("\"local\"")),
        "{before:?}"
    );
}

fn the_ruleset_stays(fixture: &Fixture) {
    let before = fixture.node.netns().sh("nft list ruleset").unwrap();
    let pod = fixture.pod("pod");
    fixture.add(&pod);
    assert_eq!(fixture.node.netns().sh("nft list ruleset").unwrap(), before);
}

/// No `iptables`, no `ip`, no shell: PATH is not set.
fn no_program_is_needed(fixture: &Fixture) {
    let before = fixture.snapshot();
    let alone = fixture.wrapper("alone", "exec /usr/bin/env -u PATH $PLUGIN");
    let pod = fixture.pod("pod");
    let added = fixture
        .call("ADD", &pod)
        .run(&fixture.node, &alone)
        .unwrap();
    assert_eq!(added.code, Some(0), "{added:?}");
    let to = fixture.node.address();
    let report = ping(pod.netns(), to, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
    assert_silent(
        &fixture
            .call("DEL", &pod)
            .run(&fixture.node, &alone)
            .unwrap(),
    );
    fixture.assert_nothing_left(&before);
}

/// No agent, no API server, no name service: the node sends no packet.
fn no_packet_is_sent(fixture: &Fixture) {
    let node = fixture.node.netns();
    node.nft(
        "table inet count {
           counter sent { }
           chain output {
             type filter hook output priority 0; policy accept;
             meta l4proto { tcp, udp } counter name sent
           }
         }",
    )
    .unwrap();
    let sent = || {
        let counter = node.json("nft -j list counter inet count sent").unwrap();
        let objects = counter["nftables"].as_array().unwrap();
        let found = objects
            .iter()
            .find_map(|o| o["counter"]["packets"].as_u64());
        found.unwrap()
    };
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    assert_silent(&fixture.check(&pod, &added));
    fixture.del(&pod);
    assert_eq!(sent(), 0);
    // The control: the counter counts a packet.
    node.enter(|| std::net::UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", "127.0.0.1:9"))
        .unwrap()
        .unwrap();
    assert_eq!(sent(), 1);
}

/// As in an unprivileged container: there is a warning about sysctls that differ.
fn a_read_only_proc_sys_is_no_error(fixture: &Fixture) {
    let read_only = fixture.wrapper(
        "read_only",
        "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec $PLUGIN",
    );
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let call = fixture
        .call("ADD", &pod)
        .config(&fixture.dual_stack_config());
    let output = call.run(&fixture.node, &read_only).unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output.stderr.contains("/proc/sys is read-only"),
        "{output:?}"
    );
    let report = ping(pod.netns(), fixture.node.address(), &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
    let call = fixture.call("DEL", &pod);
    assert_silent(&call.run(&fixture.node, &read_only).unwrap());
    fixture.assert_nothing_left(&before);
}

fn no_address_is_needed_on_the_node(fixture: &Fixture) {
    fixture.node.netns().ip(["addr flush dev eth0"]).unwrap();
    let mut config = fixture.config();
    config["hostSource"] = json!([]);
    let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
    fixture.add_with(&one, &config);
    let to = fixture.add_with(&two, &config).address().unwrap();
    let report = ping(one.netns(), to, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
}
