//! Row 9 with packets of SCTP: it is evaluated by the rules for SCTP and by no others. Not
//! every kernel has SCTP; `semantics` has what can be seen without it.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use nix::errno::Errno;
use tweed_lab::{Cluster, LabError, Netns};

use super::policy;
use super::traffic::Listener;
use crate::packets::{failed, v4};
use crate::sctp::{PORT, associate, send_over_sctp};

/// After this time the first packet of a connection, and a second one, were dropped.
const DROPPED: Duration = Duration::from_secs(4);

/// Whether what connects in a namespace is answered. Nobody has to listen: it is then
/// refused, where a policy would drop it in silence.
fn is_answered<S>(
    from: &Netns,
    connect: impl FnOnce() -> io::Result<S> + Send,
) -> Result<bool, LabError> {
    let answer = from.enter(|| connect().map(drop))?;
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
        // SCTP goes on connecting when the caller's time is over.
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => Ok(false),
        Err(source) => Err(failed("connect", from, source)),
    }
}

/// Whether SCTP to [`PORT`], SCTP to the next port, and TCP to [`PORT`] are answered.
fn answered(from: &Netns, to: Ipv4Addr) -> Result<[bool; 3], LabError> {
    let sctp = |port| {
        let at = SocketAddrV4::new(to, port);
        is_answered(from, || associate(at, DROPPED))
    };
    let tcp = SocketAddrV4::new(to, PORT).into();
    Ok([
        sctp(PORT)?,
        sctp(PORT + 1)?,
        is_answered(from, || TcpStream::connect_timeout(&tcp, DROPPED))?,
    ])
}

#[test]
#[ignore = "needs a kernel with SCTP: make kernels"]
fn sctp_is_evaluated_by_rules_for_sctp_and_by_no_others() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let server = cluster.labelled_pod(1, "shop/server", "")?;
    let client = cluster.labelled_pod(2, "other/client", "")?;
    let to = v4(server.address());
    let udp = Listener::open(&cluster, 1, &server, PORT)?;
    udp.wait(client.netns(), true)?;
    assert_eq!(answered(client.netns(), to)?, [true, true, true]);

    for (ports, hears_udp, expected) in [
        ("{protocol: SCTP, port: 7003}", false, [true, false, false]),
        (
            "{protocol: TCP, port: 7003}, {protocol: UDP, port: 7003}",
            true,
            [false, false, true],
        ),
        ("{protocol: SCTP}", false, [true, true, false]),
        (
            "{protocol: UDP}, {protocol: SCTP, port: 7004, endPort: 7005}",
            true,
            [false, true, false],
        ),
    ] {
        let spec = format!(
            "{{podSelector: {{}}, policyTypes: [Ingress], ingress: [{{ports: [{ports}]}}]}}"
        );
        cluster.apply("ports", policy("shop", "ports", &spec))?;
        udp.wait(client.netns(), hears_udp)?;
        assert_eq!(answered(client.netns(), to)?, expected, "{ports}");
        if expected[0] {
            let source = send_over_sctp(client.netns(), server.netns(), to)?;
            assert_eq!(source, client.address(), "{ports}");
        }
    }
    Ok(())
}
