//! rtnetlink messages, byte by byte: `linux/rtnetlink.h`, `linux/if_link.h`.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

/// Where pods send everything.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

const MTU: u32 = 1450;
const POD_GROUP: u32 = 116;
const LEAVING_GROUP: u32 = 117;
const ROUTE_PROTOCOL: u8 = 116;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;

const REQUEST_ACK: u16 = 0x1 | 0x4;
const CREATE: u16 = 0x400;
const EXCLUSIVE: u16 = 0x200;

const IFF_UP: u32 = 0x1;
const IFF_NOARP: u32 = 0x80;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_GROUP: u16 = 27;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTNH_F_ONLINK: u32 = 4;
const RT_TABLE_MAIN: u8 = 254;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const AF_INET: u8 = 2;

/// One end of a pair.
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its MAC address.
    pub mac: [u8; 6],
}

/// Requests for one send.
#[derive(Default)]
pub struct Batch {
    /// The messages.
    pub bytes: Vec<u8>,
    /// How many they are.
    pub count: usize,
}

impl Batch {
    /// A pair, the second end born in `netns`.
    pub fn create_pair(&mut self, host: &Link, pod: &Link, netns: &File) {
        self.message(RTM_NEWLINK, CREATE | EXCLUSIVE, |m| {
            m.extend(link_header(host.index, IFF_NOARP, IFF_NOARP));
            describe(m, host);
            attribute(m, IFLA_GROUP, &POD_GROUP.to_ne_bytes());
            nested(m, IFLA_LINKINFO, |m| {
                attribute(m, IFLA_INFO_KIND, b"veth");
                nested(m, IFLA_INFO_DATA, |m| {
                    nested(m, VETH_INFO_PEER, |m| {
                        m.extend(link_header(pod.index, 0, 0));
                        describe(m, pod);
                        attribute(m, IFLA_NET_NS_FD, &netns.as_raw_fd().to_ne_bytes());
                    });
                });
            });
        });
    }

    /// Switches a link on.
    pub fn up(&mut self, index: u32) {
        self.message(RTM_SETLINK, 0, |m| {
            m.extend(link_header(index, IFF_UP, IFF_UP));
        });
    }

    /// Switches a link off.
    pub fn down(&mut self, index: u32) {
        self.message(RTM_SETLINK, 0, |m| m.extend(link_header(index, 0, IFF_UP)));
    }

    /// Another name, and the group of leaving links.
    pub fn leave(&mut self, index: u32, name: &str) {
        self.message(RTM_SETLINK, 0, |m| {
            m.extend(link_header(index, 0, 0));
            attribute(m, IFLA_IFNAME, format!("{name}\0").as_bytes());
            attribute(m, IFLA_GROUP, &LEAVING_GROUP.to_ne_bytes());
        });
    }

    /// Deletes a link.
    pub fn delete(&mut self, index: u32) {
        self.message(RTM_DELLINK, 0, |m| m.extend(link_header(index, 0, 0)));
    }

    /// An address, alone in its subnet.
    pub fn address(&mut self, index: u32, address: Ipv4Addr) {
        self.message(RTM_NEWADDR, CREATE | EXCLUSIVE, |m| {
            m.extend([AF_INET, 32, 0, 0]);
            m.extend(index.to_ne_bytes());
            attribute(m, IFA_LOCAL, &address.octets());
            attribute(m, IFA_ADDRESS, &address.octets());
        });
    }

    /// A permanent neighbour.
    pub fn neighbour(&mut self, index: u32, address: Ipv4Addr, mac: [u8; 6]) {
        self.message(RTM_NEWNEIGH, CREATE | EXCLUSIVE, |m| {
            m.extend([AF_INET, 0, 0, 0]);
            m.extend(index.to_ne_bytes());
            m.extend(NUD_PERMANENT.to_ne_bytes());
            m.extend([0, 0]);
            attribute(m, NDA_DST, &address.octets());
            attribute(m, NDA_LLADDR, &mac);
        });
    }

    /// The pod's default route.
    pub fn default_route(&mut self, index: u32) {
        self.message(RTM_NEWROUTE, CREATE | EXCLUSIVE, |m| {
            m.extend(route_header(0, 0, RTNH_F_ONLINK));
            attribute(m, RTA_GATEWAY, &GATEWAY.octets());
            attribute(m, RTA_OIF, &index.to_ne_bytes());
        });
    }

    /// The host's route to the pod.
    pub fn pod_route(&mut self, index: u32, address: Ipv4Addr) {
        self.message(RTM_NEWROUTE, CREATE | EXCLUSIVE, |m| {
            m.extend(route_header(32, RT_SCOPE_LINK, 0));
            attribute(m, RTA_DST, &address.octets());
            attribute(m, RTA_OIF, &index.to_ne_bytes());
        });
    }

    fn message(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((REQUEST_ACK | flags).to_ne_bytes());
        self.bytes.extend([0; 8]);
        body(&mut self.bytes);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.count += 1;
    }
}

fn describe(message: &mut Vec<u8>, link: &Link) {
    attribute(message, IFLA_IFNAME, format!("{}\0", link.name).as_bytes());
    attribute(message, IFLA_ADDRESS, &link.mac);
    attribute(message, IFLA_MTU, &MTU.to_ne_bytes());
    for queues in [IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES] {
        attribute(message, queues, &1u32.to_ne_bytes());
    }
}

/// `struct ifinfomsg`
fn link_header(index: u32, flags: u32, change: u32) -> impl Iterator<Item = u8> {
    [0, index, flags, change]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
}

/// `struct rtmsg`
fn route_header(length: u8, scope: u8, flags: u32) -> impl Iterator<Item = u8> {
    [
        AF_INET,
        length,
        0,
        0,
        RT_TABLE_MAIN,
        ROUTE_PROTOCOL,
        scope,
        RTN_UNICAST,
    ]
    .into_iter()
    .chain(flags.to_ne_bytes())
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    nested(message, kind, |message| message.extend(value));
}

fn nested(message: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = message.len();
    message.extend([0; 2]);
    message.extend(kind.to_ne_bytes());
    body(message);
    let length = (message.len() - start) as u16;
    message[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    message.resize(message.len().next_multiple_of(4), 0);
}
