//! Everything that ADD creates on both ends, with one family and with both.

use std::time::Duration;

use serde_json::{Value, json};
use tweed_lab::{AddResult, Netns, PingOptions, Pod, monitor, ping, wait_until};

use crate::fixture::{Fixture, MTU, NODE_V6, assert_refused_with};
use crate::observe::{addresses, link, neighbours, routes, settings};

/// A pod with both families, and the result of its ADD.
struct Attached {
    fixture: Fixture,
    pod: Pod,
    added: AddResult,
}

fn attach() -> Attached {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let call = fixture
        .call("ADD", &pod)
        .config(&fixture.dual_stack_config())
        .env(
            "CNI_ARGS",
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0",
        );
    let output = fixture.run(&call);
    let added = AddResult::parse(&output.stdout).unwrap();
    Attached {
        fixture,
        pod,
        added,
    }
}

impl Attached {
    fn node(&self) -> &Netns {
        self.fixture.node.netns()
    }

    fn host_link(&self) -> Value {
        link(self.node(), self.added.host_link())
    }

    fn macs(&self) -> [String; 2] {
        [0, 1].map(|end: usize| self.added.interfaces[end].mac.clone())
    }
}

fn flags(link: &Value) -> Vec<&str> {
    let flags = link["flags"].as_array().unwrap();
    flags.iter().map(|flag| flag.as_str().unwrap()).collect()
}

#[test]
fn both_ends_are_as_they_should_be() {
    let attached = attach();
    host_end(&attached);
    host_end_settings(&attached);
    host_routes(&attached);
    host_neighbours(&attached);
    pod_end(&attached);
    one_queue_at_each_end(&attached);
    pod_end_settings(&attached);
    pod_addresses(&attached);
    pod_routes(&attached);
    pod_neighbours(&attached);
}

fn host_end(attached: &Attached) {
    let link = attached.host_link();
    let alias = format!(
        "tweed:pods/{}/eth0 shop/cart-0",
        attached.pod.container_id()
    );
    // `ip` prints the number of a group without a name, as a string.
    assert_eq!(
        json!([link["group"], link["ifalias"], link["mtu"], link["address"]]),
        json!(["116", alias, MTU, attached.macs()[0]])
    );
    assert_eq!(link["linkinfo"]["info_kind"], "veth", "{link}");
    assert_eq!(link["inet6_addr_gen_mode"], "none", "{link}");
    let flags = flags(&link);
    for flag in ["UP", "LOWER_UP", "NOARP"] {
        assert!(flags.contains(&flag), "{flag}: {flags:?}");
    }
    assert_eq!(
        addresses(attached.node(), attached.added.host_link()),
        [json!(null); 0]
    );
}

fn host_end_settings(attached: &Attached) {
    let keys = [
        "ipv6/accept_ra",
        "ipv6/autoconf",
        "ipv6/accept_redirects",
        "ipv4/accept_redirects",
        "ipv4/send_redirects",
        "ipv4/proxy_arp",
        "ipv6/proxy_ndp",
    ];
    for (key, value) in settings(attached.node(), attached.added.host_link(), keys) {
        assert_eq!(value, "0", "{key}");
    }
}

fn host_routes(attached: &Attached) {
    let found = routes(attached.node(), attached.added.host_link());
    let v4 = json!({ "dst": "10.244.1.2", "gateway": null, "proto": "116", "scope": "link",
                     "src": attached.fixture.node.address(), "flags": [] });
    assert_eq!(found[0], v4);
    // IPv6 routes have no scope.
    assert_eq!(found[1]["dst"], "fd00:244:1::2");
    assert_eq!(found[1]["proto"], "116");
    assert_eq!(found[1]["src"], NODE_V6);
    assert_eq!(found.len(), 2, "{found:#?}");
}

fn host_neighbours(attached: &Attached) {
    let [_, pod_mac] = attached.macs();
    let expected = ["10.244.1.2", "fd00:244:1::2"].map(|ip| (ip.to_owned(), pod_mac.clone()));
    assert_eq!(
        neighbours(attached.node(), attached.added.host_link()),
        expected
    );
}

fn pod_end(attached: &Attached) {
    let inside = link(attached.pod.netns(), "eth0");
    assert_eq!(
        json!([inside["mtu"], inside["address"], inside["link_index"]]),
        json!([MTU, attached.macs()[1], attached.host_link()["ifindex"]])
    );
    assert_eq!(
        attached.host_link()["link_index"],
        inside["ifindex"],
        "they are each other's peer"
    );
    assert_eq!(inside["linkinfo"]["info_kind"], "veth", "{inside}");
    assert!(flags(&inside).contains(&"UP"), "{inside}");
    let links = attached.pod.netns().json("ip -j link show").unwrap();
    assert_eq!(links.as_array().unwrap().len(), 2, "lo and eth0: {links}");
}

