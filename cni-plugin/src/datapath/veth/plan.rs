//! Which steps make an attachment, in which order, and why in that order.
//!
//! Pure: from names, addresses and config to a list. The order is:
//!
//! 1. the pair of links, the peer created inside the pod: the only step that needs
//!    an undo of its own, as the effects of all others disappear with the links;
//! 2. settings of both ends, before an end is up: an end that is up for a moment
//!    with the kernel's defaults accepts the first router advertisement;
//! 3. the pod's end: addresses, up, neighbour, routes, first of all those to the
//!    gateways. Up before the neighbour, as a link that goes down or up loses its
//!    neighbours; the neighbour before the routes, so that no packet waits for an
//!    answer that will never arrive;
//! 4. the host's end, last: nothing reaches the pod before the rest is complete;
//! 5. a query of both ends, so that packets pass when ADD returns.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use tweed_cni::CniError;
use tweed_core::attachment::{Attachment, PodName};
use tweed_core::ownership::{LINK_GROUP, ROUTE_PROTOCOL, alias};
use tweed_core::{mac::Mac, mtu};
use tweed_netlink::{link::VethEnd, route};

mod routes;

pub use routes::{PodRoute, check_next_hops, is_main, pod_routes, unsupported};

/// The gateway of every pod: an address that no interface has. The pod's neighbour
/// table maps it to the MAC of the host's end.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The same for IPv6.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The gateway of `address`'s family.
pub fn gateway_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => GATEWAY_V4.into(),
        IpAddr::V6(_) => GATEWAY_V6.into(),
    }
}

/// Which end of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end in the host's namespace, `tw…`.
    Host,
    /// The end in the pod's namespace.
    Pod,
}

/// A pod must not be able to change how its node routes: neither by router
/// advertisements nor by redirects. [`Step::Ipv4Gateway`] and
/// [`Step::NoLinkLocal`] do the rest: without a link-local address on the host's
/// end, a pod cannot reach the node over one.
pub const HOST_SETTINGS: [&str; 3] = ["accept_ra", "autoconf", "accept_redirects"];

/// A pod with IPv6 has the addresses that it was given and no others: none from
/// advertisements, and by [`Step::NoLinkLocal`] none that the kernel would probe
/// for duplicates.
///
/// A pod without IPv6 does not need these settings: only the host's end could send
/// it an advertisement, and that has no address to send one from. They are also
/// slow: to open a path below `/proc/sys/net/ipv6`, the kernel compares, one by
/// one, every network namespace for which that was done before, twice for a new
/// namespace. So each pod with these settings makes all later ADDs slower, by 1 µs
/// and more.
pub const POD_SETTINGS: [&str; 2] = ["accept_ra", "autoconf"];

/// One change to the kernel.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Creates both links, down.
    CreatePair {
        /// The host's end.
        host: VethEnd,
        /// The pod's end.
        pod: VethEnd,
    },
    /// Writes 0 to an IPv6 setting of an end, a file below
    /// `/proc/sys/net/ipv6/conf/<link>`.
    SwitchOff(Side, &'static str),
    /// The kernel gives an end no link-local IPv6 address (`addr_gen_mode none`).
    /// By netlink: who writes the setting's file spins while another process, such
    /// as another ADD, holds the kernel's RTNL lock
    /// (`addrconf_sysctl_addr_gen_mode`).
    NoLinkLocal(Side),
    /// The host's end forwards IPv4 and accepts no IPv4 redirects; it sends none where
    /// `net.ipv4.conf.all.send_redirects` is 0 too. By netlink, as writing the files of
    /// these settings costs more than the whole message.
    Ipv4Gateway,
    /// Gives the pod's end an address.
    Address(IpNetwork),
    /// Sets an end up; the host's end gets its alias with it.
    Up(Side, Option<String>),
    /// Adds a permanent neighbour on an end: which MAC has an address.
    Neighbour(Side, IpAddr, Mac),
    /// Adds a route out of an end; its link is filled in when it is known.
    Route(Side, route::Route),
    /// Adds a route of the pod to a gateway, also where another network of the pod has
    /// one to its own of the same address.
    GatewayRoute(route::Route),
    /// Adds a default route of the pod that nobody asked for, unless the pod has
    /// another network already.
    ImpliedDefault(route::Route),
    /// Queries an end, so that the kernel updates its carrier state. The end that
    /// was set up first had no carrier then, and drops what it sends until the
    /// kernel has handled the change of its carrier: up to a second later
    /// (`net/core/link_watch.c`). Since Linux 6.8 the kernel does so at once for a
    /// link that is queried; before that, the query has no effect.
    QueryCarrier(Side),
}

