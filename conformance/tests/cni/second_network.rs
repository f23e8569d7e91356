//! Two networks in one pod, as Multus or nerdctl attach them: the first one keeps its
//! default routes, and the second one gets what its config names.

use serde_json::{Value, json};
use tweed_lab::{AddResult, Netns, PingOptions, PluginOutput, Pod, ping};

use crate::fixture::{
    Fixture, MTU, assert_refused_with, assert_silent, error_of, with_prev_result,
};

/// The range of each network and family.
const RANGES: [[&str; 2]; 2] = [
    ["10.244.1.0/24", "10.245.1.0/24"],
    ["fd00:244:1::/64", "fd00:245:1::/64"],
];

/// Which families a network has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    V4,
    V6,
    Both,
}

impl Has {
    /// The default routes of a pod that has this network alone.
    fn defaults(self) -> &'static [&'static str] {
        match self {
            Self::V4 => &["inet"],
            Self::V6 => &["inet6"],
            Self::Both => &["inet", "inet6"],
        }
    }

    fn ranges(self, network: usize) -> Value {
        let all = RANGES.map(|ranges| json!([{ "subnet": ranges[network] }]));
        match self {
            Self::V4 => json!(all[..1]),
            Self::V6 => json!(all[1..]),
            Self::Both => json!(all),
        }
    }
}

/// The config of the pod's first network.
fn first(fixture: &Fixture, families: Has) -> Value {
    fixture.config_over(&families.ranges(0))
}

/// The config of its second network.
fn second(fixture: &Fixture, families: Has) -> Value {
    let mut config = fixture.config_over(&families.ranges(1));
    config["name"] = "second".into();
    config
}

/// A reference network without default routes but with those of its subnet.
fn bridge(fixture: &Fixture, name: &str, subnet: &str) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": name, "type": "bridge", "bridge": "cni0",
        "isGateway": true, "mtu": MTU,
        "ipam": { "type": "host-local", "ranges": [[{ "subnet": subnet }]],
                  "dataDir": fixture.data_dir() },
    })
}

fn run(fixture: &Fixture, verb: &str, pod: &Pod, ifname: &str, config: &Value) -> PluginOutput {
    let call = fixture.call(verb, pod).ifname(ifname).config(config);
    let plugin = config["type"].as_str().unwrap();
    call.run(&fixture.node, plugin).unwrap()
}

fn add(fixture: &Fixture, pod: &Pod, ifname: &str, config: &Value) -> (AddResult, String) {
    let output = run(fixture, "ADD", pod, ifname, config);
    assert_eq!(output.code, Some(0), "ADD of {ifname}: {output:?}");
    (AddResult::parse(&output.stdout).unwrap(), output.stderr)
}

#[track_caller]
fn check(fixture: &Fixture, pod: &Pod, ifname: &str, config: &Value, added: &AddResult) {
    let config = with_prev_result(config.clone(), added);
    assert_silent(&run(fixture, "CHECK", pod, ifname, &config));
}

/// The link of each route of a pod that this line lists.
fn links_of(pod: &Pod, line: &str) -> Vec<String> {
    let listed = pod.netns().json(line).unwrap();
    let link = |route: &Value| route["dev"].as_str().unwrap().to_owned();
    listed.as_array().unwrap().iter().map(link).collect()
}

/// Family and link of each default route of a pod, IPv4 first.
fn defaults(pod: &Pod) -> Vec<(&'static str, String)> {
    let of = |family: &'static str| {
        let links = links_of(pod, &format!("ip -j -f {family} route show default"));
        Vec::from_iter(links.into_iter().map(|link| (family, link)))
    };
    [of("inet"), of("inet6")].concat()
}

