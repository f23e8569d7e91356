//! A known node is taken only with the sources inside that are its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tweed_component::drops::DropReason;
use tweed_planner::overlay::desired::Ruleset;

use crate::vxlan::{checksum, frame, udp, udp_in_ipv4, wires};
use crate::wires::{Server, Wires, ruleset, send, sources};

/// A VXLAN payload for node 1's pod, with a source of either family.
fn forged_from(source: &str, text: &str) -> Vec<u8> {
    match source.parse().unwrap() {
        IpAddr::V4(source) => {
            let to = Ipv4Addr::new(10, 244, 1, 6);
            frame(1, 1, 0x0800, &udp_in_ipv4(source, to, text))
        }
        IpAddr::V6(source) => {
            let to = "fd00:0:0:1::6".parse().unwrap();
            frame(1, 1, 0x86dd, &udp_in_ipv6(source, to, text))
        }
    }
}

fn udp_in_ipv6(source: Ipv6Addr, to: Ipv6Addr, text: &str) -> Vec<u8> {
    let length = 8 + text.len() as u16;
    let mut checked: Vec<u8> = [source.octets(), to.octets()].concat();
    checked.extend(u32::from(length).to_be_bytes());
    checked.extend(17u32.to_be_bytes());
    checked.extend(udp(text, 0));
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend(length.to_be_bytes());
    ip.extend([17, 64]);
    ip.extend(source.octets());
    ip.extend(to.octets());
    ip.extend(udp(text, checksum(&checked)));
    ip
}

/// Sends node 1 VXLAN packets with these sources inside, from the address `outside`
/// of node 2, and says which of them arrive at node 1's pod.
fn taken(w: &Wires, outside: &str, to: &str, sources: &[&str]) -> Vec<String> {
    let v4 = Server::new(&w.neighbour, "10.244.1.6:7");
    let v6 = Server::new(&w.neighbour, "[fd00:0:0:1::6]:7");
    for source in sources {
        send(&w.peer, outside, to, forged_from(source, source));
    }
    send(&w.pod, "10.244.1.5:0", "10.244.1.6:7", "end");
    send(&w.pod, "[fd00:0:0:1::5]:0", "[fd00:0:0:1::6]:7", "end");
    let all = |server: &Server| -> Vec<String> {
        let texts = std::iter::repeat_with(|| server.next().0);
        texts.take_while(|text| text != "end").collect()
    };
    let mut taken = all(&v4);
    taken.extend(all(&v6));
    taken
}

/// What node 2 may say that it is, whatever it sends.
const HONEST: &[&str] = &[
    "10.244.2.5",
    // The address of its VXLAN device.
    "10.244.2.0",
    "fd00:0:0:2::5",
    "fd00:0:0:2::",
];

const FORGED: &[&str] = &[
    // Pods and VXLAN devices of other nodes, an address of nobody, and of the world.
    "10.244.3.5",
    "10.244.3.0",
    "10.244.99.5",
    "198.51.100.2",
    // Its own address, and another node's.
    "192.0.2.2",
    "192.0.2.3",
    "fd00:0:0:3::5",
    "2001:db8::2",
    "2001:db8:1::2",
];

#[test]
fn a_known_node_sends_with_the_addresses_of_its_own_pods_only() {
    let known = sources("192.0.2.2", &["10.244.2.0/24", "fd00:0:0:2::/64"]);
    let other = sources("192.0.2.3", &["10.244.3.0/24", "fd00:0:0:3::/64"]);
    let over_ipv6 = sources("2001:db8::2", &["10.244.2.0/24", "fd00:0:0:2::/64"]);
    let w = Wires::new(&Ruleset {
        vxlan_sources: &(&known | &other) | &over_ipv6,
        ..ruleset()
    });
    // The device of the other one is bound to IPv4.
    w.node.sh(
        "ip link add over6 address 02:00:00:00:01:01 type vxlan id 1 dstport 8472 local 2001:db8::1 nolearning
         ip link set over6 up",
    );
    let all = [HONEST, FORGED].concat();
    let mut dropped = 0;
    for (outside, to) in [
        ("192.0.2.2:0", "192.0.2.1:8472"),
        ("[2001:db8::2]:0", "[2001:db8::1]:8472"),
    ] {
        assert_eq!(taken(&w, outside, to, &all), HONEST, "{outside}");
        dropped += FORGED.len() as u64;
        assert_eq!(
            w.dropped(DropReason::VxlanInnerSource),
            dropped,
            "{outside}"
        );
    }
    assert_eq!(w.dropped(DropReason::VxlanFromStranger), 0);

    w.node.sh("nft delete table inet tweed");
    let open = taken(&w, "192.0.2.2:0", "192.0.2.1:8472", &all);
    for source in ["10.244.3.5", "10.244.99.5", "fd00:0:0:3::5"] {
        assert!(open.iter().any(|taken| taken == source), "{open:?}");
    }
}

#[test]
fn what_is_neither_ipv4_nor_ipv6_is_not_taken() {
    let w = wires();
    let mut packet = forged_from("10.244.2.5", "behind a tag");
    // A VLAN tag, behind which the source is at another place.
    packet.splice(20..20, [0x81, 0, 0, 1]);
    let arp = frame(1, 1, 0x0806, &[0; 28]);
    let short = frame(1, 1, 0x0800, &[0x45; 11]);
    for packet in [&packet, &arp, &short, &frame(1, 1, 0x86dd, &[])] {
        send(&w.peer, "192.0.2.2:0", "192.0.2.1:8472", packet);
    }
    assert_eq!(taken(&w, "192.0.2.2:0", "192.0.2.1:8472", HONEST), HONEST);
    assert_eq!(w.dropped(DropReason::VxlanInnerSource), 4);
}

#[test]
fn when_a_nodes_pod_cidr_changes_its_new_sources_are_taken_and_its_old_ones_not() {
    let w = wires();
    let (outside, to) = ("192.0.2.2:0", "192.0.2.1:8472");
    let all = ["10.244.2.5", "10.244.3.5", "fd00:0:0:2::5", "fd00:0:0:3::5"];
    assert_eq!(
        taken(&w, outside, to, &all),
        ["10.244.2.5", "fd00:0:0:2::5"]
    );
    for (inner, expected) in [
        (
            &["10.244.3.0/24", "fd00:0:0:2::/64"][..],
            &["10.244.3.5", "fd00:0:0:2::5"][..],
        ),
        // A wider one around both, and one that is inside of that.
        (
            &["10.244.0.0/16", "10.244.2.0/24"],
            &["10.244.2.5", "10.244.3.5"],
        ),
        (
            &["10.244.3.4/30", "fd00:0:0:3::/64"],
            &["10.244.3.5", "fd00:0:0:3::5"],
        ),
        (&[], &[]),
    ] {
        w.reconcile(&Ruleset {
            vxlan_sources: sources("192.0.2.2", inner),
            ..ruleset()
        });
        assert_eq!(taken(&w, outside, to, &all), expected, "{inner:?}");
    }
}