impl Step {
    /// Whether it must be undone, by deleting the host's end, with which the kernel
    /// deletes the other end and undoes all other steps.
    pub fn needs_undo(&self) -> bool {
        matches!(self, Self::CreatePair { .. })
    }
}

/// The desired state of an attachment.
#[derive(Debug, Clone)]
pub struct Desired<'a> {
    /// Names of the attachment, from which link names and MACs are derived.
    pub attachment: &'a Attachment,
    /// The pod, which people find in the alias of the host's end.
    pub pod: Option<&'a PodName>,
    /// MAC of the pod's end.
    pub pod_mac: Mac,
    /// MTU of both ends, in bytes.
    pub mtu: u32,
    /// The pod's addresses.
    pub addresses: &'a [IpAddr],
    /// The routes of the pod: [`pod_routes`].
    pub routes: &'a [PodRoute],
    /// The host's source addresses, at most one per family.
    pub host_source: &'a [IpAddr],
}

/// The steps that create an attachment.
///
/// # Errors
/// Code 7 where the MTU is too small for the addresses.
pub fn plan(desired: &Desired<'_>) -> Result<Vec<Step>, CniError> {
    let ipv6 = desired.addresses.iter().any(IpAddr::is_ipv6);
    check_mtu(desired.mtu, ipv6)?;
    let host_mac = desired.attachment.host_mac();
    let mut steps = vec![Step::CreatePair {
        host: VethEnd {
            name: desired.attachment.link_name(),
            mac: host_mac,
            mtu: desired.mtu,
            group: LINK_GROUP,
            noarp: true,
        },
        pod: VethEnd {
            name: desired.attachment.ifname.to_string(),
            mac: desired.pod_mac,
            mtu: desired.mtu,
            group: 0,
            noarp: false,
        },
    }];
    steps.extend(HOST_SETTINGS.map(|setting| Step::SwitchOff(Side::Host, setting)));
    if ipv6 {
        steps.extend(POD_SETTINGS.map(|setting| Step::SwitchOff(Side::Pod, setting)));
        // The runtime may have disabled IPv6 for all new links of the pod, and an
        // administrator for those of the node.
        for side in [Side::Host, Side::Pod] {
            steps.push(Step::SwitchOff(side, "disable_ipv6"));
        }
    }

    let addresses = || desired.addresses.iter().copied();
    steps.push(Step::NoLinkLocal(Side::Pod));
    steps.extend(addresses().map(|ip| Step::Address(ip.into())));
    steps.push(Step::Up(Side::Pod, None));
    let mut gateways: Vec<IpAddr> = addresses().map(gateway_of).collect();
    gateways.sort_unstable();
    gateways.dedup();
    steps.extend(
        gateways
            .iter()
            .map(|ip| Step::Neighbour(Side::Pod, *ip, host_mac)),
    );
    let gateway_routes = gateways.iter().copied().filter_map(routes::gateway_route);
    steps.extend(gateway_routes.map(Step::GatewayRoute));
    steps.extend(desired.routes.iter().map(|it| {
        let route = routes::kernel_route(&it.route);
        if it.is_implied {
            Step::ImpliedDefault(route)
        } else {
            Step::Route(Side::Pod, route)
        }
    }));

    let alias = alias(desired.attachment, desired.pod);
    steps.extend([Step::NoLinkLocal(Side::Host), Step::Ipv4Gateway]);
    steps.push(Step::Up(Side::Host, Some(alias)));
    steps.extend(addresses().map(|ip| Step::Neighbour(Side::Host, ip, desired.pod_mac)));
    steps
        .extend(addresses().map(|ip| Step::Route(Side::Host, host_route(ip, desired.host_source))));
    steps.extend([Side::Host, Side::Pod].map(Step::QueryCarrier));
    Ok(steps)
}

/// Checks that the MTU is large enough, for pods that have IPv6 or not.
///
/// # Errors
/// Code 7.
pub fn check_mtu(mtu: u32, ipv6: bool) -> Result<(), CniError> {
    if ipv6 && mtu < mtu::IPV6_MIN {
        return Err(CniError::config(format!(
            "mtu is {mtu}: IPv6 needs at least {}",
            mtu::IPV6_MIN
        )));
    }
    Ok(())
}

/// The host's route to one of the pod's addresses.
pub fn host_route(ip: IpAddr, host_source: &[IpAddr]) -> route::Route {
    let mut result = route::Route::to(ip.into(), ROUTE_PROTOCOL);
    result.link_scope = true;
    result.source = host_source
        .iter()
        .copied()
        .find(|source| source.is_ipv4() == ip.is_ipv4());
    result
}

#[cfg(test)]
mod tests;
