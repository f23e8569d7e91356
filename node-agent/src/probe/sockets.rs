//! The sockets of probes: ICMP echoes, and UDP with the port of the agents. Packets leave
//! unfragmented, whatever the kernel knows of the way, and from the source that is asked for.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::libc;
use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo, Ipv6V6Only, SetStruct};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrStorage, bind, recvmsg, sendmsg, setsockopt, socket,
};
use nix::{cmsg_space, errno::Errno, setsockopt_impl};
use tokio::io::Interest;
use tweed_core::family::Family;
use tweed_planner::probe::{Means, PORT};

/// `SOL_RAW` and `ICMP_FILTER` of linux/icmp.h, `ICMPV6_FILTER` of linux/icmpv6.h: a bit for
/// each type that is not received.
const SOL_RAW: libc::c_int = 255;
const ICMP_FILTER: libc::c_int = 1;
const ICMPV6_FILTER: libc::c_int = 1;
const ECHO_V4: u8 = 8;
const ECHO_REPLY_V4: u8 = 0;
const ECHO_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
/// Type, code, checksum, identifier and number.
const ICMP_HEADER: usize = 8;

#[derive(Clone)]
struct DiscoverV4;
setsockopt_impl!(
    DiscoverV4,
    libc::IPPROTO_IP,
    libc::IP_MTU_DISCOVER,
    libc::c_int,
    SetStruct<'_, libc::c_int>
);
#[derive(Clone)]
struct DiscoverV6;
setsockopt_impl!(
    DiscoverV6,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU_DISCOVER,
    libc::c_int,
    SetStruct<'_, libc::c_int>
);
/// A source that no link has, but a local route alone.
#[derive(Clone)]
struct FreeBindV6;
setsockopt_impl!(
    FreeBindV6,
    libc::IPPROTO_IPV6,
    libc::IPV6_FREEBIND,
    libc::c_int,
    SetStruct<'_, libc::c_int>
);
#[derive(Clone)]
struct FilterV4;
setsockopt_impl!(FilterV4, SOL_RAW, ICMP_FILTER, u32, SetStruct<'_, u32>);
#[derive(Clone)]
struct FilterV6;
setsockopt_impl!(
    FilterV6,
    libc::IPPROTO_ICMPV6,
    ICMPV6_FILTER,
    [u32; 8],
    SetStruct<'_, [u32; 8]>
);

/// A socket of one family and means.
#[derive(Debug)]
pub(super) struct Socket {
    inner: tokio::net::UdpSocket,
    family: Family,
    is_icmp: bool,
}

/// A packet for this node.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub content: &'a [u8],
    pub from: IpAddr,
    /// Its destination.
    pub to: Option<IpAddr>,
}

