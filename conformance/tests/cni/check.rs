//! CHECK: passes after ADD and after what chained plugins may add; each thing
//! of our own that was broken by hand is named.

use std::fs;

use serde_json::json;
use tweed_lab::{AddResult, Pod};

use crate::bench::{Bench, refused, refused_with, silent};

/// Runs a line on the node, or with `pod: ` before it in the pod. `LINK` stands
/// for the host end, `ADDRESS` for the pod's; `sysctl key=value` sets one.
fn by_hand(bench: &Bench, pod: &Pod, added: &AddResult, line: &str) {
    let address = added.address().unwrap().to_string();
    let line = line
        .replace("LINK", added.host_link())
        .replace("ADDRESS", &address);
    let (netns, line) = match line.strip_prefix("pod: ") {
        Some(inside) => (pod.netns(), inside),
        None => (bench.node.netns(), line.as_str()),
    };
    match line
        .strip_prefix("sysctl ")
        .and_then(|rest| rest.split_once('='))
    {
        Some((key, value)) => netns.set_sysctl(key, value).unwrap(),
        None => netns.ip([line]).unwrap(),
    }
}

mod passes_with {
    use super::*;

    fn passes(bench: &Bench, line: &str) {
        let pod = bench.pod("pod");
        let added = bench.tool().add(&pod).unwrap();
        by_hand(bench, &pod, &added, line);
        bench.tool().check(&pod).unwrap();
        silent(&bench.check(&pod, &added));
    }

    rows! {
        passes;
        all {
            another_address_in_the_pod: "pod: addr add 10.77.0.1/24 dev eth0";
            another_route_in_the_pod: "pod: route add 10.77.0.0/16 via 169.254.1.1 dev eth0 onlink";
            another_link_in_the_pod: "pod: link add br0 type bridge";
            promiscuous_mode: "pod: link set eth0 promisc on";
            a_longer_queue: "pod: link set eth0 txqueuelen 5000";
            a_sysctl_in_the_pod: "pod: sysctl ipv4/conf/eth0/rp_filter=2";
            another_address_on_the_node: "addr add 192.0.2.200/32 dev lo";
            another_neighbour_in_the_pod:
                "pod: neigh add 10.77.0.9 lladdr 02:00:00:00:00:09 dev eth0 nud permanent";
            another_route_by_the_host_end: "route add 10.77.0.0/16 dev LINK";
            // The plugin `tuning` lowers it, and does not put it into its result.
            a_lower_mtu_in_the_pod: "pod: link set eth0 mtu 1300";
            a_longer_queue_on_the_host: "link set LINK txqueuelen 5000";
        }
    }
}

mod names {
    use super::*;

    fn names(bench: &Bench, line: &str, word: &str) {
        let pod = bench.pod("pod");
        let added = bench.add_with(&pod, &bench.dual_stack_config());
        by_hand(bench, &pod, &added, line);
        let address = added.address().unwrap().to_string();
        let word = word
            .replace("LINK", added.host_link())
            .replace("ADDRESS", &address);
        refused_with(&bench.check(&pod, &added), 104, &[&word]);
    }

    rows! {
        names;
        tweed {
            host_end_gone: "link del LINK", "link LINK is missing on the host";
            host_end_down: "link set LINK down", "state of LINK is down, should be up";
            host_end_mtu: "link set LINK mtu 1300", "MTU of LINK is 1300, should be 1437";
            host_end_mac: "link set LINK address 02:00:00:00:00:99", "MAC of LINK is 02:00:00:00:00:99";
            host_end_arp: "link set LINK arp on", "ARP of LINK is on, should be off";
            host_end_group: "link set LINK group 7", "LINK";
            host_end_alias: "link set LINK alias mine", "mine";
            host_accept_ra: "sysctl ipv6/conf/LINK/accept_ra=1", "ipv6 accept_ra of LINK is 1";
            host_autoconf: "sysctl ipv6/conf/LINK/autoconf=1", "ipv6 autoconf of LINK is 1";
            host_accept_redirects_v6: "sysctl ipv6/conf/LINK/accept_redirects=1",
                "ipv6 accept_redirects of LINK is 1";
            host_accept_redirects_v4: "sysctl ipv4/conf/LINK/accept_redirects=1",
                "ipv4 accept_redirects of LINK is 1";
            host_send_redirects: "sysctl ipv4/conf/LINK/send_redirects=1",
                "ipv4 send_redirects of LINK is 1";
            host_addr_gen_mode: "link set LINK addrgenmode eui64", "addr_gen_mode of LINK is 0";
            host_route_gone: "route del ADDRESS", "route ADDRESS/32 by LINK is missing";
            host_route_v6_gone: "route del fd00:244:1::2", "route fd00:244:1::2/128 by LINK is missing";
            host_route_protocol: "route replace ADDRESS dev LINK scope link src 192.0.2.11 proto 4",
                "protocol of route ADDRESS/32";
            host_route_source: "route replace ADDRESS dev LINK scope link proto 116",
                "source of route ADDRESS/32";
            host_neighbour_gone: "neigh del ADDRESS dev LINK", "neighbour ADDRESS on LINK is missing";
            host_neighbour_mac: "neigh replace ADDRESS lladdr 02:00:00:00:00:99 dev LINK nud permanent",
                "neighbour ADDRESS on LINK is 02:00:00:00:00:99";
            pod_end_down: "pod: link set eth0 down", "state of eth0 is down";
            pod_end_mtu: "pod: link set eth0 mtu 1500", "MTU of eth0 is 1500, should be at most 1437";
            pod_end_mac: "pod: link set eth0 address 02:00:00:00:00:99", "MAC of eth0 is 02:00:00:00:00:99";
            pod_address_v4_gone: "pod: addr del ADDRESS/32 dev eth0", "address ADDRESS of eth0 is missing";
            pod_address_v6_gone: "pod: addr del fd00:244:1::2/128 dev eth0",
                "address fd00:244:1::2 of eth0 is missing";
            pod_default_gone: "pod: route del default", "route 0.0.0.0/0 of eth0 is missing";
            pod_default_v6_gone: "pod: route del default via fe80::1 dev eth0", "route ::/0 of eth0 is missing";
            pod_default_elsewhere: "pod: route replace default via 169.254.1.9 dev eth0 onlink",
                "route 0.0.0.0/0 of eth0 is missing";
            pod_neighbour_gone: "pod: neigh del 169.254.1.1 dev eth0",
                "neighbour 169.254.1.1 on eth0 is missing";
            pod_neighbour_v6_gone: "pod: neigh del fe80::1 dev eth0",
                "neighbour fe80::1 on eth0 is missing";
            pod_neighbour_stale: "pod: neigh change 169.254.1.1 dev eth0 nud stale",
                "neighbour 169.254.1.1 on eth0";
        }
    }
}

