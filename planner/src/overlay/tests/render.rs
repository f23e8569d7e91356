//! A plan as `ip`, `bridge` and `nft` would show it: for golden files that a
//! person can read.

use std::fmt::Write as _;

use crate::overlay::Plan;
use crate::overlay::desired::{Desired, Route, Ruleset, UNREACHABLE_METRIC};

pub(super) fn plan(plan: &Plan) -> String {
    let mut out = String::new();
    match &plan.network {
        None => out.push_str("hold\n"),
        Some(network) => {
            let own: Vec<String> = network.pod_cidrs.iter().map(ToString::to_string).collect();
            let underlay = &network.underlay;
            writeln!(out, "own {} mtu {}", own.join(" "), network.pod_mtu).unwrap();
            writeln!(
                out,
                "underlay {} dev {} ({}) mtu {}",
                underlay.address,
                underlay.name,
                underlay.interface,
                underlay.path.as_ref().unwrap().mtu
            )
            .unwrap();
            for (family, source) in &network.host_sources {
                writeln!(out, "source {family:?} {source}").unwrap();
            }
            for line in objects(&network.desired) {
                writeln!(out, "{line}").unwrap();
            }
            out.push_str(&ruleset(&network.desired.ruleset));
        }
    }
    for problem in &plan.problems {
        writeln!(
            out,
            "{:?} {} {}: {}. Cure: {}.",
            problem.effect, problem.kind, problem.object, problem.message, problem.cure
        )
        .unwrap();
    }
    out
}

/// What rtnetlink is asked for, an object a line.
pub(super) fn objects(desired: &Desired) -> Vec<String> {
    let mut lines = Vec::new();
    let mut device = "-";
    if let Some(vxlan) = &desired.vxlan {
        device = &vxlan.name;
        lines.push(format!(
            "link {device} vxlan id {} dstport {} local {} address {} mtu {}",
            vxlan.vni, vxlan.port, vxlan.local, vxlan.mac, vxlan.mtu
        ));
    }
    for address in &desired.vxlan_addresses {
        lines.push(format!("address {address} dev {device}"));
    }
    for (ip, mac) in &desired.neighbours {
        lines.push(format!("neighbour {ip} lladdr {mac} dev {device}"));
    }
    for (mac, address) in &desired.fdb {
        lines.push(format!("fdb {mac} dst {address} dev {device}"));
    }
    for (key, route) in &desired.routes {
        let to = key.destination;
        lines.push(match route {
            Route::Overlay { gateway } => {
                format!(
                    "route {to} via {gateway} dev {device} onlink metric {}",
                    key.metric
                )
            }
            Route::Direct { gateway, link } => {
                format!(
                    "route {to} via {gateway} dev number {link} metric {}",
                    key.metric
                )
            }
            Route::Unreachable if key.metric == UNREACHABLE_METRIC => {
                format!("route unreachable {to} metric max")
            }
            Route::Unreachable => format!("route unreachable {to} metric {}", key.metric),
        });
    }
    for family in &desired.forwarding {
        lines.push(format!("forwarding {family:?}"));
    }
    lines
}

fn ruleset(ruleset: &Ruleset) -> String {
    let mut out = format!(
        "nft masquerade {:?} ipv6 {} nodes {}\n",
        ruleset.masquerade, ruleset.masquerade_ipv6, ruleset.masquerade_nodes
    );
    if let Some(vxlan) = &ruleset.vxlan {
        writeln!(
            out,
            "nft vxlan {} vni {} port {}",
            vxlan.device, vxlan.vni, vxlan.port
        )
        .unwrap();
    }
    let sources = ruleset.vxlan_sources.iter();
    let pairs = sources
        .map(|(outer, inner)| format!("{outer}:{inner}"))
        .collect();
    for (name, elements) in [
        ("local_cidrs", text(&ruleset.local_cidrs)),
        ("cluster_cidrs", text(&ruleset.cluster_cidrs)),
        ("node_addresses", text(&ruleset.node_addresses)),
        ("underlay_addresses", text(&ruleset.underlay_addresses)),
        ("vxlan_sources", pairs),
    ] {
        writeln!(out, "nft {name} {}", elements.join(" ")).unwrap();
    }
    out
}

fn text<'a, T: ToString + 'a>(set: impl IntoIterator<Item = &'a T>) -> Vec<String> {
    set.into_iter().map(ToString::to_string).collect()
}