fn by(link: &str, families: &[&'static str]) -> Vec<(&'static str, String)> {
    families.iter().map(|one| (*one, link.to_owned())).collect()
}

/// The destinations of the routes in a result.
fn in_result(added: &AddResult) -> Vec<&str> {
    let routes = added.document["routes"].as_array().into_iter().flatten();
    routes.map(|it| it["dst"].as_str().unwrap()).collect()
}

#[track_caller]
fn reaches(from: &Netns, to: impl Into<std::net::IpAddr>) {
    let to = to.into();
    let report = ping(from, to, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{} to {to}: {report}", from.name());
}

mod tweed_beside_tweed {
    use super::*;

    /// A pod's default network is the one that was attached first, also for a family
    /// that only the second one has.
    fn keeps_the_first_ones_defaults(fixture: &Fixture, one: Has, other: Has) {
        let before = fixture.snapshot();
        let pod = fixture.pod("pod");
        let (eth0, net1) = (first(fixture, one), second(fixture, other));
        let (first_added, _) = add(fixture, &pod, "eth0", &eth0);
        assert_eq!(defaults(&pod), by("eth0", one.defaults()));
        let (second_added, log) = add(fixture, &pod, "net1", &net1);
        assert_eq!(defaults(&pod), by("eth0", one.defaults()));
        assert_eq!(in_result(&second_added), [""; 0]);
        assert_eq!(
            log.matches("no default route").count(),
            other.defaults().len()
        );
        assert!(log.contains("eth0"), "{log}");
        check(fixture, &pod, "eth0", &eth0, &first_added);
        check(fixture, &pod, "net1", &net1, &second_added);
        assert_silent(&run(fixture, "DEL", &pod, "net1", &net1));
        check(fixture, &pod, "eth0", &eth0, &first_added);
        assert_silent(&run(fixture, "DEL", &pod, "eth0", &eth0));
        fixture.assert_nothing_left(&before);
    }

    cases! {
        keeps_the_first_ones_defaults;
        tweed {
            v4_then_v4: Has::V4, Has::V4;
            v4_then_v6: Has::V4, Has::V6;
            v4_then_both: Has::V4, Has::Both;
            v6_then_v4: Has::V6, Has::V4;
            v6_then_v6: Has::V6, Has::V6;
            v6_then_both: Has::V6, Has::Both;
            both_then_v4: Has::Both, Has::V4;
            both_then_v6: Has::Both, Has::V6;
            both_then_both: Has::Both, Has::Both;
        }
    }
}

#[test]
fn cnitool_attaches_a_pod_to_two_networks() {
    let fixture = Fixture::tweed();
    let mut plugin = second(&fixture, Has::V4);
    for key in ["cniVersion", "name"] {
        plugin.as_object_mut().unwrap().remove(key);
    }
    let list = json!({ "cniVersion": "1.1.0", "name": "second", "plugins": [plugin] });
    let file = fixture
        .node
        .write_cni_config("20-second.conflist", &list.to_string());
    file.unwrap();
    let pod = fixture.pod("pod");
    fixture.tool().add(&pod).unwrap();
    let tool = tweed_lab::CniTool::new(&fixture.node, "second").ifname("net1");
    tool.add(&pod).unwrap();
    tool.check(&pod).unwrap();
    fixture.tool().check(&pod).unwrap();
    reaches(pod.netns(), fixture.node.address());
    tool.del(&pod).unwrap();
    fixture.tool().check(&pod).unwrap();
}

/// Each network has its own route to the gateway, which has the same address in all of them.
#[test]
fn programs_can_add_routes_by_the_gateway_of_each_network() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let configs = [first(&fixture, Has::V4), second(&fixture, Has::V4)];
    let links = ["eth0", "net1"];
    for (ifname, config) in links.iter().zip(&configs) {
        add(&fixture, &pod, ifname, config);
    }
    for (ifname, dst) in links.iter().zip(["10.9.0.0/16", "10.10.0.0/16"]) {
        let line = format!("route add {dst} via 169.254.1.1 dev {ifname}");
        pod.netns().ip([line]).unwrap();
    }
    let to_gateway = || links_of(&pod, "ip -j route show 169.254.1.1");
    assert_eq!(to_gateway(), links);
    // One that goes leaves the other's, whichever was made first.
    assert_silent(&run(&fixture, "DEL", &pod, "eth0", &configs[0]));
    assert_eq!(to_gateway(), ["net1"]);
    let line = "route add 10.11.0.0/16 via 169.254.1.1".to_owned();
    pod.netns().ip([line]).unwrap();
}

/// The second network carries what its routes name, with its own addresses.
#[test]
fn packets_take_the_second_network_where_its_routes_say_so() {
    let fixture = Fixture::tweed();
    let [one, other] = ["one", "other"].map(|name| fixture.pod(name));
    let mut config = second(&fixture, Has::Both);
    config["ipam"]["routes"] = json!([{ "dst": "10.245.0.0/16" }, { "dst": "fd00:245::/32" }]);
    let mut addresses = Vec::new();
    for pod in [&one, &other] {
        let (added, _) = add(&fixture, pod, "eth0", &first(&fixture, Has::Both));
        addresses.push(added);
        let (added, log) = add(&fixture, pod, "net1", &config);
        assert_eq!(in_result(&added), ["10.245.0.0/16", "fd00:245::/32"]);
        assert_eq!(log, "");
        check(&fixture, pod, "net1", &config, &added);
        addresses.push(added);
    }
    for added in &addresses[2..] {
        for ip in &added.ips {
            reaches(one.netns(), ip.address.ip());
        }
    }
    reaches(one.netns(), fixture.node.address());
    let route = one.netns().sh("ip route get 10.245.1.3").unwrap();
    assert!(route.contains("dev net1 src 10.245.1.2"), "{route}");
}

mod beside_the_reference_bridge {
    use super::*;

    #[test]
    fn tweed_first() {
        let fixture = Fixture::tweed();
        let pod = fixture.pod("pod");
        let (added, _) = add(&fixture, &pod, "eth0", &fixture.config());
        let other = bridge(&fixture, "bridged", "10.77.0.0/24");
        add(&fixture, &pod, "net1", &other);
        assert_eq!(defaults(&pod), by("eth0", &["inet"]));
        check(&fixture, &pod, "eth0", &fixture.config(), &added);
        reaches(pod.netns(), fixture.node.address());
        reaches(pod.netns(), std::net::Ipv4Addr::new(10, 77, 0, 1));
        assert_silent(&run(&fixture, "DEL", &pod, "net1", &other));
        check(&fixture, &pod, "eth0", &fixture.config(), &added);
    }

    fn tweed_second(default: bool, families: Has) {
        let fixture = Fixture::tweed();
        let pod = fixture.pod("pod");
        let mut other = bridge(&fixture, "bridged", "10.77.0.0/24");
        other["isDefaultGateway"] = default.into();
        add(&fixture, &pod, "eth0", &other);
        let before = defaults(&pod);
        assert_eq!(before.len(), usize::from(default));
        let config = second(&fixture, families);
        let (added, log) = add(&fixture, &pod, "net1", &config);
        assert_eq!(defaults(&pod), before);
        assert_eq!(in_result(&added), [""; 0]);
        assert!(log.contains("eth0"), "{log}");
        check(&fixture, &pod, "net1", &config, &added);
        reaches(pod.netns(), std::net::Ipv4Addr::new(10, 77, 0, 1));
    }

    #[test]
    fn tweed_second_where_the_bridge_has_the_default_route() {
        tweed_second(true, Has::V4);
    }

    #[test]
    fn tweed_second_of_both_families() {
        tweed_second(true, Has::Both);
    }

    #[test]
    fn tweed_second_of_the_other_family() {
        tweed_second(true, Has::V6);
    }

    #[test]
    fn tweed_second_where_the_bridge_is_isolated() {
        tweed_second(false, Has::Both);
    }
}

/// As `host-device` or a runtime moves it: its index is that of its old namespace.
#[test]
fn a_link_that_was_moved_into_the_pod_is_a_network_too() {
    for (moved, ifname, families, metric) in [
        ("eth0", "net1", Has::V6, 0),
        ("eth0", "net1", Has::Both, 0),
        // The index and the name of a pod's first link, and yet it is none.
        ("first0", "eth0", Has::Both, 0),
        // Its default route is in nobody's way.
        ("first0", "eth0", Has::Both, 100),
    ] {
        let fixture = Fixture::tweed();
        let pod = fixture.pod("pod");
        let name = pod.netns().name();
        let node = fixture.node.netns();
        node.ip([
            "link add moved0 type veth peer name moved1".to_owned(),
            "link set moved1 up".to_owned(),
            format!("link set moved0 netns {name} name {moved}"),
        ])
        .unwrap();
        pod.netns()
            .ip([
                format!("addr add 10.88.0.2/24 dev {moved}"),
                format!("link set {moved} up"),
                format!("route add default via 10.88.0.1 metric {metric}"),
            ])
            .unwrap();
        let config = second(&fixture, families);
        let (added, log) = add(&fixture, &pod, ifname, &config);
        assert_eq!(defaults(&pod), by(moved, &["inet"]), "{ifname}");
        assert_eq!(in_result(&added), [""; 0]);
        assert!(log.contains("no default route ::/0"), "{log}");
        assert_eq!(
            log.matches(&format!("by {moved};")).count(),
            families.defaults().len()
        );
        check(&fixture, &pod, ifname, &config, &added);
    }
}

#[test]
fn a_default_route_that_the_config_asks_for_is_made_or_refused() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    add(&fixture, &pod, "eth0", &first(&fixture, Has::V4));
    let before = fixture.snapshot();
    for key in ["defaultRoute", "routes"] {
        let mut config = second(&fixture, Has::Both);
        match key {
            "routes" => config["ipam"]["routes"] = json!([{ "dst": "0.0.0.0/0" }]),
            _ => config[key] = true.into(),
        }
        let output = run(&fixture, "ADD", &pod, "net1", &config);
        assert_refused_with(
            &output,
            103,
            &["0.0.0.0/0", "another network", "ipam.routes"],
        );
        fixture.assert_same_kernel(&before);

        // The other family, and the same one with another priority.
        config = second(&fixture, Has::V6);
        match key {
            "routes" => config["ipam"]["routes"] = json!([{ "dst": "::/0" }]),
            _ => config[key] = true.into(),
        }
        let (added, log) = add(&fixture, &pod, "net1", &config);
        assert_eq!((in_result(&added), log.as_str()), (vec!["::/0"], ""));
        assert_eq!(
            defaults(&pod),
            [by("eth0", &["inet"]), by("net1", &["inet6"])].concat()
        );
        check(&fixture, &pod, "net1", &config, &added);
        assert_silent(&run(&fixture, "DEL", &pod, "net1", &config));
    }
    let mut config = second(&fixture, Has::V4);
    config["ipam"]["routes"] = json!([{ "dst": "0.0.0.0/0", "priority": 100 }]);
    let (added, _) = add(&fixture, &pod, "net1", &config);
    check(&fixture, &pod, "net1", &config, &added);
    reaches(pod.netns(), fixture.node.address());
}

