//! Claims that one Node's object gets wrong: what they change for the others, and
//! what is said of them.

use super::*;
use crate::overlay::desired::{Route, RouteKey};

/// A younger and an older Node than `n2`, both with its address.
fn sharing() -> [Node; 3] {
    let node = |name, created, third: u8| {
        let cidr = format!("10.244.{third}.0/24");
        node(name)
            .created(created)
            .cidr(&cidr)
            .internal("192.0.2.2")
    };
    [node("stale", 1, 1), node("n2", 2, 2), node("young", 3, 3)]
}

fn me() -> Node {
    node("me")
        .created(2)
        .cidr("10.244.0.0/24")
        .internal("192.0.2.1")
}

fn planned(flags: &str, nodes: &Nodes, host: &HostFacts) -> (Desired, Vec<String>) {
    let plan = plan(&config(flags), &nodes.snapshot(), host);
    assert!(
        plan.problems.iter().all(|p| p.effect == Effect::Warning),
        "{plan:?}"
    );
    let problems = plan.problems.iter();
    let said = problems.map(|p| format!("{} {}: {}", p.kind, p.object, p.message));
    (plan.network.unwrap().desired, said.collect())
}

fn route(desired: &Desired, third: u8) -> &Route {
    let key = RouteKey::to(format!("10.244.{third}.0/24").parse().unwrap());
    let unreachable = RouteKey::unreachable(key.destination);
    let routes = &desired.routes;
    routes
        .get(&key)
        .or_else(|| routes.get(&unreachable))
        .unwrap()
}

#[test]
fn over_vxlan_nobody_loses_an_address_that_several_nodes_have() {
    let nodes = Nodes::new(me(), sharing());
    let (desired, said) = planned("", &nodes, &v4_host());
    for (third, name) in [(1, "stale"), (2, "n2"), (3, "young")] {
        let gateway = [10, 244, third, 0].into();
        assert_eq!(route(&desired, third), &Route::Overlay { gateway });
        let mac = desired.neighbours[&gateway];
        assert_eq!(mac, vtep::mac(name));
        assert_eq!(desired.fdb[&mac].to_string(), "192.0.2.2");
    }
    // The address may send what the pods of each of them send.
    let pair = |third| {
        let pods = format!("10.244.{third}.0/24");
        ("192.0.2.2".parse().unwrap(), pods.parse().unwrap())
    };
    let sources = &desired.ruleset.vxlan_sources;
    assert_eq!(sources, &BTreeSet::from([1, 2, 3].map(pair)));
    assert_eq!(
        said,
        [
            "node-address-shared n2: address 192.0.2.2 of Node n2 is that of Node stale, Node young too",
            "node-address-shared stale: address 192.0.2.2 of Node stale is that of Node n2, Node young too",
            "node-address-shared young: address 192.0.2.2 of Node young is that of Node stale, Node n2 too",
        ]
    );
}

#[test]
fn a_direct_route_to_a_shared_address_is_the_oldest_nodes() {
    let nodes = Nodes::new(me(), sharing());
    let gateway = "192.0.2.2".parse().unwrap();
    let (desired, said) = planned("--backend direct", &nodes, &v4_host());
    assert_eq!(route(&desired, 1), &Route::Direct { gateway, link: 2 });
    for third in [2, 3] {
        assert_eq!(route(&desired, third), &Route::Unreachable);
    }
    let expected = "node-not-reached n2: pods of Node n2 are not reached: \
                    10.244.2.0/24 (192.0.2.2 is that of Node stale too, which is older)";
    assert!(said.contains(&expected.to_owned()), "{said:?}");

    let (desired, _) = planned("--backend cross-subnet", &nodes, &v4_host());
    assert_eq!(route(&desired, 1), &Route::Direct { gateway, link: 2 });
    for third in [2, 3] {
        let gateway = [10, 244, third, 0].into();
        assert_eq!(route(&desired, third), &Route::Overlay { gateway });
    }
}

#[test]
fn an_older_node_with_the_own_address_does_not_make_this_node_hold() {
    let stale = node("stale")
        .created(1)
        .cidr("10.244.9.0/24")
        .internal("192.0.2.1");
    let good = node("good").cidr("10.244.1.0/24").internal("192.0.2.3");
    let nodes = Nodes::new(me(), [stale, good]);
    for flags in ["", "--backend direct", "--backend cross-subnet"] {
        let (desired, said) = planned(flags, &nodes, &v4_host());
        assert_ne!(route(&desired, 1), &Route::Unreachable, "{flags}");
        assert_eq!(route(&desired, 9), &Route::Unreachable, "{flags}");
        assert!(
            said[0].starts_with("node-address-refused stale:"),
            "{said:?}"
        );
        assert!(said[1].starts_with("node-address-shared me:"), "{said:?}");
    }
}

