//! SCTP, which Kubernetes names beside TCP and UDP. Not every kernel has it, so these
//! tests run only when they are asked for.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn, bind, connect, listen,
    socket,
};
use tweed_lab::{Cluster, LabError, Netns, OUTSIDE};

use crate::packets::{failed, v4};

pub const PORT: u16 = 7003;

/// How long a packet that is not dropped may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// More than fits into one packet.
const SIZE: usize = 20_000;

fn endpoint() -> nix::Result<OwnedFd> {
    socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Sctp,
    )
}

/// std's types serve any socket with connections; only their names say TCP.
fn server(at: &Netns) -> Result<TcpListener, LabError> {
    at.enter(|| -> io::Result<TcpListener> {
        let endpoint = endpoint()?;
        let any = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT));
        bind(endpoint.as_raw_fd(), &any)?;
        listen(&endpoint, Backlog::new(1)?)?;
        Ok(TcpListener::from(endpoint))
    })?
    .map_err(|source| failed("listen on SCTP", at, source))
}

/// Connects within `limit`. To be called inside of the client's namespace.
pub fn associate(to: SocketAddrV4, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::from(endpoint()?);
    // Also limits the time for connecting.
    stream.set_write_timeout(Some(limit))?;
    connect(stream.as_raw_fd(), &SockaddrIn::from(to))?;
    Ok(stream)
}

fn client(from: &Netns, to: Ipv4Addr) -> Result<TcpStream, LabError> {
    from.enter(|| associate(SocketAddrV4::new(to, PORT), PATIENCE))?
        .map_err(|source| failed("connect over SCTP", from, source))
}

/// Sends a message over a new association to [`PORT`]; returns the source that the server
/// sees.
pub fn send_over_sctp(from: &Netns, at: &Netns, to: Ipv4Addr) -> Result<IpAddr, LabError> {
    let listener = server(at)?;
    let mut sender = client(from, to)?;
    let mut exchange = || -> io::Result<(IpAddr, Vec<u8>)> {
        let (mut receiver, source) = listener.accept()?;
        receiver.set_read_timeout(Some(PATIENCE))?;
        sender.write_all(&[0x5a; SIZE])?;
        let mut message = vec![0; SIZE];
        receiver.read_exact(&mut message)?;
        Ok((source.ip(), message))
    };
    let (source, message) = exchange().map_err(|source| failed("talk SCTP", from, source))?;
    assert_eq!(message, [0x5a; SIZE]);
    Ok(source)
}

#[test]
#[ignore = "needs a kernel with SCTP: make kernels"]
fn pods_talk_sctp_and_see_each_others_addresses() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (here, beside) = (cluster.pod(1, "here")?, cluster.pod(1, "beside")?);
    let far = cluster.pod(2, "far")?;
    Cluster::wait_for_path(here.netns(), far.address())?;
    for other in [&beside, &far] {
        let source = send_over_sctp(here.netns(), other.netns(), v4(other.address()))?;
        assert_eq!(source, here.address());
    }
    Ok(())
}

#[test]
#[ignore = "needs a kernel with SCTP: make kernels"]
fn sctp_to_the_world_is_masqueraded() -> Result<(), LabError> {
    let mut cluster = Cluster::start(1)?;
    let pod = cluster.pod(1, "pod")?;
    let outside = cluster.underlay().outside();
    let source = send_over_sctp(pod.netns(), outside, OUTSIDE)?;
    assert_eq!(source, cluster[1].node.address());
    Ok(())
}
