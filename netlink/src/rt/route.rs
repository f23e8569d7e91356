//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage::{DelRoute, GetRoute, NewRoute};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHop,
    RouteNextHopFlags, RouteProtocol, RouteScope, RouteType,
};
use nix::errno::Errno;
use tweed_core::family::Family;

use crate::error::Error;
use crate::rt::address::{family, of_family};
use crate::rt::{Request, Socket};

/// The main table (`RT_TABLE_MAIN`).
pub const MAIN_TABLE: u32 = 254;
/// The table of the machine's own addresses (`RT_TABLE_LOCAL`).
pub const LOCAL_TABLE: u32 = 255;
/// Index of the link `lo`.
const LOOPBACK: u32 = 1;
/// Any table (`RT_TABLE_UNSPEC`).
const UNSPECIFIED_TABLE: u32 = 0;
/// Metric of an IPv6 route that is given none (`IP6_RT_PRIO_USER`).
pub const IPV6_DEFAULT_METRIC: u32 = 1024;
/// `RTPROT_KERNEL`: routes that the kernel makes for a link's addresses.
pub const KERNEL_PROTOCOL: u8 = 2;
/// `RTPROT_STATIC`: routes that a person has written, for a program that sets up links.
pub const STATIC_PROTOCOL: u8 = 4;
/// `RTPROT_RA`: routes that a program has made of router advertisements.
pub const RA_PROTOCOL: u8 = 9;
/// `RTPROT_DHCP`: routes that a program has from a DHCP server.
pub const DHCP_PROTOCOL: u8 = 16;
/// `RTPROT_UNSPEC`: any protocol, or one that is not known.
pub const UNSPECIFIED: u8 = 0;

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

    /// As [`Route::parse`]; an IPv6 route with several next hops gives one for each.
    /// That is what they are to the kernel, which adds and deletes each by itself and
    /// shows them as one, with the protocol of the first.
    pub fn parse_each(message: &RouteMessage) -> Vec<Self> {
        let hops = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                RouteAttribute::MultiPath(hops) => Some(hops),
                _ => None,
            });
        let Some(hops) = hops.filter(|_| message.header.address_family == AddressFamily::Inet6)
        else {
            return Self::parse(message).into_iter().collect();
        };
        let mut common = message.clone();
        (common.attributes).retain(|attribute| !matches!(attribute, RouteAttribute::MultiPath(_)));
        let Some(common) = Self::parse(&common) else {
            return Vec::new();
        };
        let gateway = |hop: &RouteNextHop| {
            hop.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Gateway(address) => ip(address),
                _ => None,
            })
        };
        let each = hops.iter().map(|hop| Self {
            gateway: gateway(hop),
            out: Some(hop.interface_index),
            onlink: hop.flags.contains(RouteNextHopFlags::Onlink),
            ..common.clone()
        });
        each.collect()
    }

    /// The route by which this machine has the address `destination` without any link that
    /// has it: of the link `lo`, in the table of the machine's own addresses.
    pub fn local(destination: IpNetwork, protocol: u8) -> Self {
        Self {
            table: LOCAL_TABLE,
            kind: Kind::Other(RouteType::Local.into()),
            out: Some(LOOPBACK),
            ..Self::to(destination, protocol)
        }
    }

    fn message(&self) -> RouteMessage {
        let header = RouteHeader {
            address_family: family(self.destination.ip()),
            destination_prefix_length: self.destination.prefix(),
            table: header_table(self.table),
            protocol: RouteProtocol::from(self.protocol),
            scope: match self.destination.ip() {
                IpAddr::V4(_) if self.link_scope => RouteScope::Link,
                // The kernel takes one to itself with no wider scope.
                IpAddr::V4(_) if self.kind == Kind::Other(RouteType::Local.into()) => {
                    RouteScope::Host
                }
                _ => RouteScope::Universe,
            },
            kind: match self.kind {
                Kind::Unicast => RouteType::Unicast,
                Kind::Unreachable => RouteType::Unreachable,
                Kind::Other(number) => RouteType::from(number),
            },
            flags: if self.onlink {
                RouteFlags::Onlink
            } else {
                RouteFlags::empty()
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
        f.write_str(match self.kind {
            Kind::Unicast => "",
            Kind::Unreachable => "unreachable ",
            Kind::Other(number) => match RouteType::from(number) {
                RouteType::Local => "local ",
                RouteType::BlackHole => "blackhole ",
                RouteType::Prohibit => "prohibit ",
                _ => "",
            },
        })?;
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

/// Adds a route; an error if one with the same destination and metric exists, whoever
/// made it.
pub fn add(route: &Route) -> Request {
    Request::create("add route", route.to_string(), NewRoute(route.message()))
}

/// Requests, of which the later ones depend on the answers to the first.
#[derive(Debug, Default)]
pub struct Sequence {
    /// To be sent in this order.
    pub first: Vec<Request>,
    /// Has to follow once all of these are acknowledged.
    pub then: Option<Request>,
    /// Has to follow if one of them is refused: it puts back what they took away.
    pub undo: Option<Request>,
}

/// The requests that put `new` in the place of `old`, which has the same key. The
/// kernel's own replacement takes the first route of the key, whoever made that one: it
/// may have come in front of `old` at this very moment.
///
/// IPv4 has both routes for a moment, so that no packet is without one. IPv6 would make
/// `new` a second next hop of `old`, or refuse it where it has the same next hop: there
/// `old` is deleted first. Where somebody else has a next hop beside it, `new` becomes one
/// beside that: the kernel has no replacement of one next hop of several.
pub fn replace(old: &Route, new: &Route) -> Sequence {
    if new.destination.is_ipv4() {
        Sequence {
            first: vec![append(new)],
            then: Some(delete(old)),
            undo: None,
        }
    } else {
        Sequence {
            first: vec![delete(old), append(new)],
            then: None,
            undo: Some(append(old)),
        }
    }
}

/// Adds a route behind those that have the same destination and metric; an error if
/// an equal one exists.
pub fn append(route: &Route) -> Request {
    Request::append("add route", route.to_string(), NewRoute(route.message()))
}

/// Deletes a route, only if it agrees with all that `route` says. To the kernel, a deletion
/// without a metric is one of any metric: IPv6 is told its default, and IPv4 has none to be
/// told. There a route of another metric goes, alike in all else and so of the same
/// protocol, if the one without has gone already.
pub fn delete(route: &Route) -> Request {
    let mut message = route.message();
    if route.metric == 0 && route.destination.is_ipv6() {
        let metric = RouteAttribute::Priority(IPV6_DEFAULT_METRIC);
        message.attributes.push(metric);
    }
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
    find(socket, protocol, |_| true)
}

/// As [`list`], only those that `is_wanted` picks; no others are held: a machine may
/// have hundreds of thousands.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn find(
    socket: &mut Socket,
    protocol: Option<u8>,
    is_wanted: impl Fn(&Route) -> bool,
) -> Result<Vec<Route>, Error> {
    // The kernel may ignore the filter in the request, as old family handlers do.
    let filter = Filter {
        table: MAIN_TABLE,
        protocol,
        out: None,
    };
    dump_both(socket, &filter, |route| {
        route.table == MAIN_TABLE && is_wanted(route)
    })
}

/// The routes of one protocol in the table of the machine's own addresses, of both families.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn local(socket: &mut Socket, protocol: u8) -> Result<Vec<Route>, Error> {
    let filter = Filter {
        table: LOCAL_TABLE,
        protocol: Some(protocol),
        out: None,
    };
    dump_both(socket, &filter, |route| route.table == LOCAL_TABLE)
}

/// The routes of one table and family that `is_wanted` picks.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn in_table(
    socket: &mut Socket,
    table: u32,
    family: Family,
    is_wanted: impl Fn(&Route) -> bool,
) -> Result<Vec<Route>, Error> {
    let filter = Filter {
        table,
        protocol: None,
        out: None,
    };
    dump(socket, family, &filter, |route| {
        route.table == table && is_wanted(route)
    })
}

