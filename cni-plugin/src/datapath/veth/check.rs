//! All in which a pair of links differs from what ADD has made.

use std::net::IpAddr;

use tweed_cni::Interface;
use tweed_core::mtu;
use tweed_core::ownership::{LINK_GROUP, alias_key};
use tweed_ipam::record::Made;
use tweed_netlink::{address::Address, link::Link, neighbour::Neighbour, owned, route::Route};

use super::plan::{self, gateway_of};
use super::{Observed, ownership};
use crate::datapath::Expected;

/// Compares both ends. `addresses` are those that the store has given.
pub(super) fn differences(
    expected: &Expected<'_>,
    addresses: &[IpAddr],
    observed: &Observed,
) -> Vec<String> {
    let mut found = Vec::new();
    expected.host_end(observed, addresses, &mut found);
    expected.pod_end(observed, addresses, &mut found);
    found
}

/// As a pair of links.
impl Expected<'_> {
    fn host_interface(&self) -> Option<&Interface> {
        let name = self.attachment.link_name();
        let mut interfaces = self.result.interfaces.iter();
        interfaces.find(|interface| interface.name == name && interface.sandbox.is_none())
    }

    fn host_end(&self, observed: &Observed, addresses: &[IpAddr], found: &mut Vec<String>) {
        let name = self.attachment.link_name();
        if self.host_interface().is_none() {
            found.push(format!("prevResult does not list {name}"));
        }
        let Some(link) = &observed.host else {
            found.push(format!("link {name} is missing on the host"));
            return;
        };
        if !ownership::belongs(link, self.attachment) {
            let alias = link.alias.as_deref().unwrap_or_default();
            found.push(format!(
                "link {name} does not belong to it (group {}, alias {alias:?})",
                link.group
            ));
            return;
        }
        let mut differ = |what: &str, is: String, should: String| {
            if is != should {
                found.push(format!("{what} of {name} is {is}, should be {should}"));
            }
        };
        differ("group", link.group.to_string(), LINK_GROUP.to_string());
        if !owned::has_alias_of(link, self.attachment) {
            let alias = link.alias.clone().unwrap_or_default();
            differ("alias", alias, alias_key(self.attachment));
        }
        differ("state", up(link.up), up(true));
        differ("ARP", on(!link.noarp), on(false));
        let of_result = self.host_interface().and_then(|end| end.mtu);
        let mtu = of_result.unwrap_or(self.mtu);
        // The agent has it follow the pod's end, a little later.
        let has_ipv6 = addresses.iter().any(IpAddr::is_ipv6);
        let follows = |pod: &Link| link.mtu == mtu::of_host_end(mtu, pod.mtu, has_ipv6);
        if !observed.pod.as_ref().is_some_and(follows) {
            differ("MTU", link.mtu.to_string(), mtu.to_string());
        }
        let host_mac = self.attachment.host_mac();
        differ("MAC", or_none(link.mac), host_mac.to_string());
        for (key, is, should) in settings(link) {
            if !self.is_unwritten(key) {
                differ(key, is.to_string(), should.to_string());
            }
        }
        let pod_mac = self.pod_mac();
        for ip in addresses {
            let neighbours = &observed.host_neighbours;
            has_neighbour(neighbours, *ip, pod_mac.as_deref(), &name, found);
            let should = self.host_routes(*ip);
            let destination = should[0].destination;
            let mut routes = observed.host_routes.iter();
            match routes.find(|route| route.destination == destination) {
                None => found.push(format!(
                    "route {destination} by {name} is missing on the host"
                )),
                Some(route) => same_route(route, &should, &name, found),
            }
        }
    }

    fn made(&self) -> Option<&Made> {
        self.record?.made.as_ref()
    }

    /// Whether ADD could not write this setting of the host's end.
    fn is_unwritten(&self, key: &str) -> bool {
        let (Some(made), Some(setting)) = (self.made(), key.strip_prefix("ipv6 ")) else {
            return false;
        };
        made.unwritten.iter().any(|it| it == setting)
    }

    /// The host's route to an address: as the config says now, which is what an agent
    /// repairs it to, and as it was when the pod was added.
    fn host_routes(&self, ip: IpAddr) -> [Route; 2] {
        let made = self.made().map(|made| made.host_source.as_slice());
        [self.host_source, made.unwrap_or(self.host_source)]
            .map(|sources| plan::host_route(ip, sources))
    }

    /// Whether a route of the result is in the main table. Results before 1.1 do not
    /// tell.
    fn is_main(&self, route: &tweed_cni::Route) -> bool {
        let made = self.made().map(|made| made.routes.as_slice());
        let mut same = made
            .unwrap_or_default()
            .iter()
            .filter(|it| it.dst == route.dst);
        match route.table {
            Some(_) => plan::is_main(route),
            None => same.clone().next().is_none() || same.any(plan::is_main),
        }
    }

    fn pod_mac(&self) -> Option<String> {
        let in_result = self.pod_interface().and_then(|(_, end)| end.mac.clone());
        in_result.or_else(|| Some(self.record?.pod_mac?.to_string()))
    }

    fn pod_end(&self, observed: &Observed, addresses: &[IpAddr], found: &mut Vec<String>) {
        let name = self.attachment.ifname.as_str();
        let interface = self.pod_interface().map(|(_, interface)| interface);
        if interface.is_none() {
            found.push(format!("prevResult does not list {name} in {}", self.netns));
        }
        let Some(link) = &observed.pod else {
            found.push(format!("link {name} is missing in the container"));
            return;
        };
        let host = observed.host.as_ref();
        if host.is_some_and(|host| host.peer != Some(link.index)) {
            let host = self.attachment.link_name();
            found.push(format!(
                "{name} in the container is not the other end of {host}"
            ));
        }
        if !link.up {
            found.push(format!("state of {name} is down, should be up"));
        }
        // A plugin that lowers it later (tuning) does not report that in its result.
        let most = interface.and_then(|i| i.mtu).unwrap_or(self.mtu);
        let mtu = link.mtu;
        if mtu > most {
            found.push(format!("MTU of {name} is {mtu}, should be at most {most}"));
        }
        let mac = or_none(link.mac);
        if let Some(should) = self.pod_mac()
            && !mac.eq_ignore_ascii_case(&should)
        {
            found.push(format!("MAC of {name} is {mac}, should be {should}"));
        }
        for ip in addresses {
            has_address(&observed.pod_addresses, *ip, name, found);
        }
        let host_mac = self.attachment.host_mac().to_string();
        let mut gateways: Vec<IpAddr> = addresses.iter().copied().map(gateway_of).collect();
        gateways.dedup();
        for gateway in &gateways {
            let neighbours = &observed.pod_neighbours;
            has_neighbour(neighbours, *gateway, Some(&host_mac), name, found);
        }
        // A plugin that moves them to another table later (sbr) does not report that in its
        // result.
        let routes = self.result.routes.iter();
        for route in routes.filter(|route| route.gw.is_some_and(|gw| gateways.contains(&gw))) {
            let dst = route.dst;
            let mut there = observed.pod_routes.iter();
            let is_there = there.any(|it| it.destination == dst && it.gateway == route.gw);
            if !is_there && self.is_main(route) {
                found.push(format!("route {dst} of {name} is missing in the container"));
            }
        }
    }
}

