//! Forged packets: foreign sources, VXLAN from hosts that are not nodes, router
//! advertisements.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto,
    socket,
};
use tweed_lab::{Cluster, ClusterPod, LabError, Netns, receive};

/// The UDP port of the receivers.
pub const PORT: u16 = 7001;

/// A UDP socket at which control packets must arrive and forged packets must not.
pub struct Receiver {
    socket: UdpSocket,
    name: String,
}

impl Receiver {
    /// Listens on a UDP port of a namespace.
    pub fn open(netns: &Netns, port: u16) -> Result<Self, LabError> {
        let socket = netns.listen(|| UdpSocket::bind(("0.0.0.0", port)))?;
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .map_err(|source| failed("listen", netns, source))?;
        Ok(Self {
            socket,
            name: netns.name().to_owned(),
        })
    }

    /// Waits for the control packet and returns all packets that came before it. It
    /// must be sent last, so that forged packets would have arrived earlier.
    pub fn received_until(&self, control: &str) -> Vec<String> {
        let mut received = Vec::new();
        let mut buffer = [0; 2048];
        loop {
            let length = receive(&self.socket, &mut buffer).unwrap_or_else(|e| {
                panic!(
                    "the control packet {control:?} did not arrive in {}: {e}",
                    self.name
                )
            });
            let datagram = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if datagram == control {
                return received;
            }
            received.push(datagram);
        }
    }
}

/// The IPv4 address of a pod of the lab.
pub fn v4(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// The MAC of a link.
pub fn mac_of(node: &Netns, link: &str) -> Result<[u8; 6], LabError> {
    let links = node.json(&format!("ip -j link show {link}"))?;
    let text = links[0]["address"].as_str().unwrap_or_default().to_owned();
    let bytes: Vec<u8> = text
        .split(':')
        .filter_map(|part| u8::from_str_radix(part, 16).ok())
        .collect();
    Ok(bytes.try_into().unwrap_or_default())
}

/// An IPv4 packet with a UDP datagram in it.
pub fn udp_packet(source: Ipv4Addr, to: SocketAddrV4, text: &str) -> Vec<u8> {
    let total = 28 + text.len();
    let mut packet = vec![0x45, 0];
    packet.extend(u16::try_from(total).unwrap().to_be_bytes());
    packet.extend([0x12, 0x34, 0, 0, 64, 17, 0, 0]);
    packet.extend(source.octets());
    packet.extend(to.ip().octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(4000u16.to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(u16::try_from(8 + text.len()).unwrap().to_be_bytes());
    // Zero: no checksum (RFC 768).
    packet.extend([0, 0]);
    packet.extend(text.as_bytes());
    packet
}

/// The UDP payload of a VXLAN packet (RFC 7348) with an IP packet in it.
pub fn vxlan_payload(vni: u32, to: [u8; 6], inner: &[u8]) -> Vec<u8> {
    let mut payload = vec![0x08, 0, 0, 0];
    payload.extend((vni << 8).to_be_bytes());
    payload.extend(to);
    payload.extend([2, 0, 0, 0, 0, 0x66]);
    let is_ipv6 = inner.first().is_some_and(|first| first >> 4 == 6);
    payload.extend(if is_ipv6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    payload.extend(inner);
    payload
}

/// The UDP payload of a VXLAN packet for a pod on `node`, one of two, as the other node
/// would send it.
pub fn for_pod(
    cluster: &Cluster,
    node: u8,
    pod: &ClusterPod,
    text: &str,
) -> Result<Vec<u8>, LabError> {
    let source = Ipv4Addr::new(10, 244, 3 - node, 77);
    for_pod_from(source, cluster, node, pod, text)
}

/// The same with a source inside.
pub fn for_pod_from(
    source: Ipv4Addr,
    cluster: &Cluster,
    node: u8,
    pod: &ClusterPod,
    text: &str,
) -> Result<Vec<u8>, LabError> {
    let to = SocketAddrV4::new(v4(pod.address()), PORT);
    let mac = mac_of(cluster[node].node.netns(), "tweed.1")?;
    Ok(vxlan_payload(1, mac, &udp_packet(source, to, text)))
}

/// Sends a UDP datagram from inside a namespace.
pub fn send_udp(from: &Netns, to: SocketAddrV4, payload: &[u8]) -> Result<(), LabError> {
    from.enter(|| UdpSocket::bind("0.0.0.0:0")?.send_to(payload, to))?
        .map_err(|source| failed("send", from, source))?;
    Ok(())
}

/// Sends a complete IPv4 packet through a raw socket, as root in a pod can.
pub fn send_ipv4(from: &Netns, packet: &[u8]) -> Result<(), LabError> {
    let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
    let to = SockaddrIn::from(SocketAddrV4::new(to, 0));
    from.enter(|| {
        let raw = socket(
            AddressFamily::Inet,
            SockType::Raw,
            SockFlag::empty(),
            SockProtocol::Raw,
        )?;
        sendto(raw.as_raw_fd(), packet, &to, MsgFlags::empty())
    })?
    .map_err(|errno| failed("send", from, errno.into()))?;
    Ok(())
}

/// Sends a router advertisement (RFC 4861) with a default route and a prefix to all
/// nodes on a link.
pub fn send_router_advertisement(from: &Netns, link: u32) -> Result<(), LabError> {
    let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xbad);
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut message = vec![134, 0, 0, 0, 64, 0];
    message.extend(1800u16.to_be_bytes());
    message.extend([0; 8]);
    // Prefix information: on-link and autonomous, 2001:db8:bad::/64.
    message.extend([3, 4, 64, 0xc0]);
    message.extend(3600u32.to_be_bytes());
    message.extend(3600u32.to_be_bytes());
    message.extend([0; 4]);
    message.extend(Ipv6Addr::new(0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, 0).octets());
    let mut pseudo = source.octets().to_vec();
    pseudo.extend(all_nodes.octets());
    pseudo.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    pseudo.extend([0, 0, 0, 58]);
    pseudo.extend(&message);
    let sum = checksum(&pseudo);
    message[2..4].copy_from_slice(&sum.to_be_bytes());

    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
    packet.extend([58, 255]);
    packet.extend(source.octets());
    packet.extend(all_nodes.octets());
    packet.extend(&message);
    let to = SockaddrIn6::from(SocketAddrV6::new(all_nodes, 0, 0, link));
    from.enter(|| {
        let raw = socket(
            AddressFamily::Inet6,
            SockType::Raw,
            SockFlag::empty(),
            SockProtocol::Raw,
        )?;
        sendto(raw.as_raw_fd(), &packet, &to, MsgFlags::empty())
    })?
    .map_err(|errno| failed("send", from, errno.into()))?;
    Ok(())
}

/// The Internet checksum (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// The error of an action in a namespace.
pub fn failed(action: &'static str, netns: &Netns, source: std::io::Error) -> LabError {
    LabError::Namespace {
        action,
        namespace: netns.name().to_owned(),
        source,
    }
}
