//! Multicast that a node sends on, as a routing daemon would have it: by the
//! kernel's own interface (`linux/mroute.h`), which no installed program speaks.

use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use crate::lab::Host;
use crate::wires::Server;

const MRT_INIT: c_int = 200;
const MRT_ADD_VIF: c_int = 202;
const MRT_ADD_MFC: c_int = 204;
const VIFF_USE_IFINDEX: u8 = 8;

#[expect(unsafe_code, reason = "no safe wrapper knows the protocol")]
fn igmp_socket() -> OwnedFd {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes no pointers.
    let opened = unsafe { libc::socket(libc::AF_INET, kind, libc::IPPROTO_IGMP) };
    let opened = Errno::result(opened).unwrap();
    // SAFETY: it was opened just now and is nobody else's.
    unsafe { OwnedFd::from_raw_fd(opened) }
}

fn set(socket: &OwnedFd, option: c_int, value: &[u8]) {
    #[expect(unsafe_code, reason = "no safe wrapper knows these options")]
    // SAFETY: the kernel reads `value.len()` bytes of `value`, which lives on.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            option,
            value.as_ptr().cast(),
            libc::socklen_t::try_from(value.len()).unwrap(),
        )
    };
    let done = Errno::result(result);
    assert!(done.is_ok(), "option {option}: {done:?}");
}

/// `struct vifctl`.
fn interface(number: u16, index: u32) -> Vec<u8> {
    let mut vif = number.to_ne_bytes().to_vec();
    vif.extend([VIFF_USE_IFINDEX, 1]);
    vif.extend(0_u32.to_ne_bytes());
    vif.extend(index.to_ne_bytes());
    vif.extend([0; 4]);
    vif
}

/// `struct mfcctl`: from interface 0 to interface 1.
fn route(source: Ipv4Addr, group: Ipv4Addr) -> Vec<u8> {
    let mut mfc = source.octets().to_vec();
    mfc.extend(group.octets());
    mfc.extend(0_u16.to_ne_bytes());
    let mut ttls = [0; 32];
    ttls[1] = 1;
    mfc.extend(ttls);
    mfc.extend([0; 18]);
    mfc
}

/// `host` sends on what `source` sends to `group`, while the socket is held.
pub fn forward(host: &Host, source: &str, group: &str, from: &str, to: &str) -> OwnedFd {
    let (source, group) = (source.parse().unwrap(), group.parse().unwrap());
    let [from, to] = [from, to].map(|link| {
        let line = host.sh(format!("ip -o link show {link}"));
        line.split(':').next().unwrap().parse().unwrap()
    });
    host.run(move || {
        let socket = igmp_socket();
        set(&socket, MRT_INIT, &1_i32.to_ne_bytes());
        set(&socket, MRT_ADD_VIF, &interface(0, from));
        set(&socket, MRT_ADD_VIF, &interface(1, to));
        set(&socket, MRT_ADD_MFC, &route(source, group));
        socket
    })
}

/// A member of a group, by the link with the address `own`.
pub fn listen(host: &Host, group: &str, own: &str) -> Server {
    let group: SocketAddrV4 = group.parse().unwrap();
    let own: Ipv4Addr = own.parse().unwrap();
    let socket = host.bind(move || {
        let socket = UdpSocket::bind(group)?;
        socket.join_multicast_v4(group.ip(), &own)?;
        Ok(socket)
    });
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    Server::from(socket)
}
