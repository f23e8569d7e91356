//! Which steps make an attachment, in which order, and why in that order.
//!
//! Pure: from names, addresses and config to a list. The order is:
//!
//! 1. the pair of links, the peer born inside the pod: the only step that needs
//!    an undo of its own, as all others vanish with the links;
//! 2. settings of both ends, before an end is up: an end that is up for a moment
//!    with the kernel's defaults takes the first router advertisement that comes;
//! 3. the pod's end: addresses, up, neighbour, routes. Up before the neighbour,
//!    as going down and up empties the neighbour table; the neighbour before the
//!    routes, so that no packet ever waits for an answer that will not come;
//! 4. the host's end, last: nothing reaches the pod before all else is there;
//! 5. a look at both ends, so that packets pass when ADD returns.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_cni::{CniError, Route};
use tweed_core::attachment::Attachment;
use tweed_core::attachment::PodName;
use tweed_core::mac::Mac;
use tweed_core::mtu;
use tweed_netlink::link::VethEnd;
use tweed_netlink::route;

use crate::identity::{self, LINK_GROUP, ROUTE_PROTOCOL, gateway_of};

/// Which end of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end in the host's namespace, `tw…`.
    Host,
    /// The end in the pod's namespace.
    Pod,
}

/// A per-link IPv6 setting of the kernel, a file below
/// `/proc/sys/net/ipv6/conf/<link>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The file's name.
    pub key: &'static str,
    /// The content.
    pub value: &'static str,
}

const fn off(key: &'static str) -> Setting {
    Setting { key, value: "0" }
}

/// A pod must not be able to change how its node routes: neither by router
/// advertisements nor by redirects. [`Step::NoRedirects`] and
/// [`Step::NoLinkLocal`] do the rest: nobody is there whom a pod could talk to
/// over such an address.
pub const HOST_SETTINGS: [Setting; 3] =
    [off("accept_ra"), off("autoconf"), off("accept_redirects")];

/// What a pod with IPv6 has is what it was given: nothing from advertisements, and
/// by [`Step::NoLinkLocal`] no address that would be probed for duplicates.
///
/// A pod without IPv6 does without them. Who could send it an advertisement is the
/// host's end alone, which has no address to send one from. And they are dear: to
/// look into `/proc/sys/net/ipv6` the kernel compares, one by one, every network
/// namespace for which somebody has done so, twice for a namespace that is new. So
/// each pod that is looked into makes all later ADDs slower, by 1 µs and more.
pub const POD_SETTINGS: [Setting; 2] = [off("accept_ra"), off("autoconf")];

/// One change to the kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Makes both links, down.
    CreatePair {
        /// The host's end.
        host: VethEnd,
        /// The pod's end.
        pod: VethEnd,
    },
    /// Sets a setting.
    Set(Side, Setting),
    /// No link-local IPv6 address, ever (`addr_gen_mode none`). By netlink: the
    /// setting's file has the writer spin while somebody else holds the kernel's
    /// lock, as others' ADDs do (`addrconf_sysctl_addr_gen_mode`).
    NoLinkLocal(Side),
    /// No IPv4 redirects on the host's end, neither taken nor sent. By netlink,
    /// as the files of these two cost more than the whole message.
    NoRedirects,
    /// Gives the pod's end an address.
    Address(IpNetwork),
    /// Switches an end on; the host's gets its alias with it.
    Up(Side, Option<String>),
    /// Says, for good, which MAC has an address on an end.
    Neighbour(Side, IpAddr, Mac),
    /// Adds a route out of an end; its link is filled in when it is known.
    Route(Side, route::Route),
    /// Looks at an end. The end that was up first had no carrier then, and drops
    /// what it is to send until the kernel has handled the carrier's coming: up
    /// to a second later (`net/core/link_watch.c`). Since Linux 6.8 it does so
    /// at once for a link that is looked at; before, the look does nothing.
    Settle(Side),
}

