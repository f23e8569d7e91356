//! The way that packets to an address take: what the kernel answers when it is asked
//! for one destination.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage::{GetRoute, NewRoute};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteMetric};
use nix::errno::Errno;

use crate::error::{Cause, Error};
use crate::rt::{Request, Socket, address::family, route::Route};

/// The route that packets to an address take.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path {
    /// Indices of the links that they leave by: several, where the route has several
    /// next hops.
    pub out: Vec<u32>,
    /// The route's own MTU, in bytes, where it has one. What routers on the way have
    /// said is not in it: that passes.
    pub mtu: Option<u32>,
}

impl Path {
    fn parse(message: &RouteMessage) -> Self {
        let mut path = Self::default();
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Oif(index) => path.out.push(*index),
                RouteAttribute::MultiPath(hops) => {
                    path.out.extend(hops.iter().map(|hop| hop.interface_index));
                }
                RouteAttribute::Metrics(metrics) => {
                    path.mtu = metrics.iter().find_map(|metric| match metric {
                        RouteMetric::Mtu(mtu) => Some(*mtu),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        path
    }
}

/// The route that packets to `to` take, with `from` as their source where one is given;
/// none if the kernel has no way there.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn to(socket: &mut Socket, to: IpAddr, from: Option<IpAddr>) -> Result<Option<Path>, Error> {
    // The entry of the table itself, and not what was made of it for this destination.
    let request = request(to, from, None, RouteFlags::FibMatch);
    match socket.get(&request) {
        Ok(NewRoute(message)) => Ok(Some(Path::parse(&message))),
        Ok(_) => Ok(None),
        // Not an answer to the question.
        Err(error) if matches!(error.errno(), Some(Errno::ENOMEM | Errno::ENOBUFS)) => Err(error),
        // Unreachable, prohibited, or from an address that this machine has not.
        Err(Error {
            cause: Cause::Kernel { .. },
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The route that a packet to `to` would take, whatever table it is in: the kernel asks its
/// routing rules. With a `from`, for packets that have it. It is one that comes in by the
/// link `incoming`, or otherwise one of this host, which must have the address `from`.
///
/// # Errors
/// There is none, or it refuses such packets, or the kernel cannot be asked.
pub fn lookup(
    socket: &mut Socket,
    to: IpAddr,
    from: Option<IpAddr>,
    incoming: Option<u32>,
) -> Result<Option<Route>, Error> {
    // IPv6 gives the table without being asked, and knows no such flag.
    let flags = match to {
        IpAddr::V4(_) => RouteFlags::LookupTable,
        IpAddr::V6(_) => RouteFlags::empty(),
    };
    let request = request(to, from, incoming, flags);
    let NewRoute(mut answer) = socket.get(&request)? else {
        return Ok(None);
    };
    // The answer repeats the source that was asked for.
    answer.header.source_prefix_length = 0;
    Ok(Route::parse(&answer))
}

fn request(to: IpAddr, from: Option<IpAddr>, incoming: Option<u32>, flags: RouteFlags) -> Request {
    let whole = if to.is_ipv4() { 32 } else { 128 };
    let mut message = RouteMessage::default();
    message.header.address_family = family(to);
    message.header.destination_prefix_length = whole;
    message.header.flags = flags;
    message
        .attributes
        .push(RouteAttribute::Destination(to.into()));
    if let Some(from) = from {
        message.header.source_prefix_length = whole;
        message.attributes.push(RouteAttribute::Source(from.into()));
    }
    message.attributes.extend(incoming.map(RouteAttribute::Iif));
    Request::get("look up", format!("the route to {to}"), GetRoute(message))
}
