//! Neighbours: which MAC has an address on a link.

use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::rt::address::family;
use tweed_core::mac::Mac;

use crate::error::Error;
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
    message
        .attributes
        .push(NeighbourAttribute::Destination(match ip {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        }));
    message
        .attributes
        .extend(mac.map(|mac| NeighbourAttribute::LinkLayerAddress(mac.0.to_vec())));
    message
}

/// Sets a permanent neighbour, whatever the link knew of the address before.
#[must_use]
pub fn set(index: u32, link: &str, ip: IpAddr, mac: Mac) -> Request {
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

pub(super) fn dump(
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
