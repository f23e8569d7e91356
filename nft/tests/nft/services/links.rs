//! Nodes with several links, each with a routing table of its own, and with addresses that
//! move between nodes: a masqueraded flow has the address of the link by which it leaves,
//! so that its answer comes back there.

use tweed_planner::services::desired::Masquerade;

use super::lab::{
    Addresses, Answer, BALANCER, FAMILIES, Lab, NODE, SERVICE, Servers, UNDERLAY, both,
};
use super::plan::{PROTOCOLS, Plan, endpoint, group, node_port};

/// An endpoint that is reached by either of two links.
const FAR: Addresses = both("203.0.113.99", "2001:db8:99::99");
/// This node's address on the second of them.
const SECOND: Addresses = both("192.0.3.1", "2001:db8:3::1");
const REAL: u16 = 8080;

/// The second link, and on each link an address as keepalived sets it. What comes from outside
/// leaves by the second link, and all else by the first.
fn add_links(lab: &Lab) {
    let (node, peer) = (&lab.0.node, &lab.0.peer);
    node.sh(format!(
        "ip link add second type veth peer name third netns {peer}
         ip addr add 192.0.3.100/32 dev second
         ip addr add 192.0.3.1/24 dev second
         ip addr add 2001:db8:3::1/64 dev second nodad
         ip addr add 2001:db8:3::100/128 dev second nodad preferred_lft 0
         ip link set second up
         ip addr flush dev eth0
         ip addr add 192.0.2.100/32 dev eth0
         ip addr add 192.0.2.1/24 dev eth0
         ip addr add 2001:db8::1/64 dev eth0 nodad
         ip addr add 2001:db8::100/128 dev eth0 nodad preferred_lft 0
         ip addr add 198.51.100.100/32 dev world",
        peer = peer.netns(),
    ));
    peer.sh("ip addr add 192.0.3.2/24 dev third
         ip addr add 2001:db8:3::2/64 dev third nodad
         ip link set third up
         ip addr add 203.0.113.99/32 dev lo
         ip addr add 2001:db8:99::99/128 dev lo nodad");
    node.sh("ip route add 203.0.113.99 via 192.0.2.2
         ip route add 2001:db8:99::99 via 2001:db8::2
         ip route add 203.0.113.99 via 192.0.3.2 table 100
         ip route add 2001:db8:99::99 via 2001:db8:3::2 table 100
         ip rule add iif world lookup 100
         ip -6 rule add iif world lookup 100");
}

#[test]
fn a_masqueraded_flow_has_the_address_of_the_link_by_which_it_leaves() {
    let lab = Lab::new();
    add_links(&lab);
    let mut plan = Plan::new();
    let mut servers = Servers::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let target = group(2 * number);
        servers = servers.add(&lab.0.peer, "far", FAR.port(family, REAL));
        plan = plan.endpoints(target, &[endpoint(FAR.of(family), REAL)]);
        for protocol in PROTOCOLS {
            let balancer = BALANCER.port(family, 80);
            plan = plan
                .cluster_ip(protocol, SERVICE.port(family, 80), target)
                .at(protocol, balancer, target)
                .masquerade(protocol, balancer, Masquerade::All)
                .node_port(family, protocol, 30080, target)
                .node_port_policy(node_port(family, protocol, 30080), None, Masquerade::All);
        }
    }
    lab.reconcile(&plan);
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            for at in [
                SERVICE.port(family, 80),
                BALANCER.port(family, 80),
                NODE.port(family, 30080),
            ] {
                for (from, source) in [
                    (&lab.0.world, SECOND),
                    (&lab.0.pod, UNDERLAY),
                    (&lab.0.node, UNDERLAY),
                ] {
                    let answer = lab.ask(from, protocol, at);
                    let expected = Answer::From("far".to_owned(), source.of(family));
                    assert_eq!(answer, expected, "{at}");
                }
            }
        }
    }
    drop(servers);
}
