//! CHECK succeeds after ADD and after changes that chained plugins may make. It reports
//! each damage to tweed's own objects.

use std::fs;

use serde_json::json;
use tweed_lab::{AddResult, Pod};

use crate::fixture::{
    Fixture, assert_refused, assert_refused_with, assert_silent, with_prev_result,
};

/// The text with the host end for `LINK`, and the pod's addresses for `ADDRESS` and `SIX`.
fn filled(added: &AddResult, text: &str) -> String {
    let [first, last] =
        [added.ips.first(), added.ips.last()].map(|ip| ip.unwrap().address.ip().to_string());
    text.replace("LINK", added.host_link())
        .replace("ADDRESS", &first)
        .replace("SIX", &last)
}

/// Runs a line of `ip` on the node, or in the pod if it starts with `pod: `, as [`filled`]
/// has it. `sysctl key=value` sets a sysctl.
fn change(fixture: &Fixture, pod: &Pod, added: &AddResult, line: &str) {
    let line = filled(added, line);
    let (netns, line) = match line.strip_prefix("pod: ") {
        Some(inside) => (pod.netns(), inside),
        None => (fixture.node.netns(), line.as_str()),
    };
    match line
        .strip_prefix("sysctl ")
        .and_then(|rest| rest.split_once('='))
    {
        Some((key, value)) => netns.set_sysctl(key, value).unwrap(),
        None => netns.ip([line]).unwrap(),
    }
}

/// What chained plugins and others may do.
const ALLOWED: [&str; 12] = [
    "pod: addr add 10.77.0.1/24 dev eth0",
    "pod: route add 10.77.0.0/16 via 169.254.1.1 dev eth0 onlink",
    // A pod that an earlier version has attached never had it.
    "pod: route flush 169.254.1.1/32",
    "pod: link add br0 type bridge",
    "pod: link set eth0 promisc on",
    "pod: link set eth0 txqueuelen 5000",
    "pod: sysctl ipv4/conf/eth0/rp_filter=2",
    "addr add 192.0.2.200/32 dev lo",
    "pod: neigh add 10.77.0.9 lladdr 02:00:00:00:00:09 dev eth0 nud permanent",
    "route add 10.77.0.0/16 dev LINK",
    // The plugin `tuning` lowers the MTU without adding it to its result.
    "pod: link set eth0 mtu 1300",
    "link set LINK txqueuelen 5000",
];

/// Damages to tweed's own objects, each with what is said about it.
const DAMAGES: &str = "
link del LINK | link LINK is missing on the host
link set LINK down | state of LINK is down, should be up
link set LINK mtu 1300 | MTU of LINK is 1300, should be 1437
link set LINK address 02:00:00:00:00:99 | MAC of LINK is 02:00:00:00:00:99
link set LINK arp on | ARP of LINK is on, should be off
link set LINK group 7 | LINK
link set LINK alias mine | mine
sysctl ipv6/conf/LINK/accept_ra=1 | ipv6 accept_ra of LINK is 1
sysctl ipv6/conf/LINK/autoconf=1 | ipv6 autoconf of LINK is 1
sysctl ipv6/conf/LINK/accept_redirects=1 | ipv6 accept_redirects of LINK is 1
sysctl ipv4/conf/LINK/accept_redirects=1 | ipv4 accept_redirects of LINK is 1
sysctl ipv4/conf/LINK/send_redirects=1 | ipv4 send_redirects of LINK is 1
link set LINK addrgenmode eui64 | addr_gen_mode of LINK is 0
route del ADDRESS | route ADDRESS/32 by LINK is missing
route del SIX | route SIX/128 by LINK is missing
route replace ADDRESS dev LINK scope link src 192.0.2.11 proto 4 | protocol of route ADDRESS/32
route replace ADDRESS dev LINK scope link proto 116 | source of route ADDRESS/32
neigh del ADDRESS dev LINK | neighbour ADDRESS on LINK is missing
neigh replace ADDRESS lladdr 02:00:00:00:00:99 dev LINK nud permanent | neighbour ADDRESS on LINK is 02:00:00:00:00:99
pod: link set eth0 down | state of eth0 is down
pod: link set eth0 mtu 1500 | MTU of eth0 is 1500, should be at most 1437
pod: link set eth0 address 02:00:00:00:00:99 | MAC of eth0 is 02:00:00:00:00:99
pod: addr del ADDRESS/32 dev eth0 | address ADDRESS of eth0 is missing
pod: addr del SIX/128 dev eth0 | address SIX of eth0 is missing
pod: route del default | route 0.0.0.0/0 of eth0 is missing
pod: route del default via fe80::1 dev eth0 | route ::/0 of eth0 is missing
pod: route replace default via 169.254.1.9 dev eth0 onlink | route 0.0.0.0/0 of eth0 is missing
pod: neigh del 169.254.1.1 dev eth0 | neighbour 169.254.1.1 on eth0 is missing
pod: neigh del fe80::1 dev eth0 | neighbour fe80::1 on eth0 is missing
pod: neigh change 169.254.1.1 dev eth0 nud stale | neighbour 169.254.1.1 on eth0
";

