//! Neighbours (which MAC has an address) and FDB entries (behind which VTEP is
//! a MAC): the kernel keeps both behind the same messages.

use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::address::family;
use crate::error::Error;
use crate::request::Request;
use crate::socket::Socket;

/// A neighbour of a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// The link's index.
    pub index: u32,
    /// The neighbour's address.
    pub ip: IpAddr,
    /// Its MAC, where known.
    pub mac: Option<[u8; 6]>,
    /// Never asked for again and never forgotten.
    pub permanent: bool,
}

impl Neighbour {
    /// Decodes a neighbour message of an IP family.
    #[must_use]
    pub fn parse(message: &NeighbourMessage) -> Option<Self> {
        let mut ip = None;
        let mut mac = None;
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
                    ip = Some(IpAddr::V4(*address));
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
                    ip = Some(IpAddr::V6(*address));
                }
                NeighbourAttribute::LinkLayerAddress(bytes) => {
                    mac = bytes.as_slice().try_into().ok()
                }
                _ => {}
            }
        }
        Some(Self {
            index: message.header.ifindex,
            ip: ip?,
            mac,
            permanent: message.header.state == NeighbourState::Permanent,
        })
    }
}

/// An FDB entry of a VXLAN device itself (`self`, not a bridge's).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fdb {
    /// The VXLAN device's index.
    pub index: u32,
    /// Inner destination MAC.
    pub mac: [u8; 6],
    /// Outer destination address.
    pub destination: Option<IpAddr>,
    /// Never ages.
    pub permanent: bool,
    /// Whether it has more than is said here: a UDP port, a VNI or a lower
    /// device of its own.
    pub more: bool,
}

impl Fdb {
    /// Decodes a neighbour message of the bridge family.
    #[must_use]
    pub fn parse(message: &NeighbourMessage) -> Option<Self> {
        if message.header.family != AddressFamily::Bridge
            || !message.header.flags.contains(NeighbourFlags::Own)
        {
            return None;
        }
        let mut mac = None;
        let mut destination = None;
        let mut more = false;
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::LinkLayerAddress(bytes) => {
                    mac = bytes.as_slice().try_into().ok()
                }
                NeighbourAttribute::Destination(address) => destination = outer_address(address),
                NeighbourAttribute::Port(_)
                | NeighbourAttribute::Vni(_)
                | NeighbourAttribute::IfIndex(_) => more = true,
                _ => {}
            }
        }
        Some(Self {
            index: message.header.ifindex,
            mac: mac?,
            destination,
            permanent: message.header.state == NeighbourState::Permanent,
            more,
        })
    }
}

/// The bridge family says nothing of the outer address's family: the bytes do.
fn outer_address(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(ip) => Some((*ip).into()),
        NeighbourAddress::Inet6(ip) => Some((*ip).into()),
        NeighbourAddress::Other(bytes) => <[u8; 4]>::try_from(bytes.as_slice())
            .map(IpAddr::from)
            .or_else(|_| <[u8; 16]>::try_from(bytes.as_slice()).map(IpAddr::from))
            .ok(),
        _ => None,
    }
}

fn neighbour_message(index: u32, ip: IpAddr, mac: Option<[u8; 6]>) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(ip);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message
        .attributes
        .push(NeighbourAttribute::Destination(match ip {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        }));
    message
        .attributes
        .extend(mac.map(|mac| NeighbourAttribute::LinkLayerAddress(mac.to_vec())));
    message
}

/// Sets a permanent neighbour, whatever the link knew of the address before.
#[must_use]
pub fn set(index: u32, link: &str, ip: IpAddr, mac: [u8; 6]) -> Request {
    Request::replace(
        "set neighbour",
        format!("{ip} on {link}"),
        RouteNetlinkMessage::NewNeighbour(neighbour_message(index, ip, Some(mac))),
    )
}

/// Deletes a neighbour.
#[must_use]
pub fn delete(index: u32, link: &str, ip: IpAddr) -> Request {
    Request::change(
        "delete neighbour",
        format!("{ip} on {link}"),
        RouteNetlinkMessage::DelNeighbour(neighbour_message(index, ip, None)),
    )
}

fn fdb_message(index: u32, mac: [u8; 6], destination: Option<IpAddr>) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.header.flags = NeighbourFlags::Own;
    message
        .attributes
        .push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
    message.attributes.extend(destination.map(|ip| {
        NeighbourAttribute::Destination(match ip {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        })
    }));
    message
}

/// Sets where frames for a MAC go: one place, permanently.
#[must_use]
pub fn set_fdb(index: u32, link: &str, mac: [u8; 6], destination: IpAddr) -> Request {
    Request::replace(
        "set FDB entry",
        format!("{} to {destination} on {link}", mac_text(mac)),
        RouteNetlinkMessage::NewNeighbour(fdb_message(index, mac, Some(destination))),
    )
}

/// Deletes all FDB entries of a MAC, or the one to `destination`.
#[must_use]
pub fn delete_fdb(index: u32, link: &str, mac: [u8; 6], destination: Option<IpAddr>) -> Request {
    Request::change(
        "delete FDB entry",
        format!("{} on {link}", mac_text(mac)),
        RouteNetlinkMessage::DelNeighbour(fdb_message(index, mac, destination)),
    )
}

/// The neighbours of one link, both families.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list(socket: &mut Socket, index: u32) -> Result<Vec<Neighbour>, Error> {
    let mut neighbours = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        neighbours.extend(
            dump(socket, family, Some(index), "neighbours")?
                .iter()
                .filter_map(Neighbour::parse)
                .filter(|neighbour| neighbour.index == index),
        );
    }
    Ok(neighbours)
}

/// The neighbours of all links, both families: one dump each, whatever the
/// number of links.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list_all(socket: &mut Socket) -> Result<Vec<Neighbour>, Error> {
    let mut neighbours = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        neighbours.extend(
            dump(socket, family, None, "neighbours")?
                .iter()
                .filter_map(Neighbour::parse),
        );
    }
    Ok(neighbours)
}

/// The FDB entries of one VXLAN device.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list_fdb(socket: &mut Socket, index: u32) -> Result<Vec<Fdb>, Error> {
    Ok(
        dump(socket, AddressFamily::Bridge, Some(index), "FDB entries")?
            .iter()
            .filter_map(Fdb::parse)
            .filter(|entry| entry.index == index)
            .collect(),
    )
}

fn dump(
    socket: &mut Socket,
    family: AddressFamily,
    index: Option<u32>,
    what: &str,
) -> Result<Vec<NeighbourMessage>, Error> {
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message
        .attributes
        .extend(index.map(NeighbourAttribute::IfIndex));
    let request = Request::dump(
        "list",
        match index {
            Some(index) => format!("{what} of link number {index}"),
            None => what.to_owned(),
        },
        RouteNetlinkMessage::GetNeighbour(message),
    );
    Ok(socket
        .dump(&request)?
        .into_iter()
        .filter_map(|object| match object {
            RouteNetlinkMessage::NewNeighbour(message) => Some(message),
            _ => None,
        })
        // A kernel without the family answers for all of them.
        .filter(|message| message.header.family == family)
        .collect())
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