impl Socket {
    /// Opens a socket of ICMP, or of UDP.
    ///
    /// # Errors
    /// ICMP needs `CAP_NET_RAW`, and UDP the port.
    pub(super) fn open(family: Family, means: Means) -> io::Result<Self> {
        let is_icmp = means == Means::Icmp;
        let (domain, any) = match family {
            Family::V4 => (AddressFamily::Inet, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
            Family::V6 => (AddressFamily::Inet6, Ipv6Addr::UNSPECIFIED.into()),
        };
        let (kind, protocol) = match (means, family) {
            (Means::Icmp, Family::V4) => (SockType::Raw, SockProtocol::Icmp),
            (Means::Icmp, Family::V6) => (SockType::Raw, SockProtocol::IcmpV6),
            (Means::Udp | Means::Tcp, _) => (SockType::Datagram, SockProtocol::Udp),
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd: OwnedFd = socket(domain, kind, flags, protocol)?;
        match family {
            Family::V4 => {
                setsockopt(&fd, Ipv4PacketInfo, &true)?;
                setsockopt(&fd, DiscoverV4, &libc::IP_PMTUDISC_PROBE)?;
            }
            Family::V6 => {
                setsockopt(&fd, FreeBindV6, &1)?;
                setsockopt(&fd, Ipv6RecvPacketInfo, &true)?;
                setsockopt(&fd, DiscoverV6, &libc::IPV6_PMTUDISC_PROBE)?;
            }
        }
        match (is_icmp, family) {
            (true, Family::V4) => setsockopt(&fd, FilterV4, &!(1 << ECHO_REPLY_V4))?,
            (true, Family::V6) => {
                let mut filter = [u32::MAX; 8];
                filter[usize::from(ECHO_REPLY_V6 / 32)] &= !(1 << (ECHO_REPLY_V6 % 32));
                setsockopt(&fd, FilterV6, &filter)?;
            }
            (false, _) => {
                if family == Family::V6 {
                    setsockopt(&fd, Ipv6V6Only, &true)?;
                }
                let address = SockaddrStorage::from(SocketAddr::new(any, PORT));
                bind(fd.as_raw_fd(), &address)?;
            }
        }
        Ok(Self {
            inner: tokio::net::UdpSocket::from_std(UdpSocket::from(fd))?,
            family,
            is_icmp,
        })
    }

    /// Whether nothing but answers to this node is received: the kernel answers echoes.
    pub(super) fn has_answers_only(&self) -> bool {
        self.is_icmp
    }

    /// Sends a packet with this content; it is lost where the kernel has no room for it.
    pub(super) fn send(&self, from: Option<IpAddr>, to: IpAddr, content: &[u8]) -> nix::Result<()> {
        let echo = self.is_icmp.then(|| echo(self.family, content));
        let port = if self.is_icmp { 0 } else { PORT };
        let to = SockaddrStorage::from(SocketAddr::new(to, port));
        let packet = [IoSlice::new(echo.as_deref().unwrap_or(content))];
        let (v4, v6);
        let source = match from {
            Some(IpAddr::V4(ip)) => {
                v4 = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: u32::from(ip).to_be(),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                Some(ControlMessage::Ipv4PacketInfo(&v4))
            }
            Some(IpAddr::V6(ip)) => {
                v6 = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    ipi6_ifindex: 0,
                };
                Some(ControlMessage::Ipv6PacketInfo(&v6))
            }
            None => None,
        };
        let fd = self.inner.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        match sendmsg(fd, &packet, source.as_slice(), flags, Some(&to)) {
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for a packet.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) async fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Received<'a>> {
        let read = || self.read(buffer);
        let (size, from, to) = self.inner.async_io(Interest::READABLE, read).await?;
        let packet = buffer.get(..size).unwrap_or_default();
        let header = match (self.is_icmp, self.family, packet) {
            (false, ..) => 0,
            // The kernel gives the IP header as well (raw(7)).
            (true, Family::V4, [first, ..]) => usize::from(first & 0x0f) * 4 + ICMP_HEADER,
            (true, ..) => ICMP_HEADER,
        };
        let content = packet.get(header..).unwrap_or_default();
        Ok(Received { content, from, to })
    }

    /// The size of a packet, its source and its destination.
    fn read(&self, buffer: &mut [u8]) -> io::Result<(usize, IpAddr, Option<IpAddr>)> {
        let mut space = cmsg_space!(libc::in6_pktinfo);
        let mut parts = [IoSliceMut::new(buffer)];
        let (fd, flags) = (self.inner.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let message = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut space), flags)?;
        let to = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into())
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into())
            }
            _ => None,
        });
        let from = message.address.and_then(|from| {
            let v4 = from.as_sockaddr_in().map(|from| from.ip().into());
            v4.or_else(|| from.as_sockaddr_in6().map(|from| from.ip().into()))
        });
        Ok((message.bytes, from.ok_or(io::ErrorKind::InvalidData)?, to))
    }
}

/// An ICMP echo request. The kernel enters the checksum of ICMPv6 (RFC 3542, section 3.1).
fn echo(family: Family, content: &[u8]) -> Vec<u8> {
    let kind = match family {
        Family::V4 => ECHO_V4,
        Family::V6 => ECHO_V6,
    };
    let mut packet = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    packet.extend(content);
    if family == Family::V4 {
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// The checksum of the internet (RFC 1071).
fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks(2).map(|word| match word {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_over_a_packet_with_its_checksum_is_none() {
        for content in [&b""[..], b"a", b"ab", &[0xff; 1473]] {
            let packet = echo(Family::V4, content);
            assert_eq!(
                (checksum(&packet), packet[0], packet.len()),
                (0, 8, 8 + content.len())
            );
        }
        assert_eq!(echo(Family::V6, b"a"), [128, 0, 0, 0, 0, 0, 0, 0, b'a']);
    }
}
