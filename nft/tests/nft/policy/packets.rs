//! Packets that are not simply the first of a flow between two addresses: fragments,
//! errors, rewritten and untracked ones, and what others read from a packet.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tweed_core::family::Family;
use tweed_netlink::nf::log::{LogGroup, Logged};
use tweed_planner::policy::desired::Desired;
use tweed_planner::policy::verdicts::Direction::{In, Out};
use tweed_planner::policy::verdicts::UNKNOWN;

use super::lab::{End, FAMILIES, Lab, PATIENCE, PacketOutcome::*, arrives, udp_pair};
use super::plan::{Plan, UDP, identity, profile};

fn enforced(lab: &Lab) -> Plan {
    Plan::new(&[lab.a.both(), lab.b.both()].concat())
}

/// `b` accepts one port of UDP from `a`, and everything from the world.
fn one_port(lab: &Lab, port: u16) -> Desired {
    enforced(lab)
        .policed(In, &lab.b.both())
        .identity(&lab.a.both(), identity(0))
        .pair(In, &lab.b.both(), identity(0), profile(0))
        .exact(profile(0), UDP, port)
        .pair(In, &lab.b.both(), UNKNOWN, profile(1))
        .open(profile(1))
        .0
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
    }
}

#[test]
fn later_fragments_follow_the_first() {
    let lab = Lab::new();
    lab.reconcile(&one_port(&lab, 53));
    for family in FAMILIES {
        let to_b = |port| lab.datagram(&lab.a, &lab.b, family, port, 5000);
        assert_eq!(to_b(53), Passed);
        assert_eq!(to_b(54), Dropped);
        assert_eq!(lab.ping(&lab.world, lab.b.address(family), 5000), Passed);
        assert_eq!(lab.ping(&lab.a, lab.b.address(family), 5000), Dropped);
    }
}

