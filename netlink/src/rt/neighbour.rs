//! Neighbours: which MAC has an address on a link.

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage::{DelNeighbour, GetNeighbour, NewNeighbour};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};

use crate::{error::Error, rt::address::family};
use tweed_core::mac::Mac;

use crate::rt::{Request, Socket};

/// A neighbour of a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// The link's index.
    pub index: u32,
    /// The neighbour's address.
    pub ip: IpAddr,
    /// Its MAC, where known.
    pub mac: Option<Mac>,
    /// Never asked for again and never forgotten.
    pub permanent: bool,
}

impl Neighbour {
    /// Decodes a neighbour message of an IP family.
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
                    mac = bytes.as_slice().try_into().ok().map(Mac)
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

fn neighbour_message(index: u32, ip: IpAddr, mac: Option<Mac>) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(ip);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.attributes.push(destination(ip));
    let link_address = mac.map(|mac| NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
    message.attributes.extend(link_address);
    message
}

pub(super) fn destination(ip: IpAddr) -> NeighbourAttribute {
    NeighbourAttribute::Destination(match ip {
        IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
        IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
    })
}

/// Sets a permanent neighbour, whatever the link knew of the address before.
pub fn set(index: u32, link: &str, ip: IpAddr, mac: Mac) -> Request {
    let message = NewNeighbour(neighbour_message(index, ip, Some(mac)));
    Request::replace("set neighbour", format!("{ip} on {link}"), message)
}

/// Deletes a neighbour.
pub fn delete(index: u32, link: &str, ip: IpAddr) -> Request {
    let message = DelNeighbour(neighbour_message(index, ip, None));
    Request::change("delete neighbour", format!("{ip} on {link}"), message)
}

/// The neighbours of one link, both families.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list(socket: &mut Socket, index: u32) -> Result<Vec<Neighbour>, Error> {
    let mut neighbours = dump_both(socket, Some(index))?;
    neighbours.retain(|neighbour| neighbour.index == index);
    Ok(neighbours)
}

/// The neighbours of all links, both families: one dump each, whatever the
/// number of links.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list_all(socket: &mut Socket) -> Result<Vec<Neighbour>, Error> {
    dump_both(socket, None)
}

fn dump_both(socket: &mut Socket, index: Option<u32>) -> Result<Vec<Neighbour>, Error> {
    let mut dumped = dump(socket, AddressFamily::Inet, index, "neighbours")?;
    dumped.extend(dump(socket, AddressFamily::Inet6, index, "neighbours")?);
    Ok(dumped.iter().filter_map(Neighbour::parse).collect())
}

pub(super) fn dump(
    socket: &mut Socket,
    family: AddressFamily,
    index: Option<u32>,
    what: &str,
) -> Result<Vec<NeighbourMessage>, Error> {
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    let link = index.map(NeighbourAttribute::IfIndex);
    message.attributes.extend(link);
    let object = match index {
        Some(index) => format!("{what} of link number {index}"),
        None => what.to_owned(),
    };
    let objects = socket.dump(&Request::dump("list", object, GetNeighbour(message)))?;
    // A kernel without the family answers for all of them.
    let neighbour = |object| match object {
        NewNeighbour(message) if message.header.family == family => Some(message),
        _ => None,
    };
    Ok(objects.into_iter().filter_map(neighbour).collect())
}
