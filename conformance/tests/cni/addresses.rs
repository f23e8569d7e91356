//! Which address a pod gets: the next in turn, the one asked for, or none.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

use serde_json::{Value, json};
use tweed_lab::{AddResult, PluginCall, Pod};

use crate::bench::{Bench, refused, refused_with};

subjects! {
    all: addresses_go_round, a_full_range_is_refused_and_freed_ones_serve_again,
        the_subnets_own_addresses_are_not_given, a_range_within_the_subnet_is_kept_to,
        each_set_gives_one_address, a_set_goes_on_in_its_next_range, asked_for_by_capability,
        asked_for_by_args, asked_for_by_ip, an_asked_for_address_that_is_taken_is_refused,
        an_asked_for_address_outside_is_refused, a_range_of_the_runtime_is_used,
        a_foreign_folder_of_the_name_is_taken, several_networks_have_stores_of_their_own;
    tweed: a_full_range_is_named_with_its_count, asked_for_codes_and_words,
        files_of_host_local_are_taken_addresses;
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ips(added: &AddResult) -> Vec<IpAddr> {
    added.ips.iter().map(|ip| ip.address.ip()).collect()
}

fn subnet(bench: &Bench, subnet: &str) -> Value {
    bench.config_over(&json!([[{ "subnet": subnet }]]))
}

/// ADD and DEL of the same pod; the address that it had.
fn come_and_go(bench: &Bench, pod: &Pod, config: &Value) -> IpAddr {
    let address = bench.add_with(pod, config).address().unwrap();
    bench.del(pod);
    address
}

/// No address is used again before all others were.
fn addresses_go_round(bench: &Bench) {
    let config = subnet(bench, "10.244.1.0/28");
    let pod = bench.pod("pod");
    let twice: Vec<IpAddr> = (0..26).map(|_| come_and_go(bench, &pod, &config)).collect();
    let once: BTreeSet<IpAddr> = twice[..13].iter().copied().collect();
    assert_eq!(once.len(), 13, "{twice:?}");
    assert_eq!(twice[..13], twice[13..], "the same order again");
}

fn a_full_range_is_refused_and_freed_ones_serve_again(bench: &Bench) {
    let before = bench.snapshot();
    let config = subnet(bench, "10.244.1.0/28");
    let pods: Vec<Pod> = (0..14).map(|n| bench.pod(&format!("pod{n}"))).collect();
    let (last, fit) = pods.split_last().unwrap();
    let given: BTreeSet<IpAddr> = fit
        .iter()
        .map(|pod| bench.add_with(pod, &config).address().unwrap())
        .collect();
    assert_eq!(given.len(), 13, "a /28 less network, gateway and broadcast");
    let full = bench.snapshot();
    refused(&bench.run(&bench.call("ADD", last).config(&config)));
    bench.assert_same_kernel(&full);
    assert_eq!(bench.reserved(), given);

    bench.del(&fit[6]);
    let again = bench.add_with(last, &config).address().unwrap();
    assert!(given.contains(&again) && bench.reserved() == given);
    pods.iter().for_each(|pod| bench.del(pod));
    bench.assert_nothing_left(&before);
}

fn a_full_range_is_named_with_its_count(bench: &Bench) {
    let config = subnet(bench, "10.244.1.0/29");
    let pods = [0, 1, 2, 3, 4, 5].map(|n| bench.pod(&format!("pod{n}")));
    for pod in &pods[..5] {
        bench.add_with(pod, &config);
    }
    let output = bench.run(&bench.call("ADD", &pods[5]).config(&config));
    refused_with(&output, 100, &["10.244.1.", "5 of 5", "pods"]);
    bench.write_chain("1.1.0", &[config]);
    let said = bench.tool().add(&pods[5]).unwrap_err().chain();
    assert!(said.contains("5 of 5"), "{said}");
}

fn the_subnets_own_addresses_are_not_given(bench: &Bench) {
    let mut config = subnet(bench, "10.244.1.0/29");
    config["ipam"]["ranges"][0][0]["gateway"] = "10.244.1.4".into();
    let pod = bench.pod("pod");
    let given: BTreeSet<IpAddr> = (0..8).map(|_| come_and_go(bench, &pod, &config)).collect();
    let expected = [
        "10.244.1.1",
        "10.244.1.2",
        "10.244.1.3",
        "10.244.1.5",
        "10.244.1.6",
    ];
    assert_eq!(given, expected.map(ip).into());
}

fn a_range_within_the_subnet_is_kept_to(bench: &Bench) {
    let config = bench.config_over(&json!([[{
        "subnet": "10.244.1.0/24", "rangeStart": "10.244.1.100", "rangeEnd": "10.244.1.102"
    }]]));
    let pod = bench.pod("pod");
    let given: BTreeSet<IpAddr> = (0..4).map(|_| come_and_go(bench, &pod, &config)).collect();
    assert_eq!(
        given,
        ["10.244.1.100", "10.244.1.101", "10.244.1.102"]
            .map(ip)
            .into()
    );
}

fn each_set_gives_one_address(bench: &Bench) {
    let config = bench.config_over(&json!([
        [{ "subnet": "10.244.1.0/24" }],
        [{ "subnet": "10.245.1.0/24" }],
        [{ "subnet": "fd00:244:1::/64" }],
    ]));
    let added = bench.add_with(&bench.pod("pod"), &config);
    assert_eq!(
        ips(&added),
        ["10.244.1.2", "10.245.1.2", "fd00:244:1::2"].map(ip)
    );
    assert_eq!(bench.reserved().len(), 3);
}

fn a_set_goes_on_in_its_next_range(bench: &Bench) {
    let config = bench.config_over(&json!([[
        { "subnet": "10.244.1.0/30" },
        { "subnet": "10.244.9.0/30" },
    ]]));
    let [one, two] = ["one", "two"].map(|name| bench.pod(name));
    let given = [&one, &two].map(|pod| bench.add_with(pod, &config).address().unwrap());
    assert_eq!(given, ["10.244.1.2", "10.244.9.2"].map(ip));
}

fn asked_for_by_capability(bench: &Bench) {
    let mut config = bench.config();
    config["capabilities"] = json!({ "ips": true });
    bench.write_chain("1.1.0", &[config]);
    let tool = bench
        .tool()
        .capabilities(&json!({ "ips": ["10.244.1.40/24"] }));
    let added = tool.add(&bench.pod("pod")).unwrap();
    assert_eq!(ips(&added), [ip("10.244.1.40")]);
}

fn asked_for_by_args(bench: &Bench) {
    let mut config = bench.config();
    config["args"] = json!({ "cni": { "ips": ["10.244.1.41"] } });
    assert_eq!(
        ips(&bench.add_with(&bench.pod("pod"), &config)),
        [ip("10.244.1.41")]
    );
}

fn asked_for_by_ip(bench: &Bench) {
    let tool = bench.tool().args("IgnoreUnknown=1;IP=10.244.1.42");
    assert_eq!(
        ips(&tool.add(&bench.pod("pod")).unwrap()),
        [ip("10.244.1.42")]
    );
}

fn asking(bench: &Bench, pod: &Pod, address: &str) -> PluginCall {
    bench
        .call("ADD", pod)
        .env("CNI_ARGS", &format!("IP={address}"))
}

fn an_asked_for_address_that_is_taken_is_refused(bench: &Bench) {
    let [one, two] = ["one", "two"].map(|name| bench.pod(name));
    assert_eq!(bench.run(&asking(bench, &one, "10.244.1.9")).code, Some(0));
    let before = bench.snapshot();
    refused(&bench.run(&asking(bench, &two, "10.244.1.9")));
    bench.assert_same_kernel(&before);
    assert_eq!(bench.reserved(), [ip("10.244.1.9")].into());
}

fn an_asked_for_address_outside_is_refused(bench: &Bench) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    for address in ["10.9.9.9", "10.244.1.1", "fd00::9"] {
        refused(&bench.run(&asking(bench, &pod, address)));
        bench.assert_nothing_left(&before);
    }
}

