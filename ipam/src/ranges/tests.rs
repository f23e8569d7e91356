use serde_json::{Value, json};

use super::*;

fn parse(ipam: Value) -> Result<IpamConfig, String> {
    parse_with(ipam, None)
}

fn parse_with(ipam: Value, ip_ranges: Option<Value>) -> Result<IpamConfig, String> {
    IpamConfig::parse(ipam.as_object().unwrap(), ip_ranges.as_ref())
}

fn sets(config: &IpamConfig) -> Vec<String> {
    config.ranges.iter().map(RangeSet::to_string).collect()
}

fn candidates(set: &RangeSet, cursor: Option<&str>) -> Vec<String> {
    set.candidates(cursor.map(|cursor| cursor.parse().unwrap()))
        .map(|address| address.to_string())
        .collect()
}

/// The set of a config that host-local accepts, as `first-last`, and the gateway of
/// its first range.
macro_rules! accepted {
    ($($name:ident: $range:tt => $set:literal, $gateway:literal, $capacity:expr;)*) => {
        $(#[test] fn $name() {
            for ipam in [json!($range), json!({ "ranges": [[$range]] })] {
                let config = parse(ipam).unwrap();
                assert_eq!(sets(&config), [$set]);
                let set = config.ranges.iter().next().unwrap();
                assert_eq!(set.ranges()[0].gateway().to_string(), $gateway);
                assert_eq!(set.capacity(), $capacity);
                assert_eq!(config.ignored, [""; 0]);
            }
        })*
    };
}

accepted! {
    a_subnet: { "subnet": "10.1.2.0/24" } => "10.1.2.1-10.1.2.254", "10.1.2.1", 253;
    a_small_subnet: { "subnet": "10.1.2.4/30" } => "10.1.2.5-10.1.2.6", "10.1.2.5", 1;
    start_and_end: { "subnet": "10.1.2.0/24", "rangeStart": "10.1.2.9", "rangeEnd": "10.1.2.17" }
        => "10.1.2.9-10.1.2.17", "10.1.2.1", 9;
    a_gateway_inside: { "subnet": "10.1.2.0/24", "rangeStart": "10.1.2.9", "gateway": "10.1.2.10" }
        => "10.1.2.9-10.1.2.254", "10.1.2.10", 245;
    a_gateway_elsewhere: { "subnet": "10.1.2.0/29", "gateway": "192.0.2.1" }
        => "10.1.2.1-10.1.2.6", "192.0.2.1", 6;
    network_and_broadcast_are_left_out: { "subnet": "10.1.2.0/29", "rangeStart": "10.1.2.0", "rangeEnd": "10.1.2.7" }
        => "10.1.2.1-10.1.2.6", "10.1.2.1", 5;
    ipv6_has_no_broadcast: { "subnet": "fd00::/126" } => "fd00::1-fd00::3", "fd00::1", 2;
    a_large_ipv6_subnet: { "subnet": "fd00::/64" }
        => "fd00::1-fd00::ffff:ffff:ffff:ffff", "fd00::1", (1 << 64) - 2;
    the_largest_ipv6_subnet: { "subnet": "::/0" }
        => "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::1", u128::MAX - 1;
    empty_texts_are_missing: { "subnet": "10.1.2.0/30", "rangeStart": "", "rangeEnd": null, "gateway": "" }
        => "10.1.2.1-10.1.2.2", "10.1.2.1", 1;
    ipv4_in_ipv6_clothes: { "subnet": "10.1.2.0/24", "rangeStart": "::ffff:10.1.2.200" }
        => "10.1.2.200-10.1.2.254", "10.1.2.1", 55;
}

/// A config that is not valid, and what the error must name: key and value.
macro_rules! refused {
    ($($name:ident: $ipam:tt => $($text:literal),+;)*) => {
        $(#[test] fn $name() {
            let error = parse(json!($ipam)).unwrap_err();
            $(assert!(error.contains($text), "{error}");)+
        })*
    };
}