/// The host end's settings: key, actual value, expected value. Those that the kernel
/// does not report, as without IPv6, cannot differ.
fn settings(link: &Link) -> Vec<(&'static str, i32, i32)> {
    let ipv6 = link.ipv6.iter().flat_map(|ipv6| {
        [
            ("ipv6 accept_ra", ipv6.accept_ra, 0),
            ("ipv6 autoconf", ipv6.autoconf, 0),
            ("ipv6 accept_redirects", ipv6.accept_redirects, 0),
            ("ipv6 addr_gen_mode", ipv6.addr_gen_mode, 1),
        ]
    });
    let ipv4 = link.ipv4.iter().flat_map(|ipv4| {
        [
            ("ipv4 accept_redirects", ipv4.accept_redirects, 0),
            ("ipv4 send_redirects", ipv4.send_redirects, 0),
        ]
    });
    ipv6.chain(ipv4).collect()
}

/// Compares a route with those that it may be, which differ in their source only.
fn same_route(is: &Route, should: &[Route], link: &str, found: &mut Vec<String>) {
    let destination = is.destination;
    let mut differ = |what: &str, is: String, should: &[String]| {
        if !should.contains(&is) {
            found.push(format!(
                "{what} of route {destination} by {link} is {is}, should be {}",
                should.join(" or ")
            ));
        }
    };
    let protocol = |route: &Route| route.protocol.to_string();
    let mut protocols: Vec<String> = should.iter().map(protocol).collect();
    protocols.dedup();
    differ("protocol", protocol(is), &protocols);
    let mut sources: Vec<String> = should.iter().map(|route| or_none(route.source)).collect();
    sources.dedup();
    if should.iter().any(|route| route.source.is_some()) {
        differ("source", or_none(is.source), &sources);
    }
}

fn has_address(there: &[Address], ip: IpAddr, link: &str, found: &mut Vec<String>) {
    let Some(address) = there.iter().find(|address| address.network.ip() == ip) else {
        found.push(format!(
            "address {ip} of {link} is missing in the container"
        ));
        return;
    };
    if address.tentative {
        found.push(format!(
            "address {ip} of {link} is not usable: duplicate address detection is running or has failed"
        ));
    }
}

fn has_neighbour(
    there: &[Neighbour],
    ip: IpAddr,
    should: Option<&str>,
    link: &str,
    found: &mut Vec<String>,
) {
    let Some(neighbour) = there.iter().find(|neighbour| neighbour.ip == ip) else {
        found.push(format!("neighbour {ip} on {link} is missing"));
        return;
    };
    let mac = or_none(neighbour.mac);
    if let Some(should) = should
        && !mac.eq_ignore_ascii_case(should)
    {
        found.push(format!(
            "neighbour {ip} on {link} is {mac}, should be {should}"
        ));
    } else if !neighbour.permanent {
        found.push(format!("neighbour {ip} on {link} is not permanent"));
    }
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn up(up: bool) -> String {
    if up { "up" } else { "down" }.to_owned()
}

fn on(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

#[cfg(test)]
mod tests;
