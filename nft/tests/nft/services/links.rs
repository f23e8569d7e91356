//! Nodes with several links, each with a routing table of its own or in a VRF, and with
//! addresses that move between nodes: a masqueraded flow has the address of the link by which
//! it leaves, so that its answer comes back there.

use tweed_planner::services::desired::Masquerade;

use super::lab::{
    Addresses, Answer, BALANCER, FAMILIES, Lab, NODE, SERVICE, Servers, UNDERLAY, both,
};
use super::plan::{PROTOCOLS, Plan, endpoint, group, node_port};
use crate::lab::Host;

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

/// The second link alone, in a VRF, whose table knows the way back to the world. `ways` lead
/// to the endpoint.
fn add_vrf(lab: &Lab, ways: &str) {
    let (node, peer) = (&lab.0.node, &lab.0.peer);
    // A link that comes into a VRF loses its addresses of IPv6.
    node.sh(format!(
        "ip link add blue type vrf table 200
         ip link set blue up
         ip link add second type veth peer name third netns {peer}
         ip link set second master blue
         ip addr add 192.0.3.100/32 dev second
         ip addr add 192.0.3.1/24 dev second
         ip addr add 2001:db8:3::1/64 dev second nodad
         ip addr add 2001:db8:3::100/128 dev second nodad preferred_lft 0
         ip link set second up
         ip route add vrf blue 198.51.100.0/24 dev world
         ip route add vrf blue 2001:db8:1::/64 dev world",
        peer = peer.netns(),
    ));
    peer.sh("ip addr add 192.0.3.2/24 dev third
         ip addr add 2001:db8:3::2/64 dev third nodad
         ip link set third up
         ip addr add 203.0.113.99/32 dev lo
         ip addr add 2001:db8:99::99/128 dev lo nodad");
    node.sh(ways);
}

/// Everything leads to the endpoint that is reached by the second link, masqueraded.
fn plan() -> Plan {
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let target = group(2 * number);
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
    plan
}

fn servers(lab: &Lab) -> Servers {
    let add = |servers: Servers, family| servers.add(&lab.0.peer, "far", FAR.port(family, REAL));
    FAMILIES.into_iter().fold(Servers::new(), add)
}

/// Asks every frontend from a host, which the endpoint has to see as `source`.
fn asks(lab: &Lab, from: &Host, source: Addresses) {
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            for at in [
                SERVICE.port(family, 80),
                BALANCER.port(family, 80),
                NODE.port(family, 30080),
            ] {
                let answer = lab.ask(from, protocol, at);
                let expected = Answer::From("far".to_owned(), source.of(family));
                assert_eq!(answer, expected, "{at}");
            }
        }
    }
}

#[test]
fn a_masqueraded_flow_has_the_address_of_the_link_by_which_it_leaves() {
    let lab = Lab::new();
    add_links(&lab);
    let _servers = servers(&lab);
    lab.reconcile(&plan());
    asks(&lab, &lab.0.world, SECOND);
    asks(&lab, &lab.0.pod, UNDERLAY);
    asks(&lab, &lab.0.node, UNDERLAY);
}

/// What enters by the world leaves by a VRF with the address of its link.
fn leaves_by_a_vrf(ways: &str) {
    let lab = Lab::new();
    add_vrf(&lab, ways);
    let _servers = servers(&lab);
    lab.reconcile(&plan());
    asks(&lab, &lab.0.world, SECOND);
}

/// The main table leads to a link of the VRF.
#[test]
#[ignore = "needs a kernel with VRF: make kernels JOB=services"]
fn a_flow_that_leaves_by_a_link_of_a_vrf_has_the_address_of_that_link() {
    leaves_by_a_vrf(
        "ip route add 203.0.113.99 via 192.0.3.2 dev second
         ip route add 2001:db8:99::99 via 2001:db8:3::2 dev second",
    );
}

/// The main table leads to the VRF, which has no address itself. A packet then passes the
/// hooks of sending twice.
#[test]
#[ignore = "needs a kernel with VRF: make kernels JOB=services"]
fn a_flow_that_is_led_into_a_vrf_has_the_address_of_its_link() {
    leaves_by_a_vrf(
        "ip route add 203.0.113.99 dev blue
         ip route add 2001:db8:99::99 dev blue
         ip route add vrf blue 203.0.113.99 via 192.0.3.2
         ip route add vrf blue 2001:db8:99::99 via 2001:db8:3::2",
    );
}