/// The ports and addresses are those after DNAT, in both directions of policy.
#[test]
fn a_service_is_evaluated_by_the_pod_behind_it() {
    let lab = Lab::new();
    lab.node.host.sh("nft -f - <<'E'
         table inet services {
           chain pre {
             type nat hook prerouting priority -100
             ip daddr 203.0.113.1 udp dport 80 dnat ip to 10.244.1.6:53
             ip daddr 203.0.113.1 udp dport 81 dnat ip to 10.244.1.6:54
             ip6 daddr 2001:db8:2::1 udp dport 80 dnat ip6 to [fd00:0:0:1::6]:53
             ip6 daddr 2001:db8:2::1 udp dport 81 dnat ip6 to [fd00:0:0:1::6]:54
           }
         }\nE");
    let plan = Plan(one_port(&lab, 53))
        .policed(Out, &lab.a.both())
        .identity(&lab.b.both(), identity(1))
        .pair(Out, &lab.a.both(), identity(1), profile(0));
    lab.reconcile(&plan.0);
    for (family, service) in [(Family::V4, "203.0.113.1"), (Family::V6, "2001:db8:2::1")] {
        let to = |port, real| lab.through(&lab.a, service, port, &lab.b, family, real);
        assert_eq!(to(80, 53), Passed);
        assert_eq!(to(81, 54), Dropped);
    }
}

/// A router beyond the node cannot forward a packet and says so to the pod, which accepts
/// nothing from anybody.
#[test]
fn too_big_comes_back_to_the_pod_through_dnat() {
    let lab = Lab::new();
    lab.world.host.sh("echo 1 > /proc/sys/net/ipv4/ip_forward
         echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
         ip link add narrow mtu 1300 type veth peer name end
         ip link set narrow up; ip link set end up
         ip route add 203.0.113.9 dev narrow
         ip -6 route add 2001:db8:9::9 dev narrow
         ip neigh add 203.0.113.9 lladdr 02:00:00:00:00:09 dev narrow nud permanent
         ip neigh add 2001:db8:9::9 lladdr 02:00:00:00:00:09 dev narrow nud permanent");
    lab.node.host.sh("ip route add 203.0.113.9 via 198.51.100.2
         ip -6 route add 2001:db8:9::9 via 2001:db8:1::2
         nft -f - <<'E'
         table inet services {
           chain pre {
             type nat hook prerouting priority -100
             ip daddr 203.0.113.1 dnat ip to 203.0.113.9
             ip6 daddr 2001:db8:2::1 dnat ip6 to 2001:db8:9::9
           }
         }\nE");
    let mut plan = enforced(&lab);
    for direction in [In, Out] {
        plan = plan.policed(direction, &lab.a.both());
    }
    let plan = plan
        .pair(Out, &lab.a.both(), UNKNOWN, profile(0))
        .open(profile(0));
    lab.reconcile(&plan.0);
    for service in ["203.0.113.1", "2001:db8:2::1"] {
        until("the pod learns the MTU", || {
            let ping = format!("ping -M do -s 1400 -c 1 -W 1 {service} || true");
            lab.a.host.sh(ping);
            let route = lab.a.host.sh(format!("ip route get {service}"));
            route.contains("mtu 1300")
        });
    }
}

/// As a node-local DNS cache takes its packets out of conntrack.
#[test]
fn untracked_packets_are_evaluated_each_by_their_own_direction() {
    let lab = Lab::new();
    lab.node.host.sh("nft -f - <<'E'
         table inet others { chain c {
           type filter hook prerouting priority -300
           udp dport { 53, 54 } notrack
         }\n         }\nE");
    let plan = Plan(one_port(&lab, 53))
        .policed(Out, &lab.b.both())
        .identity(&lab.node.both(), identity(1))
        .pair(Out, &lab.b.both(), identity(1), profile(0));
    lab.reconcile(&plan.0);
    for family in FAMILIES {
        for _ in 0..2 {
            assert_eq!(lab.udp(&lab.a, &lab.b, family, 53), Passed);
            assert_eq!(lab.udp(&lab.a, &lab.b, family, 54), Dropped);
            assert_eq!(lab.udp(&lab.b, &lab.node, family, 53), Passed);
            assert_eq!(lab.udp(&lab.b, &lab.node, family, 54), Dropped);
        }
    }
}

#[test]
fn neighbour_discovery_of_an_isolated_pod_works() {
    let lab = Lab::new();
    lab.reconcile(&Plan::new(&lab.b.both()).0);
    lab.node.host.sh("ip -6 addr add fe80::1/64 dev twa nodad");
    lab.a.host.sh("ip -6 neigh del fe80::1 dev eth0");
    assert_eq!(lab.ping(&lab.node, lab.a.v6, 56), Passed);
    let neighbours = lab.a.host.sh("ip -6 neigh show fe80::1");
    assert!(neighbours.contains("lladdr"), "{neighbours}");
    // And nothing else does.
    assert_eq!(lab.ping(&lab.a, lab.node.v6, 56), Dropped);
}

#[test]
fn link_local_sources_are_no_way_around_policy_to_the_node() {
    let lab = Lab::new();
    let plan = enforced(&lab).policed(Out, &lab.a.both());
    lab.reconcile(&plan.0);
    lab.node.host.sh("ip -6 addr add fe80::1/64 dev twa nodad");
    lab.a.host.sh("ip -6 addr add fe80::5/64 dev eth0 nodad");
    let refused = || (lab.node.host).sh("nft list counter inet tweed link-local-source");
    let before = refused();
    until("the packet is refused", || {
        let answer = lab.a.host.sh(
            "ping -6 -c 1 -W 1 -I fe80::5%eth0 fe80::1%eth0 >/dev/null && echo answered || true",
        );
        assert_eq!(answer, "");
        refused() != before
    });
    // The pod's own source to the node's link-local address is policy's matter.
    let drops = lab.drops();
    until("policy drops the packet", || {
        let ping = format!(
            "ping -6 -c 1 -W 1 -I {} fe80::1%eth0 >/dev/null && echo answered || true",
            lab.a.v6
        );
        assert_eq!(lab.a.host.sh(ping), "");
        lab.drops() > drops
    });
    // The node's probe with its link-local source is answered.
    until("the pod answers", || {
        let ping = format!(
            "ping -6 -c 1 -W 1 -I fe80::1%twa {} >/dev/null && echo answered || true",
            lab.a.v6
        );
        lab.node.host.sh(ping).contains("answered")
    });
}

/// A number that is left in the priority would choose the class.
#[test]
fn a_queueing_discipline_sees_no_number_of_policy() {
    let lab = Lab::new();
    let plan = enforced(&lab)
        .policed(Out, &lab.a.both())
        .pair(Out, &lab.a.both(), UNKNOWN, profile(1))
        .open(profile(1));
    lab.reconcile(&plan.0);
    lab.node
        .host
        .sh("tc qdisc add dev world root handle 1000: htb default 2
         tc class add dev world parent 1000: classid 1000:1 htb rate 1gbit
         tc class add dev world parent 1000: classid 1000:2 htb rate 1gbit");
    assert_eq!(lab.udp(&lab.a, &lab.world, Family::V4, 80), Passed);
    let sent = |class: &str| {
        let text = lab
            .node
            .host
            .sh(format!("tc -s class show dev world classid {class}"));
        let (_, rest) = text.split_once("Sent ").unwrap();
        rest.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(sent("1000:1"), 0);
    assert!(sent("1000:2") > 0);
}

#[test]
fn with_the_log_on_packets_are_dropped_and_pass_as_without() {
    let mut lab = Lab::new();
    let desired = one_port(&lab, 53);
    lab.reconcile(&desired);
    let mut connection = lab.connection(&lab.world, &lab.b, Family::V4, 80);
    lab.log_drops();
    assert_eq!(lab.reconcile(&desired).repaired, 0);
    assert!(
        lab.listing()
            .contains("log prefix \"tweed policy-ingress: \" group 116")
    );
    lab.node.host.sh("nft list ruleset");
    assert_eq!(lab.request(&mut connection), Passed);
    for family in FAMILIES {
        assert_eq!(lab.udp(&lab.a, &lab.b, family, 53), Passed);
        assert_eq!(lab.udp(&lab.a, &lab.b, family, 54), Dropped);
        assert_eq!(lab.tcp(&lab.a, &lab.b, family, 53), Dropped);
    }
}

#[test]
fn a_flood_of_denied_packets_is_dropped_and_not_all_of_it_is_logged() {
    const SENT: u32 = 3000;
    let mut lab = Lab::new();
    lab.log_drops();
    lab.reconcile(&one_port(&lab, 53));
    let mut group = lab.node.host.run(|| LogGroup::open(116).unwrap());
    let before = lab.drops();
    let (client, server) = udp_pair(&lab.a, &lab.b, Family::V4, 54);
    let to = server.local_addr().unwrap();
    let start = Instant::now();
    for _ in 0..SENT {
        client.send_to(b"x", to).unwrap();
    }
    while lab.drops() < before + u64::from(SENT) {
        assert!(start.elapsed() < PATIENCE, "{}", lab.drops() - before);
    }
    let mut logged = Vec::new();
    let mut last = Instant::now();
    // The kernel sends what it has collected every 0.2 s.
    while logged.is_empty() || last.elapsed() < Duration::from_secs(1) {
        assert!(start.elapsed() < PATIENCE, "{}", logged.len());
        match group.drain() {
            Ok(drained) => {
                assert!(!drained.lost);
                logged.extend(drained.packets);
                last = Instant::now();
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        sleep(Duration::from_millis(5));
    }
    // A burst of 50, and 10 a second.
    let most = 51 + 10 * start.elapsed().as_secs();
    assert!(
        (50..=most).contains(&(logged.len() as u64)),
        "{}",
        logged.len()
    );
    let is_of_policy = |one: &Logged| one.prefix.trim() == "tweed policy-ingress:";
    assert!(logged.iter().all(is_of_policy), "{logged:?}");
    assert!(!arrives(&server));
}

/// Whoever reads the log finds the ends of the flow by it.
#[test]
fn the_log_of_isolated_pods_tells_replies_from_what_opens_a_flow() {
    let mut lab = Lab::new();
    lab.log_drops();
    let both = enforced(&lab);
    lab.reconcile(&both.0);
    let mut group = lab.node.host.run(|| LogGroup::open(116).unwrap());
    for family in FAMILIES {
        let (client, server) = udp_pair(&lab.world, &lab.b, family, 80);
        let start = Instant::now();
        let version = match family {
            Family::V4 => 4,
            Family::V6 => 6,
        };
        let mut is_logged = |from: &UdpSocket, to: SocketAddr, prefix: &str| loop {
            assert!(start.elapsed() < PATIENCE, "{prefix}");
            from.send_to(b"x", to).unwrap();
            sleep(Duration::from_millis(100));
            let packets = group.drain().unwrap_or_default().packets;
            let is_it = |one: &Logged| one.packet[0] >> 4 == version && one.prefix == prefix;
            if packets.iter().any(is_it) {
                break;
            }
        };
        let (to, back) = (server.local_addr().unwrap(), client.local_addr().unwrap());
        until("the flow is open", || {
            client.send_to(b"x", to).unwrap();
            arrives(&server)
        });
        let isolated = Plan::new(&lab.a.both());
        lab.follow(&both.0, &isolated.0, true);
        is_logged(&server, back, "tweed not-enforced reply: ");

        drop((client, server));
        let (client, server) = udp_pair(&lab.world, &lab.b, family, 81);
        let to = server.local_addr().unwrap();
        is_logged(&client, to, "tweed not-enforced: ");
        lab.follow(&isolated.0, &both.0, false);
    }
}

/// What IPVS sends on for a Service passes the hook output, and not `forward` with its new
/// destination. A copy takes the same way, on every kernel.
#[test]
fn what_the_node_sends_on_by_the_hook_output_is_evaluated() {
    let lab = Lab::new();
    for (ip, address) in [("ip", lab.b.v4), ("ip6", lab.b.v6)] {
        lab.node.host.sh(format!(
            "nft add table {ip} copies
             nft add chain {ip} copies pre '{{ type filter hook prerouting priority -290; }}'
             nft add rule {ip} copies pre {ip} daddr {address} udp dport 80 dup to {address} device twb
             nft add chain {ip} copies forward '{{ type filter hook forward priority -1; }}'
             nft add rule {ip} copies forward udp dport 80 drop"
        ));
    }
    let enforced = Plan::new(&[lab.a.both(), lab.b.both()].concat());
    lab.reconcile(&enforced.0);
    for family in FAMILIES {
        for from in [&lab.a, &lab.world] {
            assert_eq!(lab.udp(from, &lab.b, family, 80), Passed);
        }
    }
    let ingress = enforced.clone().policed(In, &lab.b.both());
    let egress = enforced.clone().policed(Out, &lab.a.both());
    let mut old = enforced;
    for plan in [ingress, egress, Plan::new(&lab.a.both())] {
        lab.follow(&old.0, &plan.0, true);
        old = plan;
        for family in FAMILIES {
            assert_eq!(lab.udp(&lab.a, &lab.b, family, 80), Dropped);
            assert_eq!(lab.tcp(&lab.node, &lab.b, family, 81), Passed);
        }
    }

    lab.node.host.sh("nft flush chain inet tweed-policy output");
    for family in FAMILIES {
        assert_eq!(lab.udp(&lab.a, &lab.b, family, 80), Passed);
    }
}

/// A client of a NodePort with `externalTrafficPolicy: Cluster`, whose source the node
/// replaces: policy is asked before that, and finds the client.
#[test]
fn a_client_whose_source_the_node_replaces_is_evaluated_by_its_own_address() {
    let lab = Lab::new();
    lab.node.host.sh("nft -f - <<'E'
         table inet services {
           chain pre {
             type nat hook prerouting priority -100
             ip daddr 198.51.100.1 udp dport 30080 dnat ip to 10.244.1.6:80
           }
           chain post {
             type nat hook postrouting priority 99
             ip daddr 10.244.1.6 masquerade
           }
         }\nE");
    let isolated = enforced(&lab).policed(In, &[lab.b.v4]);
    let allows = |end: &End| {
        let plan = isolated.clone().identity(&[end.v4], identity(0));
        plan.pair(In, &[lab.b.v4], identity(0), profile(0))
            .open(profile(0))
    };
    lab.reconcile(&isolated.0);
    let mut old = isolated.clone();
    for (plan, outcome) in [
        (isolated.clone(), Dropped),
        (allows(&lab.node), Dropped),
        (allows(&lab.world), Passed),
    ] {
        lab.follow(&old.0, &plan.0, true);
        old = plan;
        let service = lab.node.v4.to_string();
        let seen = lab.through(&lab.world, &service, 30080, &lab.b, Family::V4, 80);
        assert_eq!(seen, outcome);
    }
}