refused! {
    no_ranges_at_all: {} => "ipam.ranges is missing", "10.244.1.0/24";
    an_empty_list_of_sets: { "ranges": [] } => "ipam.ranges is missing";
    ranges_that_are_no_list: { "ranges": {} } => "ipam.ranges is {}", "list";
    ranges_that_are_not_nested: { "ranges": [{ "subnet": "10.1.0.0/24" }] }
        => "ipam.ranges[0]", "10.1.0.0/24", "list";
    an_empty_set: { "ranges": [[]] } => "ipam.ranges[0]", "without ranges";
    a_range_that_is_a_text: { "ranges": [["10.1.0.0/24"]] } => "ipam.ranges[0][0]", "object";
    a_range_without_a_subnet: { "ranges": [[{ "rangeStart": "10.1.0.1" }]] }
        => "ipam.ranges[0][0].subnet is missing";
    a_subnet_that_is_a_number: { "subnet": 10 } => "ipam.subnet is 10", "string";
    a_subnet_without_a_length: { "subnet": "10.1.0.0" } => "ipam.subnet", "10.1.0.0", "prefix length";
    a_subnet_of_nothing: { "subnet": "10.1.0.0/33" } => "ipam.subnet", "10.1.0.0/33";
    a_subnet_with_host_bits: { "ranges": [[{ "subnet": "10.1.0.9/24" }]] }
        => "ipam.ranges[0][0]", "10.1.0.9/24", "10.1.0.0/24";
    a_slash_31: { "subnet": "10.1.0.0/31" } => "10.1.0.0/31", "too small";
    a_slash_127: { "subnet": "fd00::/127" } => "fd00::/127", "too small";
    a_start_that_is_none: { "subnet": "10.1.0.0/24", "rangeStart": "x" }
        => "ipam.rangeStart", "\"x\"", "IP address";
    a_start_outside: { "subnet": "10.1.0.0/24", "rangeStart": "10.2.0.1" }
        => "ipam", "10.2.0.1", "10.1.0.0/24";
    an_end_of_the_other_family: { "subnet": "10.1.0.0/24", "rangeEnd": "fd00::1" }
        => "fd00::1", "10.1.0.0/24";
    a_range_that_runs_backwards: { "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.8" }
        => "10.1.0.9", "10.1.0.8";
    a_gateway_of_the_other_family: { "subnet": "10.1.0.0/24", "gateway": "fd00::1" } => "fd00::1";
    a_range_of_its_gateway_only: { "subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.1" }
        => "10.1.0.1", "no address";
    a_range_of_the_broadcast_only: { "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.255" }
        => "10.1.0.255", "no address";
    both_families_in_a_set: { "ranges": [[{ "subnet": "10.1.0.0/24" }, { "subnet": "fd00::/64" }]] }
        => "ipam.ranges[0]", "IPv6";
    an_overlap_in_a_set: { "ranges": [[{ "subnet": "10.1.0.0/24" }, { "subnet": "10.1.0.128/25" }]] }
        => "ipam.ranges[0]", "10.1.0.1-10.1.0.254", "10.1.0.129-10.1.0.254", "overlap";
    an_overlap_of_sets: { "subnet": "10.1.0.0/24", "ranges": [[{ "subnet": "10.0.0.0/8" }]] }
        => "ipam and ipam.ranges[0]", "overlap";
    a_route_to_nowhere: { "subnet": "10.1.0.0/24", "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "x" }] }
        => "ipam.routes[1]", "\"x\"";
    routes_that_are_no_list: { "subnet": "10.1.0.0/24", "routes": "x" } => "ipam.routes";
    a_file_that_is_a_number: { "subnet": "10.1.0.0/24", "resolvConf": 1 } => "ipam.resolvConf is 1";
}

#[test]
fn the_runtimes_ranges_come_first_then_the_old_one_then_the_list() {
    let config = parse_with(
        json!({ "subnet": "10.2.0.0/30", "ranges": [[{ "subnet": "10.3.0.0/30" }]] }),
        Some(json!([[{ "subnet": "10.1.0.0/30" }]])),
    );
    assert_eq!(
        sets(&config.unwrap()),
        [
            "10.1.0.1-10.1.0.2",
            "10.2.0.1-10.2.0.2",
            "10.3.0.1-10.3.0.2"
        ]
    );
    let error = parse_with(json!({}), Some(json!([[{ "subnet": "x" }]])));
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("runtimeConfig.ipRanges[0][0].subnet")
    );
}

