//! What only this machine cannot use of the other Nodes' claims.

use super::*;

fn connected(networks: &[&str]) -> Rules<'static> {
    Rules {
        connected: nets(networks).into_iter().collect(),
        ..plain()
    }
}

fn local(addresses: &[&str]) -> Rules<'static> {
    Rules {
        local: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        ..plain()
    }
}

/// The refusals where the own Node is `own`.
fn refused(own: Node, others: &[Node], rules: &Rules<'_>) -> Vec<String> {
    let cluster = Nodes::new(own, others.iter().cloned());
    said(&judge(&cluster.snapshot(), rules))
}

#[test]
fn a_range_is_refused_where_a_connected_network_is_the_range_or_a_part_of_it() {
    let rules = connected(&["172.17.0.0/16", "172.18.7.0/24", "192.0.2.0/24"]);
    let others = [
        node("a").cidr("172.17.0.0/16").cidr("fd00:1::/64"),
        node("b").cidr("172.18.0.0/16"),
    ];
    assert_eq!(
        refused(node("me"), &others, &rules),
        [
            "a: pod CIDR 172.17.0.0/16 overlaps 172.17.0.0/16, a network that this machine is connected to",
            "b: pod CIDR 172.18.0.0/16 overlaps 172.18.7.0/24, a network that this machine is connected to",
        ]
    );
}

#[test]
fn a_range_inside_of_a_wider_connected_network_is_accepted_and_named() {
    let rules = connected(&["10.0.0.0/8", "192.0.2.0/24"]);
    let own = node("me").cidr("10.244.0.0/24");
    let cluster = Nodes::new(own, [node("a").cidr("10.244.1.0/24")]);
    let verdict = judge(&cluster.snapshot(), &rules);
    assert_eq!(said(&verdict), [""; 0]);
    assert_eq!(verdict.around, nets(&["10.0.0.0/8"]).into_iter().collect());
    for name in ["me", "a"] {
        assert_eq!(verdict.members[name].pod_cidrs.len(), 1);
    }
}

#[test]
fn what_is_refused_only_here_still_wins_as_elsewhere() {
    let others = [
        node("a").created(1).cidr("172.17.0.0/16"),
        node("b").created(2).cidr("172.17.128.0/24"),
    ];
    assert_eq!(
        refused(node("me"), &others, &connected(&["172.17.0.0/24"])),
        [
            "a: pod CIDR 172.17.0.0/16 overlaps 172.17.0.0/24, a network that this machine is connected to",
            "b: pod CIDR 172.17.128.0/24 overlaps 172.17.0.0/16 of Node a, which is older",
        ]
    );
}

#[test]
fn an_address_of_this_machine_is_refused_of_every_node_but_the_own_one() {
    let rules = local(&["192.0.2.9"]);
    let own = node("me").created(3).internal("192.0.2.9");
    let others = [
        node("a").created(1).internal("192.0.2.9"),
        node("b").created(2).internal("192.0.2.9"),
    ];
    let expected =
        ["a", "b"].map(|node| format!("{node}: address 192.0.2.9 is an address of this machine"));
    assert_eq!(refused(own.clone(), &others, &rules), expected);
    let cluster = Nodes::new(own, others);
    let verdict = judge(&cluster.snapshot(), &rules);
    let own = &verdict.members["me"].addresses[&Family::V4];
    assert_eq!(own.to_string(), "192.0.2.9");
    assert!(verdict.members["a"].addresses.is_empty());
    // Nor if the own Node does not list it.
    assert_eq!(
        refused(node("me"), &[node("a").internal("192.0.2.9")], &rules),
        expected[..1]
    );
}

#[test]
fn an_older_nodes_range_does_not_take_the_own_address_from_this_machine() {
    let own = node("me").created(2).internal("192.0.2.9");
    let others = [node("a").created(1).cidr("192.0.2.0/24")];
    assert_eq!(
        refused(own.clone(), &others, &local(&["192.0.2.9"])),
        ["a: pod CIDR 192.0.2.0/24 takes in 192.0.2.9, an address of Node me"]
    );
    // The network of the address says more than the address.
    let rules = Rules {
        connected: nets(&["192.0.2.0/24"]).into_iter().collect(),
        ..local(&["192.0.2.9"])
    };
    assert_eq!(
        refused(own.clone(), &others, &rules),
        [
            "a: pod CIDR 192.0.2.0/24 overlaps 192.0.2.0/24, a network that this machine is connected to"
        ]
    );
    let cluster = Nodes::new(own.clone(), others.clone());
    let verdict = judge(&cluster.snapshot(), &local(&["192.0.2.9"])).node_addresses;
    assert!(verdict.contains(&"192.0.2.9".parse().unwrap()));
    // Without the address on an interface it is as on the other nodes.
    assert_eq!(
        refused(own, &others, &plain()),
        ["me: address 192.0.2.9 is inside pod CIDR 192.0.2.0/24 of Node a, which is older"]
    );
}

#[test]
fn an_address_that_is_a_networks_own_is_refused() {
    let network = nets(&["192.0.2.0/24"])[0];
    let rules = Rules {
        edges: [(network.network(), network), (network.broadcast(), network)].into(),
        ..plain()
    };
    let others = [
        node("a").internal("192.0.2.255"),
        node("b").internal("192.0.2.0"),
        node("c").internal("192.0.2.254"),
    ];
    assert_eq!(
        refused(node("me"), &others, &rules),
        [
            "a: address 192.0.2.255 is the network or broadcast address of 192.0.2.0/24, which this machine is connected to",
            "b: address 192.0.2.0 is the network or broadcast address of 192.0.2.0/24, which this machine is connected to",
        ]
    );
}
