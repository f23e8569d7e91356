//! A packet of TCP that fits no flow is not sent on untranslated, where it would be translated.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, sendto,
    socket,
};

use tweed_component::drops::DropReason;
use tweed_planner::services::desired::Masquerade;

use super::lab::{Answer, BALANCER, FAMILIES, Lab, NEIGHBOUR, PATIENCE, POD, SERVICE, Servers};
use super::plan::{Plan, TCP, endpoint, group};

/// Without the rule it would reach the pod with the server's own address, and the pod
/// would end the connection.
#[test]
fn an_invalid_packet_of_tcp_is_dropped() {
    let lab = Lab::new();
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let target = group(2 * number);
        let real = endpoint(NEIGHBOUR.of(family), 8080);
        plan = plan
            .endpoints(target, &[real])
            .cluster_ip(TCP, SERVICE.port(family, 80), target);
    }
    lab.reconcile(&plan);
    for family in FAMILIES {
        let at = NEIGHBOUR.port(family, 8080);
        let listener = lab.0.neighbour.bind(move || TcpListener::bind(at));
        let to = SERVICE.port(family, 80);
        let mut client = lab
            .0
            .pod
            .run(move || std::net::TcpStream::connect(to).unwrap());
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"a").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.read_exact(&mut [0]).unwrap();
        let before = lab.dropped(DropReason::InvalidState);
        is_dropped(
            &lab,
            server.local_addr().unwrap(),
            client.local_addr().unwrap(),
        );
        // The connection lives.
        server.write_all(b"b").unwrap();
        client.read_exact(&mut [0]).unwrap();
        client.write_all(b"c").unwrap();
        server.read_exact(&mut [0]).unwrap();
        assert_eq!(lab.dropped(DropReason::InvalidState), before + 1);
    }
}

/// As of a pod with a second interface. The other one is an endpoint of a Service, at another
/// port.
#[test]
fn a_connection_between_pods_of_which_the_node_sees_the_answers_alone_comes_about() {
    let lab = Lab::new();
    let mut plan = Plan::new();
    let mut servers = Servers::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let target = group(2 * number);
        plan = plan
            .endpoints(target, &[endpoint(NEIGHBOUR.of(family), 8080)])
            .cluster_ip(TCP, SERVICE.port(family, 80), target);
        servers = servers.add(&lab.0.neighbour, "neighbour", NEIGHBOUR.port(family, 9090));
    }
    lab.reconcile(&plan);
    let neighbour = lab.0.neighbour.netns();
    lab.0.pod.sh(format!(
        "ip link add second address 02:00:00:00:00:11 type veth peer name second address 02:00:00:00:00:12 netns {neighbour}
         ip link set second up
         ip neigh add 10.244.1.6 lladdr 02:00:00:00:00:12 dev second nud permanent
         ip neigh add fd00:0:0:1::6 lladdr 02:00:00:00:00:12 dev second nud permanent
         ip route add 10.244.1.6 dev second src 10.244.1.5
         ip route add fd00:0:0:1::6 dev second"
    ));
    lab.0.neighbour.sh("ip link set second up
         for link in all second; do echo 0 > /proc/sys/net/ipv4/conf/$link/rp_filter; done");
    for family in FAMILIES {
        let answer = lab.ask(&lab.0.pod, TCP, NEIGHBOUR.port(family, 9090));
        let expected = Answer::From("neighbour".to_owned(), POD.of(family));
        assert_eq!(answer, expected);
    }
    drop(servers);
}

/// The answers of a masqueraded flow come to the node itself. Without the rule the node,
/// which has no such socket, would end the connection of the pod.
#[test]
fn an_invalid_packet_to_the_node_is_dropped() {
    let lab = Lab::new();
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let target = group(2 * number);
        let balancer = BALANCER.port(family, 80);
        plan = plan
            .endpoints(target, &[endpoint(NEIGHBOUR.of(family), 8080)])
            .at(TCP, balancer, target)
            .masquerade(TCP, balancer, Masquerade::All);
    }
    lab.reconcile(&plan);
    for family in FAMILIES {
        let at = NEIGHBOUR.port(family, 8080);
        let listener = lab.0.neighbour.bind(move || TcpListener::bind(at));
        let to = BALANCER.port(family, 80);
        let mut client = (lab.0.world).run(move || std::net::TcpStream::connect(to).unwrap());
        let (mut server, masqueraded) = listener.accept().unwrap();
        assert_ne!(masqueraded.ip(), client.local_addr().unwrap().ip());
        let before = lab.dropped(DropReason::InvalidState);
        is_dropped(&lab, server.local_addr().unwrap(), masqueraded);
        server.write_all(b"a").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert_eq!(lab.dropped(DropReason::InvalidState), before + 1);
    }
}

/// The server's pod sends a segment that fits no connection, which is dropped and counted. One
/// from a port that no Service has came before.
fn is_dropped(lab: &Lab, from: SocketAddr, to: SocketAddr) {
    let before = lab.dropped(DropReason::InvalidState);
    let segments = [SocketAddr::new(from.ip(), 9), from].map(|from| invalid_segment(from, to));
    lab.0.neighbour.run(move || {
        for segment in &segments {
            send_raw(from.ip(), to.ip(), segment);
        }
    });
    let start = std::time::Instant::now();
    while lab.dropped(DropReason::InvalidState) == before {
        assert!(start.elapsed() < PATIENCE, "nothing was dropped");
    }
}

/// A segment from one address and port to another (RFC 9293, section 3.1), with flags (SYN
/// and FIN) that conntrack finds invalid in any state of a connection.
fn invalid_segment(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(from.port().to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    // Sequence 1, acknowledgement 0, five words of header, flags, window.
    segment.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x03, 0x03, 0xe8]);
    // Checksum and urgent pointer.
    segment.extend([0; 4]);
    let mut summed = [octets(from.ip()), octets(to.ip())].concat();
    summed.extend([0, segment.len() as u8, 0, 6]);
    summed.extend(&segment);
    let words = summed.chunks_exact(2);
    let mut sum: u32 = words
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = !(sum as u16);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    segment
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(v4) => v4.octets().into(),
        IpAddr::V6(v6) => v6.octets().into(),
    }
}

/// Sends a segment of TCP as it is.
fn send_raw(from: IpAddr, to: IpAddr, segment: &[u8]) {
    let family = match to {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let raw = socket(family, SockType::Raw, flags, SockProtocol::Tcp).unwrap();
    let at = |ip| SockaddrStorage::from(SocketAddr::new(ip, 0));
    bind(raw.as_raw_fd(), &at(from)).unwrap();
    sendto(raw.as_raw_fd(), segment, &at(to), MsgFlags::empty()).unwrap();
}
