//! Reads the objects in a namespace by `ip`, and not by the code under test.

use serde_json::{Value, json};
use tweed_lab::Netns;

/// A link of a namespace as `ip` prints it; null if there is none.
pub fn link(netns: &Netns, name: &str) -> Value {
    let mut links = netns.json("ip -j -d link show").unwrap();
    let found = links
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .find(|link| link["ifname"] == name);
    found.map_or(Value::Null, Value::take)
}

/// The addresses on a link: address with prefix length, scope, and whether it is
/// tentative.
pub fn addresses(netns: &Netns, link: &str) -> Vec<Value> {
    let mut links = netns.json(&format!("ip -j addr show dev {link}")).unwrap();
    let infos = links[0]["addr_info"].take();
    infos
        .as_array()
        .unwrap()
        .iter()
        .map(|info| {
            json!({
                "address": format!("{}/{}", info["local"].as_str().unwrap(), info["prefixlen"]),
                "scope": info["scope"],
                "tentative": info.get("tentative").is_some() || info.get("dadfailed").is_some(),
            })
        })
        .collect()
}

/// The routes of a link in all tables except `local`, IPv4 first, with the keys that
/// tests compare.
pub fn routes(netns: &Netns, link: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for family in ["-4", "-6"] {
        let routes = netns
            .json(&format!("ip -j {family} route show table all dev {link}"))
            .unwrap();
        for route in routes.as_array().unwrap() {
            let is_kernels = route["table"] == "local" || route["type"] == "multicast";
            if !is_kernels {
                found.push(json!({
                    "dst": route["dst"], "gateway": route["gateway"], "proto": route["protocol"],
                    "scope": route["scope"], "src": route["prefsrc"], "flags": route["flags"],
                }));
            }
        }
    }
    found
}

/// The permanent neighbours on a link: address and MAC.
pub fn neighbours(netns: &Netns, link: &str) -> Vec<(String, String)> {
    let all = netns
        .json(&format!("ip -j neigh show dev {link} nud permanent"))
        .unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found: Vec<_> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (text(&entry["dst"]), text(&entry["lladdr"])))
        .collect();
    found.sort();
    found
}

/// The values of sysctls of a link, such as `ipv6/accept_ra`.
pub fn settings<const N: usize>(
    netns: &Netns,
    link: &str,
    keys: [&str; N],
) -> [(String, String); N] {
    keys.map(|key| {
        let (family, name) = key.split_once('/').unwrap();
        let value = netns
            .sysctl(&format!("{family}/conf/{link}/{name}"))
            .unwrap();
        (key.to_owned(), value)
    })
}