/// How a step is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// Delete the host's end; the other goes with it.
    DeleteLink,
    /// Nothing: it goes with the links.
    WithTheLink,
}

impl Step {
    /// How it is taken back.
    #[must_use]
    pub fn undo(&self) -> Undo {
        match self {
            Self::CreatePair { .. } => Undo::DeleteLink,
            Self::Set(..)
            | Self::NoLinkLocal(_)
            | Self::NoRedirects
            | Self::Address(_)
            | Self::Up(..)
            | Self::Neighbour(..)
            | Self::Route(..)
            | Self::Settle(_) => Undo::WithTheLink,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host end",
            Self::Pod => "pod end",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreatePair { host, pod } => write!(f, "make {} and {}", host.name, pod.name),
            Self::Set(side, setting) => {
                write!(f, "{side}: ipv6 {} = {}", setting.key, setting.value)
            }
            Self::NoLinkLocal(side) => write!(f, "{side}: no link-local address"),
            Self::NoRedirects => write!(f, "{}: no IPv4 redirects", Side::Host),
            Self::Address(network) => write!(f, "{}: address {network}", Side::Pod),
            Self::Up(side, None) => write!(f, "{side}: up"),
            Self::Up(side, Some(alias)) => write!(f, "{side}: up, alias {alias:?}"),
            Self::Neighbour(side, ip, mac) => write!(f, "{side}: neighbour {ip} is {mac}"),
            Self::Route(side, route) => write!(f, "{side}: route {route}"),
            Self::Settle(side) => write!(f, "{side}: settle"),
        }
    }
}

/// What an attachment is to be.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The names.
    pub attachment: &'a Attachment,
    /// The pod, for people.
    pub pod: Option<&'a PodName>,
    /// MAC of the pod's end.
    pub pod_mac: Mac,
    /// MTU of both ends, in bytes.
    pub mtu: u32,
    /// The pod's addresses.
    pub addresses: &'a [IpAddr],
    /// Routes inside the pod that IPAM asks for.
    pub routes: &'a [Route],
    /// The host's source addresses, at most one per family.
    pub host_source: &'a [IpAddr],
}

/// The steps.
///
/// # Errors
/// Code 7 where addresses and MTU do not go together.
pub fn plan(wanted: &Wanted<'_>) -> Result<Vec<Step>, CniError> {
    let ipv6 = wanted.addresses.iter().any(IpAddr::is_ipv6);
    if ipv6 && wanted.mtu < mtu::IPV6_MIN {
        return Err(CniError::config(format!(
            "mtu is {}: IPv6 needs at least {}",
            wanted.mtu,
            mtu::IPV6_MIN
        )));
    }
    let host_mac = wanted.attachment.host_mac();
    let mut steps = vec![Step::CreatePair {
        host: VethEnd {
            name: wanted.attachment.link_name(),
            mac: host_mac,
            mtu: wanted.mtu,
            group: LINK_GROUP,
            noarp: true,
        },
        pod: VethEnd {
            name: wanted.attachment.ifname.to_string(),
            mac: wanted.pod_mac,
            mtu: wanted.mtu,
            group: 0,
            noarp: false,
        },
    }];
    steps.extend(HOST_SETTINGS.map(|setting| Step::Set(Side::Host, setting)));
    if ipv6 {
        steps.extend(POD_SETTINGS.map(|setting| Step::Set(Side::Pod, setting)));
        // A runtime may have switched IPv6 off for all links to come, and so
        // may the node.
        for side in [Side::Host, Side::Pod] {
            steps.push(Step::Set(side, off("disable_ipv6")));
        }
    }

    let addresses = || wanted.addresses.iter().copied();
    steps.push(Step::NoLinkLocal(Side::Pod));
    steps.extend(addresses().map(|ip| Step::Address(ip.into())));
    steps.push(Step::Up(Side::Pod, None));
    let mut gateways: Vec<IpAddr> = addresses().map(gateway_of).collect();
    gateways.sort_unstable();
    gateways.dedup();
    steps.extend(
        gateways
            .into_iter()
            .map(|ip| Step::Neighbour(Side::Pod, ip, host_mac)),
    );
    let routes = pod_routes(wanted.addresses, wanted.routes);
    steps.extend(
        routes
            .iter()
            .map(|route| Step::Route(Side::Pod, pod_route(route))),
    );

    let alias = identity::alias(wanted.attachment, wanted.pod);
    steps.extend([Step::NoLinkLocal(Side::Host), Step::NoRedirects]);
    steps.push(Step::Up(Side::Host, Some(alias)));
    steps.extend(addresses().map(|ip| Step::Neighbour(Side::Host, ip, wanted.pod_mac)));
    steps.extend(addresses().map(|ip| Step::Route(Side::Host, host_route(ip, wanted.host_source))));
    steps.extend([Side::Host, Side::Pod].map(Step::Settle));
    Ok(steps)
}