/// The kernel would create more queues and remove them after a grace period for each end.
fn one_queue_at_each_end(attached: &Attached) {
    for end in [attached.host_link(), link(attached.pod.netns(), "eth0")] {
        assert_eq!(
            json!([end["num_tx_queues"], end["num_rx_queues"]]),
            json!([1, 1]),
            "{end}"
        );
    }
}

fn pod_end_settings(attached: &Attached) {
    let keys = ["ipv6/accept_ra", "ipv6/autoconf", "ipv6/disable_ipv6"];
    for (key, value) in settings(attached.pod.netns(), "eth0", keys) {
        assert_eq!(value, "0", "{key}");
    }
}

fn pod_addresses(attached: &Attached) {
    let expected = ["10.244.1.2/32", "fd00:244:1::2/128"]
        .map(|address| json!({ "address": address, "scope": "global", "tentative": false }));
    assert_eq!(addresses(attached.pod.netns(), "eth0"), expected);
}

fn pod_routes(attached: &Attached) {
    let found = routes(attached.pod.netns(), "eth0");
    let defaults: Vec<_> = found
        .iter()
        .filter(|route| route["dst"] == "default")
        .collect();
    assert_eq!(defaults.len(), 2, "{found:#?}");
    for (route, gateway) in defaults.into_iter().zip(["169.254.1.1", "fe80::1"]) {
        assert_eq!(route["gateway"], gateway);
        assert_eq!(route["proto"], "116");
    }
    let to_gateway = json!({ "dst": "169.254.1.1", "gateway": null, "proto": "116",
                             "scope": "link", "src": null, "flags": [] });
    assert!(found.contains(&to_gateway), "{found:#?}");
    assert_eq!(found.len(), 3, "{found:#?}");
    let given = attached.added.document["routes"].as_array().unwrap().iter();
    let in_result: Vec<_> = given.map(|route| &route["dst"]).collect();
    assert_eq!(in_result, ["0.0.0.0/0", "::/0"]);
}

/// As VPN clients add a route to their server: by the gateway that the default route names.
#[test]
fn a_program_in_the_pod_can_add_routes_by_the_gateway() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    fixture.add(&pod);
    let node = fixture.node.address();
    pod.netns()
        .ip([
            "route add 10.9.0.0/16 via 169.254.1.1".to_owned(),
            format!("route add {node}/32 via 169.254.1.1 dev eth0"),
            "route del default".to_owned(),
        ])
        .unwrap();
    let report = ping(pod.netns(), node, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
}

/// As people have it in their configs and init containers where the plugin made no route
/// to the gateway.
#[test]
fn a_route_to_the_gateway_may_be_added_by_others_too() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let mut config = fixture.config();
    config["ipam"]["routes"] = json!([{ "dst": "0.0.0.0/0" }, { "dst": "169.254.1.1/32" }]);
    fixture.add_with(&pod, &config);
    let other = fixture.pod("other");
    fixture.add(&other);
    let added = other
        .netns()
        .ip(["route add 169.254.1.1 dev eth0 scope link"]);
    added.unwrap();
}

fn pod_neighbours(attached: &Attached) {
    let [host_mac, _] = attached.macs();
    let expected = ["169.254.1.1", "fe80::1"].map(|ip| (ip.to_owned(), host_mac.clone()));
    assert_eq!(neighbours(attached.pod.netns(), "eth0"), expected);
}

#[test]
fn only_the_link_with_its_routes_and_neighbours_is_created() {
    let fixture = Fixture::tweed();
    // The kernel adds routes of a link that has come up a moment later.
    let mut before = fixture.snapshot();
    wait_until(
        "the node to change no more",
        Duration::from_secs(30),
        || {
            std::thread::sleep(Duration::from_millis(100));
            let now = fixture.snapshot();
            let changes = before.changes(&now);
            before = now;
            if changes.is_empty() {
                Ok(())
            } else {
                Err(changes.join("\n"))
            }
        },
    )
    .unwrap();
    let added = fixture.add(&fixture.pod("pod"));
    let mine = format!("\"{}\"", added.host_link());
    let conf = format!("conf/{}/", added.host_link());
    let others: Vec<_> = before
        .changes(&fixture.snapshot())
        .into_iter()
        .filter(|line| !line.contains(&mine) && !line.contains(&conf))
        .collect();
    assert_eq!(others, [""; 0]);
}

/// Duplicate address detection would delay the first packets.
#[test]
fn no_address_is_ever_tentative() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let seen = monitor(pod.netns()).unwrap();
    fixture.add_with(&pod, &fixture.dual_stack_config());
    seen.wait_for("default via fe80::1").unwrap();
    let lines = seen.stop().unwrap();
    let about_address: Vec<_> = lines.iter().filter(|line| line.contains("inet6")).collect();
    assert!(
        about_address
            .iter()
            .any(|line| line.contains("fd00:244:1::2")),
        "{lines:#?}"
    );
    let tentative: Vec<_> = lines.iter().filter(|l| l.contains("tentative")).collect();
    assert_eq!(tentative, [""; 0], "{lines:#?}");
}