mod no_default_route_with {
    use super::*;

    fn is_made(fixture: &Fixture, pointer: &str, value: Value) {
        let mut config = first(fixture, Has::Both);
        match pointer {
            "routes" => config["ipam"]["routes"] = value,
            _ => config[pointer] = value,
        }
        let pod = fixture.pod("pod");
        let (added, log) = add(fixture, &pod, "eth0", &config);
        assert_eq!(defaults(&pod), [], "{log}");
        assert_eq!((in_result(&added), log.as_str()), (vec![], ""));
        check(fixture, &pod, "eth0", &config, &added);
    }

    cases! {
        is_made;
        tweed {
            an_empty_list_of_routes: "routes", json!([]);
            the_key: "defaultRoute", json!(false);
        }
    }

    #[test]
    fn the_key_beside_routes() {
        let fixture = Fixture::tweed();
        let mut config = fixture.config();
        config["defaultRoute"] = false.into();
        config["ipam"]["routes"] = json!([{ "dst": "0.0.0.0/0" }, { "dst": "10.0.0.0/8" }]);
        let pod = fixture.pod("pod");
        let (added, _) = add(&fixture, &pod, "eth0", &config);
        assert_eq!(defaults(&pod), []);
        assert_eq!(in_result(&added), ["10.0.0.0/8"]);
    }