subjects! {
    all: fails_without_the_interface, fails_without_the_address, fails_without_the_default_route,
        fails_without_prev_result;
    tweed: names_an_interface_that_is_anothers, names_a_reservation_that_is_gone,
        names_a_claim_that_is_gone, an_mtu_that_a_chained_plugin_set_counts,
        a_mac_that_a_chained_plugin_set_counts, of_what_was_never_added,
        tells_all_that_differs_at_once;
}

fn fails_after(bench: &Bench, line: &str) {
    let pod = bench.pod("pod");
    let added = bench.tool().add(&pod).unwrap();
    by_hand(bench, &pod, &added, line);
    bench.tool().check(&pod).unwrap_err();
    refused(&bench.check(&pod, &added));
}

fn fails_without_the_interface(bench: &Bench) {
    fails_after(bench, "pod: link del eth0");
}

fn fails_without_the_address(bench: &Bench) {
    fails_after(bench, "pod: addr flush dev eth0");
}

fn fails_without_the_default_route(bench: &Bench) {
    fails_after(bench, "pod: route del default");
}

fn fails_without_prev_result(bench: &Bench) {
    let pod = bench.pod("pod");
    bench.add(&pod);
    let document = refused(&bench.run(&bench.call("CHECK", &pod)));
    if bench.is_tweed() {
        assert_eq!(document["code"], 7, "{document}");
    }
}

fn names_an_interface_that_is_anothers(bench: &Bench) {
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    // Its peer is no longer the host end.
    by_hand(bench, &pod, &added, "pod: link set eth0 name away0");
    by_hand(
        bench,
        &pod,
        &added,
        "pod: link add eth0 type veth peer name eth1",
    );
    let output = bench.check(&pod, &added);
    refused_with(
        &output,
        104,
        &["eth0 in the container is not the other end of"],
    );
}

fn names_a_reservation_that_is_gone(bench: &Bench) {
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    fs::remove_dir_all(bench.data_dir()).unwrap();
    refused_with(
        &bench.check(&pod, &added),
        104,
        &["the store has no reservation"],
    );
}

fn names_a_claim_that_is_gone(bench: &Bench) {
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    let address = added.address().unwrap().to_string();
    fs::remove_file(bench.store().join(&address)).unwrap();
    refused_with(&bench.check(&pod, &added), 104, &[&address]);
}

/// What a later plugin of the chain did and put into its result.
fn chained(bench: &Bench, line: &str, key: &str, value: serde_json::Value) {
    let pod = bench.pod("pod");
    let mut added = bench.add(&pod);
    by_hand(bench, &pod, &added, line);
    refused_with(&bench.check(&pod, &added), 104, &["eth0"]);
    added.document["interfaces"][1][key] = value;
    if key == "mac" {
        // The kernel forgets a link's neighbours when its MAC changes, and the
        // node's neighbour is the old one.
        let host_mac = &added.interfaces[0].mac;
        for line in [
            &format!("pod: neigh add 169.254.1.1 lladdr {host_mac} dev eth0 nud permanent"),
            "neigh replace ADDRESS lladdr 02:00:00:00:00:99 dev LINK nud permanent",
        ] {
            by_hand(bench, &pod, &added, line);
        }
    }
    silent(&bench.check(&pod, &added));
}

fn an_mtu_that_a_chained_plugin_set_counts(bench: &Bench) {
    chained(bench, "pod: link set eth0 mtu 9000", "mtu", json!(9000));
}

fn a_mac_that_a_chained_plugin_set_counts(bench: &Bench) {
    let mac = "02:00:00:00:00:99";
    chained(
        bench,
        &format!("pod: link set eth0 address {mac}"),
        "mac",
        json!(mac),
    );
}

fn of_what_was_never_added(bench: &Bench) {
    let [pod, other] = ["pod", "other"].map(|name| bench.pod(name));
    let added = bench.add(&pod);
    refused_with(&bench.check(&other, &added), 104, &["missing"]);
}

fn tells_all_that_differs_at_once(bench: &Bench) {
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    by_hand(bench, &pod, &added, "route del ADDRESS");
    by_hand(bench, &pod, &added, "pod: neigh del 169.254.1.1 dev eth0");
    let words = [
        "2 differences",
        "is missing on the host",
        "neighbour 169.254.1.1",
    ];
    refused_with(&bench.check(&pod, &added), 104, &words);
}
