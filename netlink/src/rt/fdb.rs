//! FDB entries of VXLAN devices: behind which VTEP is a MAC. The kernel uses the
//! messages of neighbours for them.

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage::{DelNeighbour, NewNeighbour};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use tweed_core::mac::Mac;

use crate::error::Error;
use crate::rt::{Request, Socket, neighbour};

/// An FDB entry of a VXLAN device itself (`self`, not a bridge's).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fdb {
    /// The VXLAN device's index.
    pub index: u32,
    /// Inner destination MAC.
    pub mac: Mac,
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
                    mac = bytes.as_slice().try_into().ok().map(Mac)
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

fn message(index: u32, mac: Mac) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.header.flags = NeighbourFlags::Own;
    let mac = NeighbourAttribute::LinkLayerAddress(mac.0.to_vec());
    message.attributes.push(mac);
    message
}

/// Sets where frames for a MAC go: one place, permanently.
pub fn set(index: u32, link: &str, mac: Mac, destination: IpAddr) -> Request {
    let object = format!("{mac} to {destination} on {link}");
    let mut message = message(index, mac);
    message.attributes.push(neighbour::destination(destination));
    Request::replace("set FDB entry", object, NewNeighbour(message))
}

/// Deletes all FDB entries of a MAC.
pub fn delete(index: u32, link: &str, mac: Mac) -> Request {
    let message = DelNeighbour(message(index, mac));
    Request::change("delete FDB entry", format!("{mac} on {link}"), message)
}

/// The FDB entries of one VXLAN device.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list(socket: &mut Socket, index: u32) -> Result<Vec<Fdb>, Error> {
    let dump = neighbour::dump(socket, AddressFamily::Bridge, Some(index), "FDB entries")?;
    let entries = dump.iter().filter_map(Fdb::parse);
    Ok(entries.filter(|entry| entry.index == index).collect())
}