/// The pod's routes, all by the gateway of their family: those that IPAM asks
/// for, and a default route for each family that it asks none for. Routes of a
/// family that the pod has no address of are left out.
#[must_use]
pub fn pod_routes(addresses: &[IpAddr], asked: &[Route]) -> Vec<Route> {
    let mut routes = Vec::new();
    for any in ["0.0.0.0/0", "::/0"] {
        let Ok(default) = any.parse::<IpNetwork>() else {
            continue;
        };
        let is_of_family = |ip: IpAddr| ip.is_ipv4() == default.is_ipv4();
        let Some(address) = addresses.iter().copied().find(|ip| is_of_family(*ip)) else {
            continue;
        };
        let of_family: Vec<&Route> = asked
            .iter()
            .filter(|route| is_of_family(route.dst.ip()))
            .collect();
        let gw = Some(gateway_of(address));
        if of_family.is_empty() {
            routes.push(Route {
                gw,
                ..Route::to(default)
            });
        }
        routes.extend(of_family.into_iter().map(|route| Route {
            gw,
            priority: route.priority,
            table: route.table,
            ..Route::to(network_of(route.dst))
        }));
    }
    routes
}

/// The kernel's routes have no bits behind the prefix, and what ADD answers is
/// what CHECK looks for.
fn network_of(dst: IpNetwork) -> IpNetwork {
    IpNetwork::new(dst.network(), dst.prefix()).unwrap_or(dst)
}

/// Routes of which a part has no effect here, in words.
#[must_use]
pub fn unsupported(asked: &[Route]) -> Vec<String> {
    let parts = |route: &Route| {
        let parts = [
            ("mtu", route.mtu.is_some()),
            ("advmss", route.advmss.is_some()),
            ("scope", route.scope.is_some_and(|scope| scope != 0)),
        ];
        parts
            .into_iter()
            .filter_map(|(name, there)| there.then_some(name))
            .collect::<Vec<_>>()
    };
    asked
        .iter()
        .map(|route| (route, parts(route)))
        .filter(|(_, parts)| !parts.is_empty())
        .map(|(route, parts)| format!("{} of route {}", parts.join(" and "), route.dst))
        .collect()
}

/// A route of the pod. The gateway is an address of nobody, so the kernel is
/// told to take it for on-link.
fn pod_route(route: &Route) -> route::Route {
    let mut made = route::Route::to(route.dst, ROUTE_PROTOCOL);
    made.gateway = route.gw;
    made.onlink = true;
    made.metric = route.priority.unwrap_or(0);
    made.table = route.table.unwrap_or(route::MAIN_TABLE);
    made
}

/// The host's route to one of the pod's addresses.
#[must_use]
pub fn host_route(ip: IpAddr, host_source: &[IpAddr]) -> route::Route {
    let mut made = route::Route::to(ip.into(), ROUTE_PROTOCOL);
    made.link_scope = true;
    made.source = host_source
        .iter()
        .copied()
        .find(|source| source.is_ipv4() == ip.is_ipv4());
    made
}

#[cfg(test)]
mod tests;
