//! A packet of TCP that fits no flow is not sent on untranslated.

use std::io::{Read, Write};
use std::net::TcpListener;

use tweed_core::family::Family;

use super::lab::{FAMILIES, Lab, NEIGHBOUR, PATIENCE, SERVICE};
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
        let before = lab.refused().invalid;
        lab.0.neighbour.sh(raw(&client, &server, family));
        let start = std::time::Instant::now();
        while lab.refused().invalid == before {
            assert!(start.elapsed() < PATIENCE, "nothing was dropped");
        }
        // The connection lives.
        server.write_all(b"b").unwrap();
        client.read_exact(&mut [0]).unwrap();
        client.write_all(b"c").unwrap();
        server.read_exact(&mut [0]).unwrap();
    }
}

/// Sends a segment from the server's address and port to the client's, with flags (SYN and
/// FIN) that conntrack finds invalid in any state of a connection.
fn raw(client: &std::net::TcpStream, server: &std::net::TcpStream, family: Family) -> String {
    let (from, to) = (server.local_addr().unwrap(), client.local_addr().unwrap());
    let name = match family {
        Family::V4 => "AF_INET",
        Family::V6 => "AF_INET6",
    };
    format!(
        "python3 - <<'E'
import socket, struct
s = socket.socket(socket.{name}, socket.SOCK_RAW, socket.IPPROTO_TCP)
s.bind(('{}', 0))
pack = lambda check: struct.pack('!HHIIBBHHH', {}, {}, 1, 0, 0x50, 0x03, 1000, check, 0)
a, b = (socket.inet_pton(socket.{name}, ip) for ip in ('{}', '{}'))
data = a + b + struct.pack('!II', len(pack(0)), 6) + pack(0)
total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
while total >> 16: total = (total & 0xffff) + (total >> 16)
s.sendto(pack(~total & 0xffff), ('{}', 0))
E",
        from.ip(),
        from.port(),
        to.port(),
        from.ip(),
        to.ip(),
        to.ip(),
    )
}
