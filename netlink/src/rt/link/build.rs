//! Requests that make, change and delete links.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{DefaultNla, NLA_F_NESTED};
use netlink_packet_route::RouteNetlinkMessage::{DelLink, NewLink, SetLink};
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth,
    LinkAttribute, LinkFlags, LinkMessage, LinkProtocolDownReason,
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth, LinkVxlan};

use tweed_core::mac::Mac;

use super::Vxlan;
use crate::rt::Request;

/// Of `linux/if_link.h`, and of `linux/ip.h` the settings below it.
const IFLA_INET_CONF: u16 = 1;
const IPV4_DEVCONF_FORWARDING: u16 = 1;
const IPV4_DEVCONF_ACCEPT_REDIRECTS: u16 = 4;
const IPV4_DEVCONF_SEND_REDIRECTS: u16 = 6;

/// One end of a veth pair to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethEnd {
    /// Name.
    pub name: String,
    /// MAC address. Given at birth, udev leaves it alone.
    pub mac: Mac,
    /// MTU in bytes.
    pub mtu: u32,
    /// Group; 0 is the kernel's default.
    pub group: u32,
    /// `IFF_NOARP` from the start.
    pub noarp: bool,
}

impl VethEnd {
    fn describe<T>(&self, builder: LinkMessageBuilder<T>) -> LinkMessageBuilder<T> {
        // One queue each way is what an end has in any case. But if nothing is said,
        // the kernel makes one for each CPU and takes all but one away again, and
        // waits for a grace period while it holds its lock (`veth_init_queues`).
        // What the first end says decides that for both, so both must say it.
        let mut builder = builder
            .name(&self.name)
            .address(self.mac.0.to_vec())
            .mtu(self.mtu)
            .append_extra_attribute(LinkAttribute::NumTxQueues(1))
            .append_extra_attribute(LinkAttribute::NumRxQueues(1));
        if self.group != 0 {
            builder = builder.link_group(self.group);
        }
        if self.noarp {
            builder = builder.arp(false);
        }
        builder
    }
}

/// Makes a veth pair: `end` here, `peer` already inside `peer_netns`, which
/// must stay open until the request was sent. Both are down.
pub fn create_veth(end: &VethEnd, peer: &VethEnd, peer_netns: BorrowedFd<'_>) -> Request {
    let far = peer
        .describe(LinkMessageBuilder::<LinkUnspec>::default())
        .setns_by_fd(peer_netns.as_raw_fd())
        .build();
    // The crate's own builder of veth pairs has no peer elsewhere.
    let message = end
        .describe(LinkMessageBuilder::<LinkVeth>::new_with_info_kind(
            InfoKind::Veth,
        ))
        .set_info_data(InfoData::Veth(InfoVeth::Peer(far)))
        .build();
    let object = format!("{} and {}", end.name, peer.name);
    Request::create("create link pair", object, NewLink(message))
}

/// Makes a VXLAN device, down. `vxlan` must be one of [`Vxlan::nolearning`].
pub fn create_vxlan(name: &str, mac: Mac, mtu: u32, vxlan: &Vxlan) -> Request {
    let device = LinkVxlan::new(name, vxlan.vni)
        .port(vxlan.port)
        .learning(vxlan.learning)
        .address(mac.0.to_vec())
        .mtu(mtu);
    let message = match vxlan.local {
        Some(IpAddr::V4(ip)) => device.local(ip),
        Some(IpAddr::V6(ip)) => device.local6(ip),
        None => device,
    }
    .build();
    Request::create("create VXLAN device", name.to_owned(), NewLink(message))
}

/// Deletes a link, by index: a name may by now be another's.
pub fn delete(index: u32, name: &str) -> Request {
    Request::change("delete link", name.to_owned(), DelLink(indexed(index)))
}

/// Deletes all links of a group, in one go: the kernel's grace periods, which
/// are nearly all of the time that deleting takes, are waited for once.
pub fn delete_group(group: u32) -> Request {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::Group(group));
    let operation = "delete the links of group";
    Request::change(operation, group.to_string(), DelLink(message))
}

