//! What the fast path should be like: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_fastpath::{Node, Plan, Vxlan};
use tweed_netlink::link::Link;
use tweed_netlink::qdisc::Qdisc;
use tweed_planner::overlay::Network;
use tweed_planner::overlay::desired::{Route, RouteKey, VxlanDevice};

/// What a plan is made from.
pub struct Facts<'a> {
    /// The node's network.
    pub network: &'a Network,
    /// All links by index.
    pub links: &'a BTreeMap<u32, Link>,
    /// The indices of the node's ends of pods' links.
    pub pods: &'a BTreeSet<u32>,
    /// Where the API server takes cluster IPs from; none without Services.
    pub services: &'a [IpNetwork],
    /// The queueing disciplines of all links.
    pub qdiscs: &'a [Qdisc],
    /// The range of ports of `net.ipv4.ip_local_port_range`.
    pub ports: (u16, u16),
}

/// A plan, and what stays on the kernel's path, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Planned {
    /// What is to be there.
    pub plan: Plan,
    /// A sentence for each.
    pub left: Vec<String>,
}

/// The plan by these facts.
pub fn plan(facts: &Facts<'_>) -> Planned {
    let mut planned = Planned::default();
    let filtered: BTreeSet<u32> = (facts.qdiscs.iter())
        .filter(|qdisc| qdisc.is_ingress())
        .map(|qdisc| qdisc.link)
        .collect();
    let queued: BTreeSet<u32> = (facts.qdiscs.iter())
        .filter(|qdisc| !qdisc.is_none())
        .map(|qdisc| qdisc.link)
        .collect();
    let name = |index: &u32| facts.links.get(index).map_or("", |link| link.name.as_str());

    // What is redirected would pass neither the filters of others nor a limit of bandwidth.
    let is_plain = |index: &u32| {
        let link = facts.links.get(index);
        link.is_some_and(|link| link.master.is_none()) && !queued.contains(index)
    };
    planned.plan.pods = facts.pods.iter().copied().filter(is_plain).collect();
    let others = facts.pods.len() - planned.plan.pods.len();
    if others > 0 {
        planned.left.push(format!(
            "{others} pods whose links have a limit of bandwidth, a filter or a bridge of others"
        ));
    }

    let (nodes, direct) = nodes(facts.network);
    let device = facts.network.desired.vxlan.as_ref();
    planned.plan.vxlan = device.and_then(|device| vxlan(device, facts));
    if device.is_some() && planned.plan.vxlan.is_none() {
        let left = "VXLAN over IPv6, whose outer header needs a checksum";
        planned.left.push(left.to_owned());
    }
    let has_vxlan = planned.plan.vxlan.is_some();
    planned.plan.nodes = nodes
        .into_iter()
        .filter(|(_, node)| has_vxlan || matches!(node, Node::Direct(_)))
        .collect();

    for index in underlay(facts) {
        if filtered.contains(&index) {
            let name = name(&index);
            planned.left.push(format!(
                "packets of other nodes that come by {name}, which has a filter of others (tc)"
            ));
        } else {
            planned.plan.underlay.insert(index);
        }
    }
    let is_there = |index: &u32| facts.links.contains_key(index);
    planned.plan.direct = direct.into_iter().filter(is_there).collect();
    let ruleset = &facts.network.desired.ruleset;
    planned.plan.ranges = (ruleset.cluster_cidrs.iter())
        .chain(&ruleset.local_cidrs)
        .chain(facts.services)
        .copied()
        .collect();
    planned
}

/// How the pod CIDRs of other nodes are reached, and the links of plain routes.
fn nodes(network: &Network) -> (BTreeMap<IpNetwork, Node>, BTreeSet<u32>) {
    let desired = &network.desired;
    let way = |route: &Route| match route {
        Route::Direct { link, .. } => Some(Node::Direct(*link)),
        Route::Overlay { gateway } => {
            let mac = desired.neighbours.get(gateway)?;
            match desired.fdb.get(mac)? {
                IpAddr::V4(ip) => Some(Node::Vxlan(*ip)),
                IpAddr::V6(_) => None,
            }
        }
        Route::Unreachable => None,
    };
    let routes = desired.routes.iter();
    let nodes = routes.filter(|(key, _)| **key == RouteKey::to(key.destination));
    let nodes = nodes.filter_map(|(key, route)| Some((key.destination, way(route)?)));
    let nodes: BTreeMap<IpNetwork, Node> = nodes.collect();
    let direct = nodes.values().filter_map(|node| match node {
        Node::Direct(link) => Some(*link),
        Node::Vxlan(_) => None,
    });
    let direct = direct.collect();
    (nodes, direct)
}

/// The VXLAN device, if it is there and its outer header is one that the programs make.
fn vxlan(device: &VxlanDevice, facts: &Facts<'_>) -> Option<Vxlan> {
    let IpAddr::V4(node) = device.local else {
        return None;
    };
    let link = facts.links.values().find(|link| link.name == device.name)?;
    Some(Vxlan {
        link: link.index,
        vni: device.vni,
        port: device.port,
        node,
        source_ports: facts.ports,
    })
}

/// The links by which packets of other nodes come.
fn underlay(facts: &Facts<'_>) -> BTreeSet<u32> {
    let underlay = &facts.network.underlay;
    let by_path = underlay.path.as_ref();
    let by_path = by_path.and_then(|path| facts.links.values().find(|link| link.name == path.link));
    let (_, direct) = nodes(facts.network);
    let own = facts.links.get(&underlay.interface);
    let all = own.into_iter().chain(by_path).map(|link| link.index);
    let all = all.chain(direct);
    let is_wire = |index: &u32| facts.links.get(index).is_some_and(|link| !link.loopback);
    all.filter(is_wire).collect()
}
