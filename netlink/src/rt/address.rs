//! Addresses of links.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage::{DelAddress, GetAddress, NewAddress};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};

use tweed_core::family::Family;

use crate::error::Error;
use crate::rt::{Request, Socket};

/// An address of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The link's index.
    pub index: u32,
    /// The address with the prefix length of its subnet.
    pub network: IpNetwork,
    /// Not yet shown to be unique on its link (IPv6), or found not to be.
    pub tentative: bool,
    /// A temporary (privacy) address of IPv6.
    pub temporary: bool,
}

impl Address {
    /// Decodes an address message; one without an address gives none.
    pub fn parse(message: &AddressMessage) -> Option<Self> {
        let mut local = None;
        let mut address = None;
        let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => local = Some(*ip),
                AddressAttribute::Address(ip) => address = Some(*ip),
                AddressAttribute::Flags(all) => flags = *all,
                _ => {}
            }
        }
        // On a point-to-point link IFA_ADDRESS is the far end's (if_addr.h).
        let ip = local.or(address)?;
        Some(Self {
            index: message.header.index,
            network: IpNetwork::new(ip, message.header.prefix_len).ok()?,
            tentative: flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed),
            // The same bit means "secondary" for IPv4.
            temporary: ip.is_ipv6() && flags.contains(AddressFlags::Secondary),
        })
    }
}

fn message(index: u32, network: IpNetwork) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(network.ip());
    message.header.prefix_len = network.prefix();
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Local(network.ip()),
        AddressAttribute::Address(network.ip()),
    ];
    message
}

/// Adds an address for use at once: no duplicate address detection, and no
/// route for its subnet.
pub fn add(index: u32, link: &str, network: IpNetwork) -> Request {
    let mut message = message(index, network);
    message.attributes.push(AddressAttribute::Flags(
        AddressFlags::Nodad | AddressFlags::Noprefixroute,
    ));
    let object = format!("{network} to {link}");
    Request::create("add address", object, NewAddress(message))
}

/// Removes an address.
pub fn delete(index: u32, link: &str, network: IpNetwork) -> Request {
    let object = format!("{network} of {link}");
    Request::change(
        "delete address",
        object,
        DelAddress(message(index, network)),
    )
}

/// All addresses of the namespace.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list(socket: &mut Socket) -> Result<Vec<Address>, Error> {
    dump(socket, AddressMessage::default(), "addresses".to_owned())
}

/// The addresses of one link; none if there is no such link.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn of_link(socket: &mut Socket, index: u32) -> Result<Vec<Address>, Error> {
    let mut message = AddressMessage::default();
    message.header.index = index;
    let object = format!("addresses of link number {index}");
    match dump(socket, message, object) {
        Err(error) if error.is_absent() => Ok(Vec::new()),
        addresses => {
            let mut addresses = addresses?;
            addresses.retain(|address| address.index == index);
            Ok(addresses)
        }
    }
}

fn dump(
    socket: &mut Socket,
    message: AddressMessage,
    object: String,
) -> Result<Vec<Address>, Error> {
    let objects = socket.dump(&Request::dump("list", object, GetAddress(message)))?;
    let address = |object: &_| match object {
        NewAddress(message) => Address::parse(message),
        _ => None,
    };
    Ok(objects.iter().filter_map(address).collect())
}

pub(crate) fn family(ip: IpAddr) -> AddressFamily {
    of_family(Family::of(ip))
}

pub(crate) fn of_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}