/// A message about the link with this index.
pub(super) fn indexed(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

/// A message about the link with this name.
pub(super) fn named(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    let name = LinkAttribute::IfName(name.to_owned());
    message.attributes.push(name);
    message
}

/// A change to a link, built step by step.
#[must_use]
#[derive(Debug, Clone)]
pub struct Change {
    object: String,
    message: LinkMessage,
}

impl Change {
    /// Of the link with this index; `name` is for errors.
    pub fn of(index: u32, name: &str) -> Self {
        Self {
            object: name.to_owned(),
            message: indexed(index),
        }
    }

    /// Of the link with this name, whatever its index.
    pub fn of_name(name: &str) -> Self {
        Self {
            object: name.to_owned(),
            message: named(name),
        }
    }

    fn attribute(mut self, attribute: LinkAttribute) -> Self {
        self.message.attributes.push(attribute);
        self
    }

    fn flag(mut self, flag: LinkFlags, on: bool) -> Self {
        self.message.header.change_mask |= flag;
        self.message.header.flags.set(flag, on);
        self
    }

    /// Switches it on.
    pub fn up(self) -> Self {
        self.flag(LinkFlags::Up, true)
    }

    /// Switches it off.
    pub fn down(self) -> Self {
        self.flag(LinkFlags::Up, false)
    }

    /// No ARP and no neighbour discovery on it.
    pub fn noarp(self) -> Self {
        self.flag(LinkFlags::Noarp, true)
    }

    /// MTU in bytes.
    pub fn mtu(self, mtu: u32) -> Self {
        self.attribute(LinkAttribute::Mtu(mtu))
    }

    /// MAC address.
    pub fn mac(self, mac: Mac) -> Self {
        self.attribute(LinkAttribute::Address(mac.0.to_vec()))
    }

    /// Group.
    pub fn group(self, group: u32) -> Self {
        self.attribute(LinkAttribute::Group(group))
    }

    /// Alias, at most 254 bytes: the kernel takes 255, the final zero of the
    /// message among them.
    pub fn alias(self, alias: &str) -> Self {
        self.attribute(LinkAttribute::IfAlias(alias.to_owned()))
    }

    /// A new name, for a [`Change::of`] an index.
    pub fn rename(self, name: &str) -> Self {
        self.attribute(LinkAttribute::IfName(name.to_owned()))
    }

    /// A port of no bridge, bond or VRF.
    pub fn without_master(self) -> Self {
        self.attribute(LinkAttribute::Controller(0))
    }

    /// With the carrier that a program has taken away, whatever reasons it has given.
    pub fn proto_up(self) -> Self {
        let reasons = vec![
            LinkProtocolDownReason::Mask(u32::MAX),
            LinkProtocolDownReason::Value(0),
        ];
        // The kernel takes the reasons first, and refuses this while there is one.
        self.attribute(LinkAttribute::ProtoDownReason(reasons))
            .attribute(LinkAttribute::ProtoDown(0))
    }

    /// No link-local IPv6 address when it comes up (`addr_gen_mode none`).
    pub fn without_link_local(self) -> Self {
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let settings = AfSpecUnspec::Inet6(vec![mode]);
        self.attribute(LinkAttribute::AfSpecUnspec(vec![settings]))
    }

    /// IPv4 as on a pod's gateway: it forwards, whatever new links take, and accepts no
    /// redirects. It sends none either, but where `net.ipv4.conf.all.send_redirects` is
    /// 1, which is the kernel's default, that counts for every link. (The kernel takes
    /// the IPv6 settings of this kind by files only.)
    pub fn as_ipv4_gateway(self) -> Self {
        let settings = [
            (IPV4_DEVCONF_FORWARDING, 1u32),
            (IPV4_DEVCONF_ACCEPT_REDIRECTS, 0),
            (IPV4_DEVCONF_SEND_REDIRECTS, 0),
        ];
        let settings = settings
            .into_iter()
            .flat_map(|(setting, value)| {
                // struct nlattr: length, kind; then the value.
                let header = [8u16.to_ne_bytes(), setting.to_ne_bytes()];
                header.into_iter().flatten().chain(value.to_ne_bytes())
            })
            .collect();
        let settings = AfSpecInet::Other(DefaultNla::new(IFLA_INET_CONF | NLA_F_NESTED, settings));
        let settings = AfSpecUnspec::Inet(vec![settings]);
        self.attribute(LinkAttribute::AfSpecUnspec(vec![settings]))
    }

    /// The request.
    pub fn request(self) -> Request {
        Request::change("change link", self.object, SetLink(self.message))
    }
}