/// The routes of the main table out of one link; none if there is no such link. The
/// kernel picks them.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn main_of_link(socket: &mut Socket, index: u32) -> Result<Vec<Route>, Error> {
    let filter = Filter {
        table: MAIN_TABLE,
        protocol: None,
        out: Some(index),
    };
    dump_both(socket, &filter, |route| route.table == MAIN_TABLE)
}

/// The routes out of a link, in every table but that of the machine's own addresses,
/// where the kernel has one for each address of the link.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn of_link(socket: &mut Socket, index: u32) -> Result<Vec<Route>, Error> {
    let filter = Filter {
        table: UNSPECIFIED_TABLE,
        protocol: None,
        out: None,
    };
    dump_both(socket, &filter, |route| {
        route.table != LOCAL_TABLE && route.out == Some(index)
    })
}

/// Which routes the kernel is asked for. It may ignore the protocol and the link.
struct Filter {
    table: u32,
    protocol: Option<u8>,
    out: Option<u32>,
}

fn dump_both(
    socket: &mut Socket,
    filter: &Filter,
    is_wanted: impl Fn(&Route) -> bool,
) -> Result<Vec<Route>, Error> {
    let mut routes = dump(socket, Family::V4, filter, &is_wanted)?;
    routes.extend(dump(socket, Family::V6, filter, &is_wanted)?);
    Ok(routes)
}

fn dump(
    socket: &mut Socket,
    family: Family,
    filter: &Filter,
    is_wanted: impl Fn(&Route) -> bool,
) -> Result<Vec<Route>, Error> {
    let &Filter {
        table,
        protocol,
        out,
    } = filter;
    let mut message = RouteMessage::default();
    message.header.address_family = of_family(family);
    message.header.protocol = RouteProtocol::from(protocol.unwrap_or(UNSPECIFIED));
    message.header.table = header_table(table);
    if table != UNSPECIFIED_TABLE {
        message.attributes.push(RouteAttribute::Table(table));
    }
    message.attributes.extend(out.map(RouteAttribute::Oif));
    let request = Request::dump("list", "routes".to_owned(), GetRoute(message));
    // A kernel without IPv6 answers for all families.
    let is_one = |route: &Route| {
        Family::of(route.destination.ip()) == family
            && protocol.is_none_or(|protocol| route.protocol == protocol)
            && (out.is_none() || route.out == out)
            && is_wanted(route)
    };
    let keep = |object, routes: &mut Vec<Route>| {
        if let NewRoute(message) = object {
            routes.extend(Route::parse_each(&message).into_iter().filter(is_one));
        }
    };
    match socket.dump_into(&request, keep) {
        // A table without a route yet, or a kernel without IPv6.
        Err(error) if matches!(error.errno(), Some(Errno::ENOENT | Errno::EOPNOTSUPP)) => {
            Ok(Vec::new())
        }
        Err(error) if out.is_some() && error.is_absent() => Ok(Vec::new()),
        other => other,
    }
}

/// Numbers over 255 stand in the attribute alone (rtnetlink(7)).
fn header_table(table: u32) -> u8 {
    u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