#[test]
fn routes_and_resolv_conf_are_passed_on() {
    let config = parse(json!({
        "subnet": "10.1.0.0/24",
        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "192.0.2.0/24", "gw": "10.1.0.9" },
                   { "dst": "::/0", "gw": "" }],
        "resolvConf": "/etc/resolv.conf",
    }))
    .unwrap();
    assert_eq!(config.routes.len(), 3);
    assert_eq!(config.routes[1].gw, Some("10.1.0.9".parse().unwrap()));
    assert_eq!(config.routes[2].gw, None);
    assert_eq!(config.resolv_conf, Some("/etc/resolv.conf".into()));
}

#[test]
fn keys_without_effect_are_named() {
    let config = parse(json!({
        "type": "host-local", "rangeStart": "10.1.0.5", "dataDirs": "/x",
        "ranges": [[{ "subnet": "10.1.0.0/24", "gw": "10.1.0.1" }]],
    }))
    .unwrap();
    assert_eq!(
        config.ignored,
        [
            "ipam.rangeStart (without ipam.subnet)",
            "ipam.ranges[0][0].gw",
            "ipam.dataDirs"
        ]
    );
}

#[test]
fn the_data_folder() {
    let data_dir = |ipam: Value| config::data_dir(ipam.as_object().unwrap());
    assert_eq!(data_dir(json!({})), Ok(None));
    assert_eq!(data_dir(json!({ "dataDir": "" })), Ok(None));
    assert_eq!(
        data_dir(json!({ "dataDir": "/var/lib/cni" })),
        Ok(Some("/var/lib/cni".into()))
    );
    for bad in [json!("x/y"), json!(1)] {
        let error = data_dir(json!({ "dataDir": bad })).unwrap_err();
        assert!(error.contains("ipam.dataDir"), "{error}");
    }
}

#[test]
fn a_round_goes_through_every_range_once_and_begins_after_the_cursor() {
    let config = parse(json!({ "ranges": [[
        { "subnet": "10.1.0.0/29", "rangeEnd": "10.1.0.4" },
        { "subnet": "10.2.0.0/29", "gateway": "10.2.0.2", "rangeEnd": "10.2.0.3" },
    ]] }));
    let config = config.unwrap();
    let set = config.ranges.iter().next().unwrap();
    let all = ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.2.0.1", "10.2.0.3"];
    for cursor in [
        None,
        Some("10.9.9.9"),
        Some("fd00::1"),
        Some("10.1.0.1"),
        Some("10.2.0.3"),
    ] {
        assert_eq!(candidates(set, cursor), all, "{cursor:?}");
    }
    assert_eq!(
        candidates(set, Some("10.1.0.4")),
        ["10.2.0.1", "10.2.0.3", "10.1.0.2", "10.1.0.3", "10.1.0.4"]
    );
    assert_eq!(
        candidates(set, Some("10.2.0.1")),
        ["10.2.0.3", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.2.0.1"]
    );
    assert_eq!(set.capacity(), 5);
}

#[test]
fn the_end_of_the_address_space_is_an_end() {
    let config = parse(json!({ "ranges": [[{ "subnet": "ffff::/16", "rangeStart":
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe" }]] }));
    let config = config.unwrap();
    let set = config.ranges.iter().next().unwrap();
    let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    assert_eq!(candidates(set, Some(last)).len(), 2);
}
