//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage::{DelRoute, GetRoute, NewRoute};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
    RouteType,
};
use nix::errno::Errno;

use crate::rt::{Request, Socket};
use crate::{error::Error, rt::address::family};

/// The main table (`RT_TABLE_MAIN`).
pub const MAIN_TABLE: u32 = 254;
/// Metric of an IPv6 route that is given none (`IP6_RT_PRIO_USER`).
pub const IPV6_DEFAULT_METRIC: u32 = 1024;
/// `RTPROT_KERNEL`: routes that the kernel makes for a link's addresses.
pub const KERNEL_PROTOCOL: u8 = 2;

/// What the kernel does with a packet that follows the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It is forwarded.
    Unicast,
    /// Its sender gets an ICMP error: unreachable.
    Unreachable,
    /// Anything else (local, broadcast, blackhole, …): the kernel's number.
    Other(u8),
}

/// A route with at most one next hop.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Destination.
    pub destination: IpNetwork,
    /// Table.
    pub table: u32,
    /// What the kernel does with packets.
    pub kind: Kind,
    /// The program that made it (`rtm_protocol`).
    pub protocol: u8,
    /// Whether the destination is on the link itself (`scope link`); IPv6 has
    /// no scopes, there it is so when there is no gateway.
    pub link_scope: bool,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// The gateway is taken to be on the link, whatever the addresses say.
    pub onlink: bool,
    /// Index of the link that packets leave by.
    pub out: Option<u32>,
    /// Source address of packets of this host.
    pub source: Option<IpAddr>,
    /// Metric; 0 for the family's default.
    pub metric: u32,
    /// Whether it has attributes that are not in this type, and so is not a route
    /// that tweed makes: several next hops, metrics such as an MTU, an encapsulation.
    pub more: bool,
}

impl Route {
    /// A route of the main table to be filled in: unicast, no next hop.
    #[must_use]
    pub fn to(destination: IpNetwork, protocol: u8) -> Self {
        Self {
            destination,
            table: MAIN_TABLE,
            kind: Kind::Unicast,
            protocol,
            link_scope: false,
            gateway: None,
            onlink: false,
            out: None,
            source: None,
            metric: 0,
            more: false,
        }
    }