subjects! {
    all: passes_with_changes_of_others, fails_without_the_interface, fails_without_the_address, fails_without_the_default_route,
        fails_without_prev_result;
    tweed: reports_each_damage, reports_an_interface_that_belongs_to_another_link, reports_a_missing_reservation,
        reports_a_missing_claim, accepts_an_mtu_in_the_result_of_a_chained_plugin,
        accepts_a_mac_in_the_result_of_a_chained_plugin, fails_for_a_pod_that_was_never_added,
        reports_all_differences_at_once, passes_with_routes_in_another_table,
        passes_where_settings_could_not_be_written, passes_after_the_host_source_changed;
}

fn passes_with_changes_of_others(fixture: &Fixture) {
    for (number, line) in ALLOWED.iter().enumerate() {
        println!("{line}");
        let pod = fixture.pod(&format!("pod{number}"));
        let added = fixture.tool().add(&pod).unwrap();
        change(fixture, &pod, &added, line);
        fixture.tool().check(&pod).unwrap();
        assert_silent(&fixture.check(&pod, &added));
        fixture.tool().del(&pod).unwrap();
    }
}

fn reports_each_damage(fixture: &Fixture) {
    for (number, row) in DAMAGES.trim().lines().enumerate() {
        println!("{row}");
        let (line, word) = row.split_once(" | ").unwrap();
        let pod = fixture.pod(&format!("pod{number}"));
        let added = fixture.add_with(&pod, &fixture.dual_stack_config());
        change(fixture, &pod, &added, line);
        let word = filled(&added, word);
        assert_refused_with(&fixture.check(&pod, &added), 104, &[&word]);
        fixture.del(&pod);
    }
}

fn fails_after(fixture: &Fixture, line: &str) {
    let pod = fixture.pod("pod");
    let added = fixture.tool().add(&pod).unwrap();
    change(fixture, &pod, &added, line);
    fixture.tool().check(&pod).unwrap_err();
    assert_refused(&fixture.check(&pod, &added));
}

fn fails_without_the_interface(fixture: &Fixture) {
    fails_after(fixture, "pod: link del eth0");
}

fn fails_without_the_address(fixture: &Fixture) {
    fails_after(fixture, "pod: addr flush dev eth0");
}

fn fails_without_the_default_route(fixture: &Fixture) {
    fails_after(fixture, "pod: route del default");
}

fn fails_without_prev_result(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    fixture.add(&pod);
    let document = assert_refused(&fixture.run(&fixture.call("CHECK", &pod)));
    if fixture.is_tweed() {
        assert_eq!(document["code"], 7, "{document}");
    }
}

fn reports_an_interface_that_belongs_to_another_link(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    // The peer of the new eth0 is not the host end.
    // Linux 5.10 renames no link that is up.
    change(fixture, &pod, &added, "pod: link set eth0 down");
    change(fixture, &pod, &added, "pod: link set eth0 name away0");
    change(
        fixture,
        &pod,
        &added,
        "pod: link add eth0 type veth peer name eth1",
    );
    let output = fixture.check(&pod, &added);
    assert_refused_with(
        &output,
        104,
        &["eth0 in the container is not the other end of"],
    );
}

fn reports_a_missing_reservation(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    fs::remove_dir_all(fixture.data_dir()).unwrap();
    assert_refused_with(
        &fixture.check(&pod, &added),
        104,
        &["the store has no reservation"],
    );
}

fn reports_a_missing_claim(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    let address = added.address().unwrap().to_string();
    fs::remove_file(fixture.store().join(&address)).unwrap();
    assert_refused_with(&fixture.check(&pod, &added), 104, &[&address]);
}