/// With such sources inside, its VXLAN packets would pass for those of another Node's
/// pod, or of this machine.
#[test]
fn a_node_does_not_send_as_whatever_address_it_lists() {
    let greedy = node("greedy")
        .created(3)
        .cidr("10.244.1.0/24")
        .internal("192.0.2.2")
        .address("ExternalIP", "203.0.113.9")
        .address("ExternalIP", "10.244.2.5")
        .address("ExternalIP", "192.0.2.7");
    let other = node("other").cidr("10.244.2.0/24").internal("192.0.2.3");
    let host = host(1500, &["192.0.2.1/24", "192.0.2.7/24"]);
    let nodes = Nodes::new(me(), [greedy, other]);
    let (desired, _) = planned("--masquerade-nodes off", &nodes, &host);
    let pairs = desired.ruleset.vxlan_sources.iter();
    let of_greedy = pairs.filter(|(outer, _)| outer.to_string() == "192.0.2.2");
    let inner: Vec<String> = of_greedy.map(|(_, inner)| inner.to_string()).collect();
    assert_eq!(inner, ["10.244.1.0/24", "192.0.2.2/32", "203.0.113.9/32"]);
}

#[test]
fn a_broadcast_address_is_no_gateway() {
    let bad = node("bad").cidr("10.244.9.0/24").internal("192.0.2.255");
    let good = node("good").cidr("10.244.1.0/24").internal("192.0.2.3");
    let nodes = Nodes::new(me(), [bad, good]);
    for flags in ["", "--backend direct", "--backend cross-subnet"] {
        let (desired, said) = planned(flags, &nodes, &v4_host());
        assert_ne!(route(&desired, 1), &Route::Unreachable, "{flags}");
        assert_eq!(route(&desired, 9), &Route::Unreachable, "{flags}");
        assert!(said[0].starts_with("node-address-refused bad:"), "{said:?}");
    }
}

#[test]
fn the_edges_of_a_network_are_nobodys_addresses() {
    let edges = |networks: &[&str]| -> Vec<String> {
        let edges = host(1500, networks).edges();
        edges.keys().map(ToString::to_string).collect()
    };
    assert_eq!(edges(&["192.0.2.1/24"]), ["192.0.2.0", "192.0.2.255"]);
    assert_eq!(edges(&["192.0.2.1/30"]), ["192.0.2.0", "192.0.2.3"]);
    assert_eq!(edges(&["2001:db8::1/64"]), ["2001:db8::"]);
    for network in [
        "192.0.2.0/31",
        "192.0.2.1/32",
        "2001:db8::/127",
        "2001:db8::1/128",
    ] {
        assert_eq!(edges(&[network]), [""; 0], "{network}");
    }
    // A network without a connected route.
    let mut facts = host(1500, &["192.0.2.1/24"]);
    facts.connected.clear();
    assert_eq!(facts.edges().len(), 2);
}

#[test]
fn a_range_that_begins_with_an_address_of_this_machine_is_reached_directly_or_not_at_all() {
    let bad = node("bad").cidr("10.244.9.0/24").internal("192.0.2.2");
    let nodes = Nodes::new(me(), [bad]);
    let mut host = host(1500, &["192.0.2.1/24", "10.244.9.0/32"]);
    host.connected
        .retain(|route| route.destination.prefix() < 32);
    let (desired, said) = planned("", &nodes, &host);
    assert_eq!(route(&desired, 9), &Route::Unreachable);
    assert_eq!(
        said,
        ["node-not-reached bad: pods of Node bad are not reached: \
          10.244.9.0/24 (its first address is one of this machine)"]
    );
    for flags in ["--backend direct", "--backend cross-subnet"] {
        let (desired, said) = planned(flags, &nodes, &host);
        let gateway = "192.0.2.2".parse().unwrap();
        assert_eq!(route(&desired, 9), &Route::Direct { gateway, link: 2 });
        assert_eq!(said, [""; 0]);
    }
}

#[test]
fn pods_inside_of_a_wide_connected_network_are_served_with_a_warning() {
    let nodes = v4();
    let host = host(1500, &["192.0.2.1/24", "10.1.2.3/8"]);
    let (desired, said) = planned("", &nodes, &host);
    assert!(matches!(route(&desired, 1), Route::Overlay { .. }));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("pod-cidr-overlap 10.0.0.0/8:"),
        "{said:?}"
    );
}

/// What is said of pod CIDRs without `--cluster-cidr`.
fn strangers(own: &str, others: &[&str], flags: &str) -> Vec<String> {
    let own = node("me").cidr(own).internal("192.0.2.1");
    let nodes = others.iter().enumerate().map(|(index, cidr)| {
        let address = format!("192.0.2.{}", index + 2);
        node(&format!("n{index}")).cidr(cidr).internal(&address)
    });
    planned(flags, &Nodes::new(own, nodes), &v4_host()).1
}