#[test]
fn one_family_leaves_the_other_alone() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    let node = fixture.node.netns();
    assert_eq!(addresses(pod.netns(), "eth0").len(), 1);
    assert_eq!(neighbours(pod.netns(), "eth0").len(), 1);
    assert_eq!(neighbours(node, added.host_link()).len(), 1);
    assert_eq!(routes(node, added.host_link()).len(), 1);
    assert_eq!(
        routes_by(&pod),
        [json!(["default", "169.254.1.1"]), to_gateway()]
    );
}

#[test]
fn a_pod_without_ipv4_has_no_route_to_its_gateway() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let mut config = fixture.config();
    config["ipam"]["ranges"] = json!([[{ "subnet": "fd00:244:1::/64" }]]);
    fixture.add_with(&pod, &config);
    assert_eq!(routes_by(&pod).len(), 1, "{:?}", routes_by(&pod));
}

#[test]
fn a_requested_mac_is_used() {
    for (key, value) in [
        ("runtimeConfig", json!({ "mac": "02:00:5e:10:00:01" })),
        ("args", json!({ "cni": { "mac": "02:00:5e:10:00:01" } })),
        ("env", json!("MAC=02:00:5e:10:00:01")),
    ] {
        let fixture = Fixture::tweed();
        let pod = fixture.pod("pod");
        let mut config = fixture.config();
        let mut call = fixture.call("ADD", &pod);
        match value.as_str() {
            Some(arguments) => call = call.env("CNI_ARGS", arguments),
            None => config[key] = value,
        }
        let output = fixture.run(&call.config(&config));
        assert_eq!(output.code, Some(0), "{key}: {output:?}");
        assert_eq!(
            link(pod.netns(), "eth0")["address"],
            "02:00:5e:10:00:01",
            "{key}"
        );
    }
}

/// As in the agent's config: what an entry does not declare, libcni does not pass on.
#[test]
fn declared_capabilities_reach_the_plugin() {
    let fixture = Fixture::tweed();
    let mut entry = fixture.config();
    entry["capabilities"] = json!({ "ips": true, "mac": true });
    fixture.write_chain("1.1.0", &[entry]);
    let pod = fixture.pod("pod");
    let requested = json!({ "ips": ["10.244.1.9"], "mac": "02:00:5e:10:00:01" });
    let tool = fixture.tool().capabilities(&requested);
    let added = tool.add(&pod).unwrap();
    assert_eq!(added.address().unwrap().to_string(), "10.244.1.9");
    assert_eq!(link(pod.netns(), "eth0")["address"], "02:00:5e:10:00:01");
    tool.check(&pod).unwrap();
}

/// Destination and gateway of a pod's routes.
fn routes_by(pod: &Pod) -> Vec<Value> {
    let found = routes(pod.netns(), "eth0").into_iter();
    found.map(|r| json!([r["dst"], r["gateway"]])).collect()
}

/// The route of [`routes_by`] that each pod with IPv4 has.
fn to_gateway() -> Value {
    json!(["169.254.1.1", null])
}

#[test]
fn routes_of_the_config_replace_the_default() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let mut config = fixture.config();
    config["ipam"]["routes"] = json!([{ "dst": "10.0.0.0/8" }, { "dst": "192.0.2.0/24" }]);
    fixture.add_with(&pod, &config);
    assert_eq!(
        routes_by(&pod),
        [
            json!(["10.0.0.0/8", "169.254.1.1"]),
            to_gateway(),
            json!(["192.0.2.0/24", "169.254.1.1"])
        ]
    );
}

#[test]
fn a_route_through_another_pod_is_refused() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let mut config = fixture.config();
    let routes = |gw: &str| json!([{ "dst": "192.0.2.0/24", "gw": gw }]);
    config["ipam"]["routes"] = routes("10.244.1.77");
    let output = fixture.run(&fixture.call("ADD", &pod).config(&config));
    assert_refused_with(&output, 7, &["192.0.2.0/24", "10.244.1.77", "10.244.1.1"]);
    fixture.assert_nothing_left(&before);
    // The range's gateway is the node, as in a config for host-local.
    config["ipam"]["routes"] = routes("10.244.1.1");
    fixture.add_with(&pod, &config);
    assert_eq!(
        routes_by(&pod),
        [to_gateway(), json!(["192.0.2.0/24", "169.254.1.1"])]
    );
}

#[test]
fn a_route_that_is_named_twice_is_made_once() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let mut config = fixture.config();
    config["ipam"]["routes"] = json!([{ "dst": "10.0.0.0/8" }, { "dst": "10.1.0.0/8" }]);
    let added = fixture.add_with(&pod, &config);
    assert_eq!(
        routes_by(&pod),
        [json!(["10.0.0.0/8", "169.254.1.1"]), to_gateway()]
    );
    assert_eq!(added.document["routes"].as_array().unwrap().len(), 1);
}