/// A change that a later plugin of the chain made and added to its result.
fn chained(fixture: &Fixture, line: &str, key: &str, value: serde_json::Value) {
    let pod = fixture.pod("pod");
    let mut added = fixture.add(&pod);
    change(fixture, &pod, &added, line);
    assert_refused_with(&fixture.check(&pod, &added), 104, &["eth0"]);
    added.document["interfaces"][1][key] = value;
    if key == "mac" {
        // The kernel deletes a link's neighbours when its MAC changes, and the node's
        // neighbour entry has the old MAC.
        let host_mac = &added.interfaces[0].mac;
        for line in [
            &format!("pod: neigh add 169.254.1.1 lladdr {host_mac} dev eth0 nud permanent"),
            "neigh replace ADDRESS lladdr 02:00:00:00:00:99 dev LINK nud permanent",
        ] {
            change(fixture, &pod, &added, line);
        }
    }
    assert_silent(&fixture.check(&pod, &added));
}

fn accepts_an_mtu_in_the_result_of_a_chained_plugin(fixture: &Fixture) {
    chained(fixture, "pod: link set eth0 mtu 9000", "mtu", json!(9000));
}

fn accepts_a_mac_in_the_result_of_a_chained_plugin(fixture: &Fixture) {
    let mac = "02:00:00:00:00:99";
    chained(
        fixture,
        &format!("pod: link set eth0 address {mac}"),
        "mac",
        json!(mac),
    );
}

fn fails_for_a_pod_that_was_never_added(fixture: &Fixture) {
    let [pod, other] = ["pod", "other"].map(|name| fixture.pod(name));
    let added = fixture.add(&pod);
    assert_refused_with(&fixture.check(&other, &added), 104, &["missing"]);
}

fn reports_all_differences_at_once(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    change(fixture, &pod, &added, "route del ADDRESS");
    change(fixture, &pod, &added, "pod: neigh del 169.254.1.1 dev eth0");
    let words = [
        "2 differences",
        "is missing on the host",
        "neighbour 169.254.1.1",
    ];
    assert_refused_with(&fixture.check(&pod, &added), 104, &words);
}

fn passes_with_routes_in_another_table(fixture: &Fixture) {
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let mut config = fixture.config();
        config["cniVersion"] = version.into();
        config["ipam"]["routes"] =
            json!([{ "dst": "10.9.0.0/16", "table": 100 }, { "dst": "10.8.0.0/16" }]);
        let pod = fixture.pod(&format!("pod{}", version.replace('.', "-")));
        let added = fixture.add_with(&pod, &config);
        let table = pod.netns().sh("ip route show table 100").unwrap();
        assert!(table.starts_with("10.9.0.0/16 via 169.254.1.1"), "{table}");
        let check = || {
            let config = with_prev_result(config.clone(), &added);
            fixture.run(&fixture.call("CHECK", &pod).config(&config))
        };
        assert_silent(&check());
        change(fixture, &pod, &added, "pod: route del 10.8.0.0/16");
        assert_refused_with(&check(), 104, &["10.8.0.0/16"]);
    }
}

/// As in an unprivileged container, where ADD warns.
fn passes_where_settings_could_not_be_written(fixture: &Fixture) {
    let read_only = fixture.wrapper(
        "read_only",
        "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec $PLUGIN",
    );
    let pod = fixture.pod("pod");
    let add = fixture.call("ADD", &pod).run(&fixture.node, &read_only);
    let output = add.unwrap();
    assert!(output.stderr.contains("accept_ra"), "{output:?}");
    let added = AddResult::parse(&output.stdout).unwrap();
    assert_silent(&fixture.check(&pod, &added));
    change(fixture, &pod, &added, "link set LINK mtu 1300");
    assert_refused_with(&fixture.check(&pod, &added), 104, &["MTU"]);
}

/// As after the node got another address: the agent has written another config, and
/// changes the routes of running pods a moment later.
fn passes_after_the_host_source_changed(fixture: &Fixture) {
    let (new, other) = ("192.0.2.77", "192.0.2.78");
    for address in [new, other] {
        let line = format!("addr add {address}/32 dev lo");
        fixture.node.netns().ip([line]).unwrap();
    }
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    let check = || {
        let mut config = with_prev_result(fixture.config(), &added);
        config["hostSource"] = json!([new]);
        fixture.run(&fixture.call("CHECK", &pod).config(&config))
    };
    assert_silent(&check());
    let replace =
        |source: &str| format!("route replace ADDRESS dev LINK scope link src {source} proto 116");
    change(fixture, &pod, &added, &replace(new));
    assert_silent(&check());
    change(fixture, &pod, &added, &replace(other));
    assert_refused_with(&check(), 104, &["source of route", other, new]);
}