    /// Decodes a route message of an IP family. None for a route of one TOS or of some
    /// sources only: such routes exist beside those for all packets, and tweed makes
    /// none.
    #[must_use]
    pub fn parse(message: &RouteMessage) -> Option<Self> {
        let header = &message.header;
        let unspecified: IpAddr = match header.address_family {
            AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
            AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => return None,
        };
        if header.tos != 0 || header.source_prefix_length != 0 {
            return None;
        }
        let mut destination = unspecified;
        let mut route = Self {
            table: header.table.into(),
            kind: match header.kind {
                RouteType::Unicast => Kind::Unicast,
                RouteType::Unreachable => Kind::Unreachable,
                other => Kind::Other(other.into()),
            },
            protocol: header.protocol.into(),
            link_scope: header.scope == RouteScope::Link,
            onlink: header.flags.contains(RouteFlags::Onlink),
            ..Self::to(IpNetwork::from(unspecified), 0)
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(address) => destination = ip(address)?,
                RouteAttribute::Gateway(address) => route.gateway = Some(ip(address)?),
                RouteAttribute::PrefSource(address) => route.source = Some(ip(address)?),
                RouteAttribute::Oif(index) => route.out = Some(*index),
                RouteAttribute::Priority(metric) => route.metric = *metric,
                RouteAttribute::Table(table) => route.table = *table,
                RouteAttribute::MultiPath(_)
                | RouteAttribute::Via(_)
                | RouteAttribute::Metrics(_)
                | RouteAttribute::NhId(_)
                | RouteAttribute::Realm(_)
                | RouteAttribute::EncapType(_) => route.more = true,
                _ => {}
            }
        }
        if unspecified.is_ipv6() && route.metric == IPV6_DEFAULT_METRIC {
            route.metric = 0;
        }
        if route.kind == Kind::Unreachable {
            // The kernel gives IPv6 unreachable routes the link `lo`.
            route.out = None;
        }
        route.destination = IpNetwork::new(destination, header.destination_prefix_length).ok()?;
        Some(route)
    }

    fn message(&self) -> RouteMessage {
        let header = RouteHeader {
            address_family: family(self.destination.ip()),
            destination_prefix_length: self.destination.prefix(),
            // Numbers over 255 stand in the attribute alone (rtnetlink(7)).
            table: u8::try_from(self.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
            protocol: RouteProtocol::from(self.protocol),
            scope: match self.destination.ip() {
                IpAddr::V4(_) if self.link_scope => RouteScope::Link,
                _ => RouteScope::Universe,
            },
            kind: match self.kind {
                Kind::Unicast => RouteType::Unicast,
                Kind::Unreachable => RouteType::Unreachable,
                Kind::Other(number) => RouteType::from(number),
            },
            flags: match self.onlink {
                true => RouteFlags::Onlink,
                false => RouteFlags::empty(),
            },
            ..RouteHeader::default()
        };
        let mut attributes = vec![RouteAttribute::Table(self.table)];
        if self.destination.prefix() > 0 {
            let network = self.destination.network();
            attributes.push(RouteAttribute::Destination(network.into()));
        }
        attributes.extend(self.gateway.map(|ip| RouteAttribute::Gateway(ip.into())));
        attributes.extend(self.source.map(|ip| RouteAttribute::PrefSource(ip.into())));
        attributes.extend(self.out.map(RouteAttribute::Oif));
        if self.metric != 0 {
            attributes.push(RouteAttribute::Priority(self.metric));
        }
        let mut message = RouteMessage::default();
        message.header = header;
        message.attributes = attributes;
        message
    }
}

impl std::fmt::Display for Route {
    /// As `ip route` would write it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.kind == Kind::Unreachable {
            write!(f, "unreachable ")?;
        }
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(index) = self.out {
            write!(f, " dev number {index}")?;
        }
        Ok(())
    }
}

/// Adds a route; an error if one with the same destination and metric exists.
pub fn add(route: &Route) -> Request {
    Request::create("add route", route.to_string(), NewRoute(route.message()))
}

/// Replaces the route with the same destination and metric, whoever made that one:
/// the caller has to look first.
pub fn replace(route: &Route) -> Request {
    let message = NewRoute(route.message());
    Request::replace("replace route", route.to_string(), message)
}

/// Deletes a route, only if it agrees with all that `route` says.
pub fn delete(route: &Route) -> Request {
    let mut message = route.message();
    if route.kind == Kind::Unicast && route.gateway.is_none() && !route.link_scope {
        message.header.scope = RouteScope::NoWhere;
    }
    Request::change("delete route", route.to_string(), DelRoute(message))
}

/// The routes of the main table, of one protocol or of all, of both families.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn list(socket: &mut Socket, protocol: Option<u8>) -> Result<Vec<Route>, Error> {
    let mut routes = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.protocol = RouteProtocol::from(protocol.unwrap_or(0));
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        let request = Request::dump("list", "routes".to_owned(), GetRoute(message));
        let objects = match socket.dump(&request) {
            Ok(objects) => objects,
            // A table without a route yet, or a kernel without IPv6.
            Err(error) if matches!(error.errno(), Some(Errno::ENOENT | Errno::EOPNOTSUPP)) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        // The kernel may ignore the filter in the request (old family handlers do),
        // and a kernel without IPv6 answers for all families.
        routes.extend(
            objects
                .iter()
                .filter_map(|object| match object {
                    NewRoute(message) => Route::parse(message),
                    _ => None,
                })
                .filter(|route| self::family(route.destination.ip()) == family)
                .filter(|route| route.table == MAIN_TABLE)
                .filter(|route| protocol.is_none_or(|protocol| route.protocol == protocol)),
        );
    }
    Ok(routes)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
