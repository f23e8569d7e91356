//! SCTP to Services. Not every kernel has it, so this runs only when it is asked for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect,
    listen, socket,
};
use tweed_core::family::Family;
use tweed_planner::services::desired::{FIRST_AFFINITY, Target};

use super::lab::{FAMILIES, Lab, NEIGHBOUR, NODE, PATIENCE, POD, SERVICE, Servers};
use super::plan::{Plan, SCTP, TCP, endpoint, group};
use crate::lab::Host;

const REAL: u16 = 8080;

fn endpoint_of(family: Family) -> nix::Result<OwnedFd> {
    let domain = match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(domain, SockType::Stream, flags, SockProtocol::Sctp)
}

/// std's types serve any socket with connections; only their names say TCP.
fn server(host: &Host, family: Family, at: SocketAddr) -> TcpListener {
    host.bind(move || {
        let endpoint = endpoint_of(family)?;
        bind(endpoint.as_raw_fd(), &SockaddrStorage::from(at))?;
        listen(&endpoint, Backlog::new(8)?)?;
        Ok(TcpListener::from(endpoint))
    })
}

/// Whether `listener` is who answers at `to`.
fn reaches(from: &Host, family: Family, to: SocketAddr, listener: &TcpListener) -> bool {
    let connected = from.run(move || {
        let stream = TcpStream::from(endpoint_of(family).unwrap());
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let connected = connect(stream.as_raw_fd(), &SockaddrStorage::from(to));
        connected.is_ok().then_some(stream)
    });
    let Some(mut client) = connected else {
        return false;
    };
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"x").unwrap();
    accepted.read_exact(&mut [0]).unwrap();
    true
}

/// One number of two protocols is two frontends, with groups and clients of their own.
#[test]
#[ignore = "needs a kernel with SCTP: make kernels JOB=services"]
fn sctp_and_tcp_on_one_number_are_two_services() {
    let lab = Lab::new();
    let mut servers = Servers::new();
    let mut listeners = Vec::new();
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let (tcp, sctp) = (POD.port(family, REAL), NEIGHBOUR.port(family, REAL));
        servers = servers.add(&lab.0.pod, "pod", tcp);
        listeners.push((family, server(&lab.0.neighbour, family, sctp)));
        let affine = FIRST_AFFINITY + number * 0x2000;
        let (own, other) = (group(4 * number), group(4 * number + 2));
        plan = plan
            .endpoints(own, &[endpoint(tcp.ip(), REAL)])
            .endpoints(other, &[endpoint(sctp.ip(), REAL)])
            .members(affine, 600, &[(0, endpoint(sctp.ip(), REAL))])
            .cluster_ip(TCP, SERVICE.port(family, 80), own)
            .cluster_ip(SCTP, SERVICE.port(family, 80), other)
            .cluster_ip(TCP, SERVICE.port(family, 81), own)
            .cluster_ip(SCTP, SERVICE.port(family, 82), Target::Affinity(affine))
            .node_port(family, TCP, 30080, own)
            .node_port(family, SCTP, 30080, other);
    }
    lab.reconcile(&plan);
    for (family, listener) in &listeners {
        for from in [&lab.0.pod, &lab.0.world, &lab.0.node] {
            let to = SERVICE.port(*family, 80);
            assert_eq!(lab.name(from, TCP, to), "pod");
            assert!(reaches(from, *family, to, listener));
            // There is TCP alone, and the client is told.
            let tcp_only = SERVICE.port(*family, 81);
            assert!(!reaches(from, *family, tcp_only, listener));
            for _ in 0..2 {
                let remembered = SERVICE.port(*family, 82);
                assert!(reaches(from, *family, remembered, listener));
            }
        }
        let node_port = NODE.port(*family, 30080);
        assert_eq!(lab.name(&lab.0.world, TCP, node_port), "pod");
        assert!(reaches(&lab.0.world, *family, node_port, listener));
    }
}
