//! Links: veth pairs and VXLAN devices, their state, and the per-link settings
//! that the kernel shows in a link's dump.

mod build;

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage::{GetLink, NewLink};
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, InfoData, InfoVxlan, LinkAttribute, LinkExtentMask,
    LinkFlags, LinkInfo, LinkMessage, Prop, VxlanDf,
};

use tweed_core::{family::Family, mac::Mac};

pub use build::{Change, VethEnd, create_veth, create_vxlan, delete, delete_group};

use crate::error::Error;
use crate::rt::{Request, Socket};

/// A link as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Index, unique in its network namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// `IFF_UP`: switched on.
    pub up: bool,
    /// `IFF_LOWER_UP`: it has a carrier.
    pub carrier: bool,
    /// `IFLA_PROTO_DOWN`: a program has taken its carrier away.
    pub proto_down: bool,
    /// `IFF_NOARP`.
    pub noarp: bool,
    /// `IFF_LOOPBACK`.
    pub loopback: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// MAC address, for links that have one of six bytes.
    pub mac: Option<Mac>,
    /// Other names that the kernel finds it by.
    pub altnames: Vec<String>,
    /// Group number.
    pub group: u32,
    /// Alias.
    pub alias: Option<String>,
    /// `veth`, `vxlan`, …; none for physical devices.
    pub kind: Option<String>,
    /// Index of the other end or the lower device, in `peer_netns` if that is set.
    pub peer: Option<u32>,
    /// Number of the namespace that `peer` is in, where that is another one.
    pub peer_netns: Option<i32>,
    /// Index of the bridge, bond or VRF that it is a port of.
    pub master: Option<u32>,
    /// What is special to a VXLAN device.
    pub vxlan: Option<Vxlan>,
    /// IPv4 settings.
    pub ipv4: Option<Ipv4Settings>,
    /// IPv6 settings; none where IPv6 is off.
    pub ipv6: Option<Ipv6Settings>,
}

/// Options of a VXLAN device that decide what its packets look like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vxlan {
    /// VXLAN network identifier.
    pub vni: u32,
    /// UDP port of the far end, and of this end.
    pub port: u16,
    /// Source address of outer packets.
    pub local: Option<IpAddr>,
    /// Whether the FDB learns from packets.
    pub learning: bool,
    /// Whether someone else decides on each packet (`external`).
    pub external: bool,
    /// Whether it has one of the options that tweed leaves as they are by default.
    pub more: bool,
}

impl Vxlan {
    /// A device with FDB entries only from its owner, and nothing special.
    pub fn nolearning(vni: u32, port: u16, local: IpAddr) -> Self {
        Self {
            vni,
            port,
            local: Some(local),
            ..Self::default()
        }
    }

    fn parse(options: &[InfoVxlan]) -> Self {
        let mut parsed = Self::default();
        for option in options {
            match option {
                InfoVxlan::Id(vni) => parsed.vni = *vni,
                InfoVxlan::Port(port) => parsed.port = *port,
                InfoVxlan::Local(ip) => parsed.local = Some((*ip).into()),
                InfoVxlan::Local6(ip) => parsed.local = Some((*ip).into()),
                InfoVxlan::Learning(on) => parsed.learning = *on,
                InfoVxlan::CollectMetadata(on) => parsed.external = *on,
                InfoVxlan::Link(index) => parsed.more |= *index != 0,
                InfoVxlan::Ttl(value) | InfoVxlan::Tos(value) => parsed.more |= *value != 0,
                InfoVxlan::Df(df) => parsed.more |= *df != VxlanDf::Unset,
                InfoVxlan::Proxy(on)
                | InfoVxlan::Rsc(on)
                | InfoVxlan::L2Miss(on)
                | InfoVxlan::L3Miss(on) => parsed.more |= *on,
                InfoVxlan::Group(_) | InfoVxlan::Group6(_) | InfoVxlan::Gbp | InfoVxlan::Gpe => {
                    parsed.more = true
                }
                _ => {}
            }
        }
        parsed
    }
}

/// IPv4 settings of a link: `net.ipv4.conf.<link>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Settings {
    /// `forwarding`
    pub forwarding: i32,
    /// `accept_redirects`
    pub accept_redirects: i32,
    /// `send_redirects`
    pub send_redirects: i32,
    /// `rp_filter`
    pub rp_filter: i32,
}

/// IPv6 settings of a link: `net.ipv6.conf.<link>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ipv6Settings {
    /// `disable_ipv6`
    pub disable_ipv6: i32,
    /// `forwarding`
    pub forwarding: i32,
    /// `accept_ra`
    pub accept_ra: i32,
    /// `autoconf`
    pub autoconf: i32,
    /// `accept_redirects`
    pub accept_redirects: i32,
    /// `addr_gen_mode`: 0 eui64, 1 none, 2 stable privacy, 3 random.
    pub addr_gen_mode: i32,
    /// `mtu`, in bytes: that of the link, or less, as routers advertise it (RFC 4861,
    /// section 4.6.4).
    pub mtu: u32,
}

