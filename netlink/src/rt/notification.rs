//! What the kernel's notifications say.

use netlink_packet_route::RouteNetlinkMessage;

use super::route::Route;
use super::{Rtnetlink, address::Address, fdb::Fdb, link::Link, neighbour::Neighbour};
use crate::monitor::Notify;

/// A change of one object, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// A link is new or changed.
    Link(Box<Link>),
    /// A link was removed.
    LinkRemoved(Box<Link>),
    /// An address is new or changed.
    Address(Address),
    /// An address was removed.
    AddressRemoved(Address),
    /// A route is new or changed.
    Route(Route),
    /// A route was removed.
    RouteRemoved(Route),
    /// A neighbour is new or changed.
    Neighbour(Neighbour),
    /// A neighbour was removed.
    NeighbourRemoved(Neighbour),
    /// An FDB entry is new or changed.
    Fdb(Fdb),
    /// An FDB entry was removed.
    FdbRemoved(Fdb),
    /// Notifications were lost: look at everything again.
    Overflow,
}

impl Notify for Rtnetlink {
    // RTNLGRP_* of include/uapi/linux/rtnetlink.h.
    const GROUPS: &'static [u32] = &[
        1,  // LINK
        3,  // NEIGH, FDB entries among them
        5,  // IPV4_IFADDR
        7,  // IPV4_ROUTE
        9,  // IPV6_IFADDR
        11, // IPV6_ROUTE
    ];
    /// Room for some thousand changes.
    const BUFFER: usize = 4 * 1024 * 1024;
    type Notification = Notification;

    fn lost() -> Notification {
        Notification::Overflow
    }

    /// What cannot be decoded is of a kind that tweed does not make: ignored.
    fn read(_: u32, message: Option<RouteNetlinkMessage>) -> Option<Notification> {
        notification(&message?)
    }
}

fn notification(object: &RouteNetlinkMessage) -> Option<Notification> {
    Some(match object {
        RouteNetlinkMessage::NewLink(m) => Notification::Link(Box::new(Link::parse(m))),
        RouteNetlinkMessage::DelLink(m) => Notification::LinkRemoved(Box::new(Link::parse(m))),
        RouteNetlinkMessage::NewAddress(m) => Notification::Address(Address::parse(m)?),
        RouteNetlinkMessage::DelAddress(m) => Notification::AddressRemoved(Address::parse(m)?),
        RouteNetlinkMessage::NewRoute(m) => Notification::Route(Route::parse(m)?),
        RouteNetlinkMessage::DelRoute(m) => Notification::RouteRemoved(Route::parse(m)?),
        RouteNetlinkMessage::NewNeighbour(m) => match Fdb::parse(m) {
            Some(entry) => Notification::Fdb(entry),
            None => Notification::Neighbour(Neighbour::parse(m)?),
        },
        RouteNetlinkMessage::DelNeighbour(m) => match Fdb::parse(m) {
            Some(entry) => Notification::FdbRemoved(entry),
            None => Notification::NeighbourRemoved(Neighbour::parse(m)?),
        },
        _ => return None,
    })
}