fn asked_for_codes_and_words(bench: &Bench) {
    let [one, two] = ["one", "two"].map(|name| bench.pod(name));
    bench.run(&asking(bench, &one, "10.244.1.9"));
    let taken = bench.run(&asking(bench, &two, "10.244.1.9"));
    refused_with(&taken, 101, &["10.244.1.9", &one.container_id()]);
    let outside = bench.run(&asking(bench, &two, "10.9.9.9"));
    refused_with(&outside, 101, &["10.9.9.9", "10.244.1."]);
    let gateway = bench.run(&asking(bench, &two, "10.244.1.1"));
    refused_with(&gateway, 101, &["10.244.1.1", "gateway"]);
}

fn a_range_of_the_runtime_is_used(bench: &Bench) {
    let mut config = bench.config();
    config["ipam"].as_object_mut().unwrap().remove("ranges");
    config["runtimeConfig"] = json!({ "ipRanges": [[{ "subnet": "10.250.1.0/24" }]] });
    assert_eq!(
        ips(&bench.add_with(&bench.pod("pod"), &config)),
        [ip("10.250.1.2")]
    );
}

fn files_of_host_local_are_taken_addresses(bench: &Bench) {
    let store = bench.store();
    fs::create_dir_all(&store).unwrap();
    // As it writes them: container ID, line end, interface; and long ago
    // without the interface.
    fs::write(store.join("10.244.1.2"), "some-container\r\neth0").unwrap();
    fs::write(store.join("10.244.1.3"), "some-container").unwrap();
    fs::write(store.join("10.244.1.5"), "").unwrap();
    fs::write(store.join("last_reserved_ip.0"), "10.244.1.1").unwrap();
    let [one, two] = ["one", "two"].map(|name| bench.pod(name));
    let given = [&one, &two].map(|pod| bench.add(pod).address().unwrap());
    assert_eq!(given, ["10.244.1.4", "10.244.1.6"].map(ip));
    let pod = bench.pod("asks");
    refused_with(
        &bench.run(&asking(bench, &pod, "10.244.1.3")),
        101,
        &["10.244.1.3"],
    );
    bench.del(&one);
    for name in ["10.244.1.2", "10.244.1.3", "10.244.1.5"] {
        assert!(store.join(name).exists(), "{name}");
    }
}

fn a_foreign_folder_of_the_name_is_taken(bench: &Bench) {
    fs::create_dir_all(bench.store().join("10.244.1.2")).unwrap();
    let added = bench.add(&bench.pod("pod"));
    assert_eq!(ips(&added), [ip("10.244.1.3")]);
}

fn several_networks_have_stores_of_their_own(bench: &Bench) {
    let pod = bench.pod("pod");
    bench.add(&pod);
    let mut other = bench.config_over(&json!([[{ "subnet": "10.245.1.0/24" }]]));
    other["name"] = "other".into();
    other["ipam"]["routes"] = json!([{ "dst": "10.245.0.0/16" }]);
    let second = bench.call("ADD", &pod).ifname("net1").config(&other);
    assert_eq!(bench.run(&second).code, Some(0));
    assert_eq!(bench.reserved(), [ip("10.244.1.2")].into());
    assert!(
        bench
            .data_dir()
            .join("other/10.245.1.2")
            .symlink_metadata()
            .is_ok()
    );
}
