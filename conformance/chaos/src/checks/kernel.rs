//! A node's kernel equals the plan: links, addresses, routes, neighbours, FDB entries and
//! sysctls that are tweed's, by `ip -j` and `bridge -j`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde_json::Value;
use tweed_lab::{LabError, Netns};

use super::differences;
use crate::plan::{NodePlan, Plan};

/// Sysctls of the machine, and their value.
const MACHINE_SYSCTLS: &[(&str, &str)] =
    &[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

/// Sysctls of each pod's link, and their value.
const LINK_SYSCTLS: &[(&str, &str, &str)] = &[
    ("ipv4", "forwarding", "1"),
    ("ipv4", "accept_redirects", "0"),
    ("ipv4", "send_redirects", "0"),
    ("ipv6", "accept_ra", "0"),
    ("ipv6", "autoconf", "0"),
    ("ipv6", "accept_redirects", "0"),
];

/// What is not as planned.
///
/// # Errors
/// The node cannot be read.
pub fn problems(netns: &Netns, node: &NodePlan, plan: &Plan) -> Result<Vec<String>, LabError> {
    let mut found = differences("link", expected_links(node), links(netns)?);
    found.extend(differences(
        "address",
        expected_addresses(node),
        addresses(netns)?,
    ));
    found.extend(differences(
        "route",
        expected_routes(node, plan),
        routes(netns)?,
    ));
    found.extend(differences(
        "neighbour",
        expected_neighbours(node, plan),
        neighbours(netns)?,
    ));
    found.extend(differences(
        "FDB entry",
        expected_entries(node, plan),
        entries(netns)?,
    ));
    if found.is_empty() {
        found = sysctls(netns, node)?;
    }
    Ok(found)
}

fn expected_links(node: &NodePlan) -> BTreeSet<String> {
    let (mac, local) = (node.vtep_mac(), node.address);
    let device = format!(
        "tweed.1 up, MTU 1450, group default, vxlan {mac} id 1 port 8472 local {local} learning false, in "
    );
    let pods = node.pods.iter().map(|pod| {
        let (link, mtu) = (&pod.link, pod.mtu);
        format!("{link} up, MTU {mtu}, group 116, veth, alias tweed:tweed/, in ")
    });
    pods.chain([device]).collect()
}

fn links(netns: &Netns) -> Result<BTreeSet<String>, LabError> {
    let all = netns.json("ip -j -d link show")?;
    let ours = list(&all).filter(|link| {
        let alias = text(link, "ifalias");
        text(link, "ifname").starts_with("tw") || alias.starts_with("tweed:")
    });
    Ok(ours
        .map(|link| {
            let up = if list(&link["flags"]).any(|flag| flag == "UP") {
                "up"
            } else {
                "down"
            };
            let (name, group, mtu) = (text(link, "ifname"), text(link, "group"), &link["mtu"]);
            let info = &link["linkinfo"];
            let data = &info["info_data"];
            let kind = text(info, "info_kind");
            let kind = match kind {
                "vxlan" => format!(
                    "vxlan {} id {} port {} local {} learning {}",
                    text(link, "address"),
                    data["id"],
                    data["port"],
                    text(data, "local"),
                    data["learning"]
                ),
                _ => {
                    let alias = text(link, "ifalias").split_inclusive('/').next();
                    format!("{kind}, alias {}", alias.unwrap_or_default())
                }
            };
            let master = text(link, "master");
            format!("{name} {up}, MTU {mtu}, group {group}, {kind}, in {master}")
        })
        .collect())
}

fn expected_addresses(node: &NodePlan) -> BTreeSet<String> {
    node.overlay_addresses()
        .map(|ip| IpNetwork::from(ip).to_string())
        .collect()
}

fn addresses(netns: &Netns) -> Result<BTreeSet<String>, LabError> {
    // There is no such device while it is being replaced.
    let all = netns.json("ip -j addr show")?;
    let device = list(&all).find(|link| text(link, "ifname") == "tweed.1");
    let own = device
        .into_iter()
        .flat_map(|device| list(&device["addr_info"]));
    Ok(own
        .filter(|address| text(address, "scope") != "link")
        .map(|address| format!("{}/{}", text(address, "local"), address["prefixlen"]))
        .collect())
}

fn expected_routes(node: &NodePlan, plan: &Plan) -> BTreeSet<String> {
    let own = node.cidrs.iter().map(|cidr| format!("unreachable {cidr}"));
    let cidrs = plan.others(node).flat_map(|other| &other.cidrs);
    let others = cidrs.map(|cidr| format!("{cidr} via {} dev tweed.1", cidr.network()));
    let pods = node.pods.iter().flat_map(|pod| {
        pod.addresses.iter().map(|address| {
            let source = match address {
                IpAddr::V4(_) => Some(IpAddr::from(node.address)),
                // The node has no other address of this family.
                IpAddr::V6(_) => node.overlay_addresses().find(IpAddr::is_ipv6),
            };
            let src = source.map(|ip| ip.to_string()).unwrap_or_default();
            format!("{address} dev {} src {src}", pod.link)
        })
    });
    own.chain(others).chain(pods).collect()
}

fn routes(netns: &Netns) -> Result<BTreeSet<String>, LabError> {
    let mut seen = BTreeSet::new();
    for family in ["-4", "-6"] {
        let all = netns.json(&format!("ip -j {family} route show proto 116"))?;
        for route in list(&all) {
            let (to, dev) = (text(route, "dst"), text(route, "dev"));
            let gateway = text(route, "gateway");
            seen.insert(match (text(route, "type"), gateway) {
                ("", "") => format!("{to} dev {dev} src {}", text(route, "prefsrc")),
                ("", gateway) => format!("{to} via {gateway} dev {dev}"),
                (kind, _) => format!("{kind} {to}"),
            });
        }
    }
    Ok(seen)
}

fn expected_neighbours(node: &NodePlan, plan: &Plan) -> BTreeSet<String> {
    let others = plan.others(node).flat_map(|other| {
        let mac = other.vtep_mac();
        other
            .overlay_addresses()
            .map(move |ip| format!("{ip} {mac} dev tweed.1"))
    });
    let pods = node.pods.iter().flat_map(|pod| {
        let (mac, link) = (&pod.mac, &pod.link);
        pod.addresses
            .iter()
            .map(move |ip| format!("{ip} {mac} dev {link}"))
    });
    others.chain(pods).collect()
}

fn neighbours(netns: &Netns) -> Result<BTreeSet<String>, LabError> {
    let all = netns.json("ip -j neigh show nud permanent")?;
    let ours = list(&all).filter(|entry| text(entry, "dev").starts_with("tw"));
    Ok(ours
        .map(|entry| {
            let (ip, mac, dev) = (
                text(entry, "dst"),
                text(entry, "lladdr"),
                text(entry, "dev"),
            );
            format!("{ip} {mac} dev {dev}")
        })
        .collect())
}

fn expected_entries(node: &NodePlan, plan: &Plan) -> BTreeSet<String> {
    let others = plan.others(node);
    others
        .map(|other| format!("{} {}", other.vtep_mac(), other.address))
        .collect()
}

fn entries(netns: &Netns) -> Result<BTreeSet<String>, LabError> {
    let all = netns.json("bridge -j fdb show")?;
    let ours = list(&all).filter(|entry| text(entry, "ifname") == "tweed.1");
    Ok(ours
        .map(|entry| format!("{} {}", text(entry, "mac"), text(entry, "dst")))
        .collect())
}

fn sysctls(netns: &Netns, node: &NodePlan) -> Result<Vec<String>, LabError> {
    let machine = MACHINE_SYSCTLS
        .iter()
        .map(|(key, value)| ((*key).to_owned(), *value));
    let links = node.pods.iter().flat_map(|pod| {
        let of_link = |(family, key, value): &(&str, &str, &'static str)| {
            (format!("{family}/conf/{}/{key}", pod.link), *value)
        };
        LINK_SYSCTLS.iter().map(of_link)
    });
    let expected: Vec<(String, &str)> = machine.chain(links).collect();
    let read = |key: &String| {
        let value = std::fs::read_to_string(format!("/proc/sys/net/{key}"));
        value.map_or_else(|error| error.to_string(), |value| value.trim().to_owned())
    };
    netns.enter(|| {
        let wrong = expected.iter().map(|(key, value)| (key, value, read(key)));
        wrong
            .filter(|(_, value, seen)| seen != *value)
            .map(|(key, value, seen)| format!("sysctl {key} is {seen} instead of {value}"))
            .collect()
    })
}

/// The items of a JSON array; none if it is something else.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A string of a JSON object; empty if there is none.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