impl Link {
    /// Decodes a link message.
    pub fn parse(message: &LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            index: message.header.index,
            up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::LowerUp),
            noarp: flags.contains(LinkFlags::Noarp),
            loopback: flags.contains(LinkFlags::Loopback),
            ..Self::default()
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::PropList(properties) => {
                    let names = properties.iter().filter_map(|property| match property {
                        Prop::AltIfName(name) => Some(name.clone()),
                        _ => None,
                    });
                    link.altnames = names.collect();
                }
                LinkAttribute::ProtoDown(down) => link.proto_down = *down != 0,
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Address(mac) => link.mac = mac.as_slice().try_into().ok().map(Mac),
                LinkAttribute::Group(group) => link.group = *group,
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
                LinkAttribute::Link(index) => link.peer = Some(*index),
                LinkAttribute::LinkNetNsId(id) => link.peer_netns = Some(*id),
                LinkAttribute::Controller(master) => {
                    link.master = Some(*master).filter(|index| *index != 0);
                }
                LinkAttribute::LinkInfo(info) => link.parse_info(info),
                LinkAttribute::AfSpecUnspec(families) => link.parse_settings(families),
                _ => {}
            }
        }
        link
    }

    /// The longest packets that the link carries, in bytes: of IPv6 that may be less than
    /// of IPv4.
    pub fn mtu_of(&self, family: Family) -> u32 {
        match (family, self.ipv6) {
            // On a link that is shorter than IPv6 allows there are no such settings.
            (Family::V6, Some(ipv6)) if ipv6.mtu > 0 => self.mtu.min(ipv6.mtu),
            _ => self.mtu,
        }
    }

    fn parse_info(&mut self, info: &[LinkInfo]) {
        for part in info {
            match part {
                LinkInfo::Kind(kind) => self.kind = Some(kind.to_string()),
                LinkInfo::Data(InfoData::Vxlan(options)) => {
                    self.vxlan = Some(Vxlan::parse(options))
                }
                _ => {}
            }
        }
    }

    fn parse_settings(&mut self, families: &[AfSpecUnspec]) {
        for family in families {
            match family {
                AfSpecUnspec::Inet(parts) => {
                    for part in parts {
                        if let AfSpecInet::DevConf(conf) = part {
                            self.ipv4 = Some(Ipv4Settings {
                                forwarding: conf.forwarding,
                                accept_redirects: conf.accept_redirects,
                                send_redirects: conf.send_redirects,
                                rp_filter: conf.rp_filter,
                            });
                        }
                    }
                }
                AfSpecUnspec::Inet6(parts) => {
                    for part in parts {
                        if let AfSpecInet6::DevConf(conf) = part {
                            self.ipv6 = Some(Ipv6Settings {
                                disable_ipv6: conf.disable_ipv6,
                                forwarding: conf.forwarding,
                                accept_ra: conf.accept_ra,
                                autoconf: conf.autoconf,
                                accept_redirects: conf.accept_redirects,
                                addr_gen_mode: conf.addr_gen_mode,
                                mtu: conf.mtu6.try_into().unwrap_or(0),
                            });
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Creates a link and returns it, if the kernel reports it with its answer (since
/// Linux 6.2).
///
/// # Errors
/// The kernel's refusal, or a socket that fails.
pub fn create(socket: &mut Socket, request: &Request) -> Result<Option<Link>, Error> {
    Ok(match socket.create(request)? {
        Some(NewLink(message)) => Some(Link::parse(&message)),
        _ => None,
    })
}

/// The link of this name.
///
/// # Errors
/// When the kernel cannot be asked; a link that is not there is `None`.
pub fn by_name(socket: &mut Socket, name: &str) -> Result<Option<Link>, Error> {
    one(socket, name.to_owned(), build::named(name))
}

/// The link of this index.
///
/// # Errors
/// When the kernel cannot be asked; a link that is not there is `None`.
pub fn by_index(socket: &mut Socket, index: u32) -> Result<Option<Link>, Error> {
    one(socket, format!("number {index}"), build::indexed(index))
}

/// The other end of a link, where it is in a namespace that the socket's has a number
/// for ([`Link::peer_netns`]).
///
/// # Errors
/// When the kernel cannot be asked; a link that is not there is `None`.
pub fn peer_elsewhere(socket: &mut Socket, link: &Link) -> Result<Option<Link>, Error> {
    let (Some(netns), Some(peer)) = (link.peer_netns, link.peer) else {
        return Ok(None);
    };
    let mut message = build::indexed(peer);
    message.attributes.push(LinkAttribute::IfNetnsId(netns));
    one(
        socket,
        format!("number {peer} at the other end of {}", link.name),
        message,
    )
}

/// Reads a link so that the kernel brings the link's state up to date, which it
/// does before it answers.
pub fn look(index: u32, name: &str) -> Request {
    get(name.to_owned(), build::indexed(index))
}

/// As [`look`], for a link of another namespace: the one that has this number
/// ([`Link::peer_netns`]) in the socket's.
pub fn look_into(netns: i32, index: u32, name: &str) -> Request {
    let mut message = build::indexed(index);
    message.attributes.push(LinkAttribute::IfNetnsId(netns));
    get(name.to_owned(), message)
}

fn get(object: String, message: LinkMessage) -> Request {
    Request::get("look at link", object, GetLink(without_statistics(message)))
}

fn without_statistics(mut message: LinkMessage) -> LinkMessage {
    let without = LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]);
    message.attributes.push(without);
    message
}

fn one(socket: &mut Socket, object: String, message: LinkMessage) -> Result<Option<Link>, Error> {
    match socket.get(&get(object, message)) {
        Ok(NewLink(message)) => Ok(Some(Link::parse(&message))),
        Ok(_) => Ok(None),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// All links of the namespace.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list(socket: &mut Socket) -> Result<Vec<Link>, Error> {
    let message = GetLink(without_statistics(LinkMessage::default()));
    let objects = socket.dump(&Request::dump("list", "links".to_owned(), message))?;
    let link = |object: &_| match object {
        NewLink(message) => Some(Link::parse(message)),
        _ => None,
    };
    Ok(objects.iter().filter_map(link).collect())
}