#[test]
fn a_range_of_the_internet_is_named_where_nothing_says_which_ranges_pods_have() {
    let said = strangers("10.244.0.0/24", &["10.245.0.0/24", "8.8.8.0/24"], "");
    assert_eq!(
        said,
        [
            "cluster-cidr-unset --cluster-cidr: --cluster-cidr is not given, and these pod CIDRs \
          are outside 10.0.0.0/8, which the own one is in: 8.8.8.0/24 of Node n1"
        ]
    );
    let said = strangers("203.0.113.0/24", &["203.0.112.0/24"], "");
    assert_eq!(
        said,
        [
            "cluster-cidr-unset --cluster-cidr: --cluster-cidr is not given, and \
          pod CIDR 203.0.113.0/24 is in no private range"
        ]
    );
    for (own, other) in [
        ("10.244.0.0/24", "10.1.0.0/24"),
        ("172.16.0.0/24", "172.31.0.0/24"),
        ("192.168.0.0/24", "192.168.1.0/24"),
        ("100.64.0.0/24", "100.127.0.0/24"),
        ("240.0.0.0/24", "250.0.0.0/24"),
        // Not of this node's families: no pod here could use it.
        ("10.244.0.0/24", "2001:db8::/64"),
    ] {
        assert_eq!(strangers(own, &[other], ""), [""; 0], "{own} {other}");
    }
    let texts: Vec<String> = (0..9).map(|n| format!("8.8.{n}.0/24")).collect();
    let many: Vec<&str> = texts.iter().map(String::as_str).collect();
    let said = strangers("10.244.0.0/24", &many, "");
    assert!(
        said[0].ends_with("8.8.3.0/24 of Node n3, 5 more"),
        "{said:?}"
    );
}

#[test]
fn a_declared_range_needs_not_be_private() {
    let flags = "--cluster-cidr 203.0.112.0/23";
    assert_eq!(
        strangers("203.0.113.0/24", &["203.0.112.0/24"], flags),
        [""; 0]
    );
    // Of the other family nothing is declared.
    let said = strangers("10.244.0.0/24", &["8.8.8.0/24"], "--cluster-cidr fd00::/48");
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn the_pure_model_spares_underlay_addresses_from_masquerading_and_no_other() {
    let other = node("a")
        .cidr("10.244.1.0/24")
        .internal("192.0.2.2")
        .internal("2001:db8::2")
        .address("ExternalIP", "8.8.8.8");
    let nodes = Nodes::new(me(), [other]);
    let spared = |flags| {
        let sets = planned(flags, &nodes, &v4_host()).0.ruleset;
        let addresses = sets.underlay_addresses.iter().map(ToString::to_string);
        addresses.collect::<Vec<_>>()
    };
    let believed = ["192.0.2.1", "192.0.2.2", "2001:db8::2"];
    assert_eq!(spared("--masquerade-nodes off"), believed);
    assert_eq!(spared("--backend direct"), believed);
    assert_eq!(spared(""), [""; 0]);
    // IPv6 pods are not masqueraded to anybody then.
    assert_eq!(spared("--masquerade-ipv6 off"), believed);
}

/// A Node with both families, IPv6 first.
fn six_first(number: u8) -> Node {
    node(&format!("n{number}"))
        .cidr(&format!("10.244.{number}.0/24"))
        .internal(&format!("2001:db8::{number}"))
        .internal(&format!("192.0.2.{number}"))
}

#[test]
fn nodes_that_list_another_family_first_are_named_where_no_flag_decides() {
    let four = node("four").cidr("10.244.99.0/24").internal("192.0.2.99");
    let nodes = Nodes::new(me(), [six_first(2), six_first(3), four]);
    let host = dual_host();
    for flags in ["", "--backend cross-subnet"] {
        assert_eq!(
            planned(flags, &nodes, &host).1,
            [
                "underlay-family-unset --underlay-family: neither --underlay nor \
                 --underlay-family is given, so that each node takes the family of its first \
                 InternalIP: IPv4 here, and IPv6 on Node n2, Node n3; VXLAN packets between this \
                 node and those are lost"
            ]
        );
    }
    for flags in [
        "--underlay-family ipv4",
        "--underlay 192.0.2.0/24",
        "--backend direct",
    ] {
        assert_eq!(planned(flags, &nodes, &host).1, [""; 0], "{flags}");
    }
    let many = Nodes::new(me(), (2..99).map(six_first));
    let said = planned("", &many, &host).1;
    assert!(said[0].contains("Node n13, 93 more; "), "{said:?}");
}