    #[test]
    fn a_key_of_another_type() {
        let fixture = Fixture::tweed();
        fixture.write_chain(
            "1.1.0",
            &[{
                let mut config = fixture.config();
                config["defaultRoute"] = "no".into();
                config
            }],
        );
        let error = error_of(fixture.tool().add(&fixture.pod("pod")));
        assert!(error.contains("defaultRoute"), "{error}");
    }
}

/// The pod's end of the old attachment may still be there.
#[test]
fn an_attachment_that_was_just_deleted_is_no_network() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let config = first(&fixture, Has::Both);
    for _ in 0..5 {
        let (added, log) = add(&fixture, &pod, "eth0", &config);
        assert_eq!(in_result(&added), ["0.0.0.0/0", "::/0"], "{log}");
        assert_eq!(log, "");
        assert_silent(&run(&fixture, "DEL", &pod, "eth0", &config));
    }
}

/// Its routes are still there too, and in a table of their own nobody else removes them.
#[test]
fn the_routes_of_an_attachment_that_was_just_deleted_are_in_no_ones_way() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let mut config = first(&fixture, Has::Both);
    config["ipam"]["routes"] = json!([
        { "dst": "10.9.0.0/16", "table": 100 }, { "dst": "fd00:9::/64", "table": 1000 },
    ]);
    for _ in 0..5 {
        add(&fixture, &pod, "eth0", &config);
        assert_silent(&run(&fixture, "DEL", &pod, "eth0", &config));
    }
}
