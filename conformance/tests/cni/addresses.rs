//! Address assignment: the next free address, a requested one, or an error.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

use serde_json::{Value, json};
use tweed_lab::{AddResult, PluginCall, Pod, Snapshot};

use crate::fixture::{Fixture, assert_refused, assert_refused_with};

subjects! {
    all: addresses_are_used_in_turn, a_full_range_is_refused_and_freed_addresses_are_used_again,
        reserved_addresses_of_a_subnet_are_not_assigned, only_addresses_of_the_range_are_assigned,
        each_range_set_assigns_one_address, a_range_set_continues_in_its_next_range, requested_by_capability,
        requested_by_args, requested_by_ip, a_requested_address_in_use_is_refused,
        a_requested_address_outside_the_range_is_refused, a_range_of_the_runtime_is_used,
        a_foreign_folder_named_like_an_address_counts_as_taken, each_network_has_its_own_store;
    tweed: a_full_range_is_named_with_its_count, requested_addresses_have_codes_and_reasons,
        files_of_host_local_count_as_taken,
        the_address_of_a_pod_that_is_gone_is_given_before_an_add_fails;
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ips(added: &AddResult) -> Vec<IpAddr> {
    added.ips.iter().map(|ip| ip.address.ip()).collect()
}

fn subnet(fixture: &Fixture, subnet: &str) -> Value {
    fixture.config_over(&json!([[{ "subnet": subnet }]]))
}

/// ADD and DEL of the same pod. Returns the address that it had.
fn add_and_del(fixture: &Fixture, pod: &Pod, config: &Value) -> IpAddr {
    let address = fixture.add_with(pod, config).address().unwrap();
    fixture.del(pod);
    address
}

/// No address is used again before all others of the range were used.
fn addresses_are_used_in_turn(fixture: &Fixture) {
    let config = subnet(fixture, "10.244.1.0/28");
    let pod = fixture.pod("pod");
    let twice: Vec<IpAddr> = (0..26)
        .map(|_| add_and_del(fixture, &pod, &config))
        .collect();
    let once: BTreeSet<IpAddr> = twice[..13].iter().copied().collect();
    assert_eq!(once.len(), 13, "{twice:?}");
    assert_eq!(twice[..13], twice[13..], "the same order again");
}

fn a_full_range_is_refused_and_freed_addresses_are_used_again(fixture: &Fixture) {
    let before = fixture.snapshot();
    let config = subnet(fixture, "10.244.1.0/28");
    let pods: Vec<Pod> = (0..14).map(|n| fixture.pod(&format!("pod{n}"))).collect();
    let (last, fit) = pods.split_last().unwrap();
    let assigned: BTreeSet<IpAddr> = fit
        .iter()
        .map(|pod| fixture.add_with(pod, &config).address().unwrap())
        .collect();
    assert_eq!(
        assigned.len(),
        13,
        "a /28 without network, gateway and broadcast address"
    );
    let full = Snapshot::settled(fixture.node.netns()).unwrap();
    assert_refused(&fixture.run(&fixture.call("ADD", last).config(&config)));
    fixture.assert_same_kernel(&full);
    assert_eq!(fixture.reserved(), assigned);

    fixture.del(&fit[6]);
    let again = fixture.add_with(last, &config).address().unwrap();
    assert!(assigned.contains(&again) && fixture.reserved() == assigned);
    pods.iter().for_each(|pod| fixture.del(pod));
    fixture.assert_nothing_left(&before);
}

fn a_full_range_is_named_with_its_count(fixture: &Fixture) {
    let config = subnet(fixture, "10.244.1.0/29");
    let pods = [0, 1, 2, 3, 4, 5].map(|n| fixture.pod(&format!("pod{n}")));
    for pod in &pods[..5] {
        fixture.add_with(pod, &config);
    }
    let output = fixture.run(&fixture.call("ADD", &pods[5]).config(&config));
    assert_refused_with(&output, 100, &["10.244.1.", "5 of 5", "pods"]);
    fixture.write_chain("1.1.0", &[config]);
    let error = fixture.tool().add(&pods[5]).unwrap_err().chain();
    assert!(error.contains("5 of 5"), "{error}");
}

fn reserved_addresses_of_a_subnet_are_not_assigned(fixture: &Fixture) {
    let mut config = subnet(fixture, "10.244.1.0/29");
    config["ipam"]["ranges"][0][0]["gateway"] = "10.244.1.4".into();
    let pod = fixture.pod("pod");
    let assigned: BTreeSet<IpAddr> = (0..8)
        .map(|_| add_and_del(fixture, &pod, &config))
        .collect();
    let expected = [
        "10.244.1.1",
        "10.244.1.2",
        "10.244.1.3",
        "10.244.1.5",
        "10.244.1.6",
    ];
    assert_eq!(assigned, expected.map(ip).into());
}

fn only_addresses_of_the_range_are_assigned(fixture: &Fixture) {
    let config = fixture.config_over(&json!([[{
        "subnet": "10.244.1.0/24", "rangeStart": "10.244.1.100", "rangeEnd": "10.244.1.102"
    }]]));
    let pod = fixture.pod("pod");
    let assigned: BTreeSet<IpAddr> = (0..4)
        .map(|_| add_and_del(fixture, &pod, &config))
        .collect();
    assert_eq!(
        assigned,
        ["10.244.1.100", "10.244.1.101", "10.244.1.102"]
            .map(ip)
            .into()
    );
}

fn each_range_set_assigns_one_address(fixture: &Fixture) {
    let config = fixture.config_over(&json!([
        [{ "subnet": "10.244.1.0/24" }],
        [{ "subnet": "10.245.1.0/24" }],
        [{ "subnet": "fd00:244:1::/64" }],
    ]));
    let added = fixture.add_with(&fixture.pod("pod"), &config);
    assert_eq!(
        ips(&added),
        ["10.244.1.2", "10.245.1.2", "fd00:244:1::2"].map(ip)
    );
    assert_eq!(fixture.reserved().len(), 3);
}

fn a_range_set_continues_in_its_next_range(fixture: &Fixture) {
    let config = fixture.config_over(&json!([[
        { "subnet": "10.244.1.0/30" },
        { "subnet": "10.244.9.0/30" },
    ]]));
    let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
    let assigned = [&one, &two].map(|pod| fixture.add_with(pod, &config).address().unwrap());
    assert_eq!(assigned, ["10.244.1.2", "10.244.9.2"].map(ip));
}

fn requested_by_capability(fixture: &Fixture) {
    let mut config = fixture.config();
    config["capabilities"] = json!({ "ips": true });
    fixture.write_chain("1.1.0", &[config]);
    let tool = fixture
        .tool()
        .capabilities(&json!({ "ips": ["10.244.1.40/24"] }));
    let added = tool.add(&fixture.pod("pod")).unwrap();
    assert_eq!(ips(&added), [ip("10.244.1.40")]);
}

fn requested_by_args(fixture: &Fixture) {
    let mut config = fixture.config();
    config["args"] = json!({ "cni": { "ips": ["10.244.1.41"] } });
    assert_eq!(
        ips(&fixture.add_with(&fixture.pod("pod"), &config)),
        [ip("10.244.1.41")]
    );
}

fn requested_by_ip(fixture: &Fixture) {
    let tool = fixture.tool().args("IgnoreUnknown=1;IP=10.244.1.42");
    assert_eq!(
        ips(&tool.add(&fixture.pod("pod")).unwrap()),
        [ip("10.244.1.42")]
    );
}

fn request(fixture: &Fixture, pod: &Pod, address: &str) -> PluginCall {
    fixture
        .call("ADD", pod)
        .env("CNI_ARGS", &format!("IP={address}"))
}

fn a_requested_address_in_use_is_refused(fixture: &Fixture) {
    let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
    assert_eq!(
        fixture.run(&request(fixture, &one, "10.244.1.9")).code,
        Some(0)
    );
    let before = fixture.snapshot();
    assert_refused(&fixture.run(&request(fixture, &two, "10.244.1.9")));
    fixture.assert_same_kernel(&before);
    assert_eq!(fixture.reserved(), [ip("10.244.1.9")].into());
}

fn a_requested_address_outside_the_range_is_refused(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    for address in ["10.9.9.9", "10.244.1.1", "fd00::9"] {
        assert_refused(&fixture.run(&request(fixture, &pod, address)));
        fixture.assert_nothing_left(&before);
    }
}

fn requested_addresses_have_codes_and_reasons(fixture: &Fixture) {
    let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
    fixture.run(&request(fixture, &one, "10.244.1.9"));
    let taken = fixture.run(&request(fixture, &two, "10.244.1.9"));
    assert_refused_with(&taken, 101, &["10.244.1.9", &one.container_id()]);
    let outside = fixture.run(&request(fixture, &two, "10.9.9.9"));
    assert_refused_with(&outside, 101, &["10.9.9.9", "10.244.1."]);
    let gateway = fixture.run(&request(fixture, &two, "10.244.1.1"));
    assert_refused_with(&gateway, 101, &["10.244.1.1", "gateway"]);
}

fn a_range_of_the_runtime_is_used(fixture: &Fixture) {
    let mut config = fixture.config();
    config["ipam"].as_object_mut().unwrap().remove("ranges");
    config["runtimeConfig"] = json!({ "ipRanges": [[{ "subnet": "10.250.1.0/24" }]] });
    assert_eq!(
        ips(&fixture.add_with(&fixture.pod("pod"), &config)),
        [ip("10.250.1.2")]
    );
}

fn files_of_host_local_count_as_taken(fixture: &Fixture) {
    let store = fixture.store();
    fs::create_dir_all(&store).unwrap();
    // The format of host-local: container ID, line end, interface. Old versions wrote no
    // interface.
    fs::write(store.join("10.244.1.2"), "some-container\r\neth0").unwrap();
    fs::write(store.join("10.244.1.3"), "some-container").unwrap();
    fs::write(store.join("10.244.1.5"), "").unwrap();
    fs::write(store.join("last_reserved_ip.0"), "10.244.1.1").unwrap();
    let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
    let assigned = [&one, &two].map(|pod| fixture.add(pod).address().unwrap());
    assert_eq!(assigned, ["10.244.1.4", "10.244.1.6"].map(ip));
    let pod = fixture.pod("other");
    assert_refused_with(
        &fixture.run(&request(fixture, &pod, "10.244.1.3")),
        101,
        &["10.244.1.3"],
    );
    fixture.del(&one);
    for name in ["10.244.1.2", "10.244.1.3", "10.244.1.5"] {
        assert!(store.join(name).exists(), "{name}");
    }
}

fn a_foreign_folder_named_like_an_address_counts_as_taken(fixture: &Fixture) {
    fs::create_dir_all(fixture.store().join("10.244.1.2")).unwrap();
    let added = fixture.add(&fixture.pod("pod"));
    assert_eq!(ips(&added), [ip("10.244.1.3")]);
}

fn each_network_has_its_own_store(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    fixture.add(&pod);
    let mut other = fixture.config_over(&json!([[{ "subnet": "10.245.1.0/24" }]]));
    other["name"] = "other".into();
    other["ipam"]["routes"] = json!([{ "dst": "10.245.0.0/16" }]);
    let second = fixture.call("ADD", &pod).ifname("net1").config(&other);
    assert_eq!(fixture.run(&second).code, Some(0));
    assert_eq!(fixture.reserved(), [ip("10.244.1.2")].into());
    assert!(
        fixture
            .data_dir()
            .join("other/10.245.1.2")
            .symlink_metadata()
            .is_ok()
    );
}

/// As after a runtime that has lost its state, where neither an agent nor GC frees it.
fn the_address_of_a_pod_that_is_gone_is_given_before_an_add_fails(fixture: &Fixture) {
    let mut config = fixture.config();
    config["ipam"]["ranges"][0][0]["rangeEnd"] = "10.244.1.3".into();
    let other = fixture.pod("other");
    fixture.add_with(&other, &config);
    let without = fixture.snapshot();
    let add_and_lose = |name| {
        let pod = fixture.pod(name);
        let address = fixture.add_with(&pod, &config).address().unwrap();
        drop(pod);
        fixture.assert_same_kernel(&without);
        address
    };
    let address = add_and_lose("gone");
    assert_eq!(add_and_lose("gone too"), address);

    let [new, late] = ["new", "late"].map(|name| fixture.pod(name));
    let mut asking = config.clone();
    asking["args"] = json!({ "cni": { "ips": [address] } });
    assert_eq!(fixture.add_with(&new, &asking).address(), Some(address));
    let full = fixture.run(&fixture.call("ADD", &late).config(&config));
    assert_refused_with(&full, 100, &["2 of 2"]);
    let taken = fixture.run(&fixture.call("ADD", &late).config(&asking));
    assert_refused_with(&taken, 101, &[&address.to_string()]);
    assert_eq!(fixture.records(), 2);
    fixture.del(&other);
}
