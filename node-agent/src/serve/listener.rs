//! Listens on an address until it can, and again whenever it no longer can: a port that
//! is taken, or an address that is on no interface yet, keeps nothing else from working.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::{io, time::Duration};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt::Ipv6V6Only};
use tokio::net::{TcpListener, TcpSocket};

use super::connections::{Service, serve};

/// Time between two attempts to listen on an address.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 128;

/// Serves on `addr`, for ever. `report` gets the outcome of each attempt: nothing while
/// it listens, or why it does not.
pub(super) async fn listen(
    addr: SocketAddr,
    service: Service,
    retry: Duration,
    mut report: impl FnMut(Option<io::Error>),
) {
    loop {
        let error = match bind(addr) {
            Ok(listener) => {
                report(None);
                serve(listener, service.clone()).await
            }
            Err(error) => error,
        };
        report(Some(error));
        tokio::time::sleep(retry).await;
    }
}

/// A listener. On `[::]` it is one for both families, whatever the sysctl
/// `net.ipv6.bindv6only` says, and for IPv4 alone on a machine without IPv6.
fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let both = addr.is_ipv6() && addr.ip().is_unspecified();
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = match socket {
        Err(error) if both && error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32) => {
            return bind((IpAddr::from(Ipv4Addr::UNSPECIFIED), addr.port()).into());
        }
        other => other?,
    };
    // Connections of an earlier agent that are not quite closed are no reason to wait.
    socket.set_reuseaddr(true)?;
    if both {
        setsockopt(&socket, Ipv6V6Only, &false)?;
    }
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}
