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
            "pods whose links have a limit of bandwidth, a filter or a bridge of others ({others})"
        ));
    }

    let nodes = nodes(facts.network);
    let links = nodes.values().filter_map(|node| match node {
        Node::Direct(link) => Some(*link),
        Node::Vxlan(..) => None,
    });
    let direct: BTreeSet<u32> = links.collect();
    let underlay = underlay(facts, &direct);
    let device = facts.network.desired.vxlan.as_ref();
    let found = device.and_then(|device| vxlan(device, facts, only(&underlay)));
    planned.plan.vxlan = found.filter(|vxlan| !queued.contains(&vxlan.link));
    let left = match device {
        Some(device) if device.local.is_ipv6() => {
            Some("VXLAN over IPv6, whose outer header needs a checksum")
        }
        Some(_) if planned.plan.vxlan.is_none() => {
            Some("VXLAN, whose device is not there or has a queue or filter of others (tc)")
        }
        _ => None,
    };
    planned.left.extend(left.map(str::to_owned));
    let has_vxlan = planned.plan.vxlan.is_some();
    planned.plan.nodes = nodes
        .into_iter()
        .filter(|(_, node)| has_vxlan || matches!(node, Node::Direct(_)))
        .collect();

    for index in underlay {
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

/// How the pod CIDRs of other nodes are reached.
fn nodes(network: &Network) -> BTreeMap<IpNetwork, Node> {
    let desired = &network.desired;
    let way = |route: &Route| match route {
        Route::Direct { link, .. } => Some(Node::Direct(*link)),
        Route::Overlay { gateway } => {
            let mac = desired.neighbours.get(gateway)?;
            match desired.fdb.get(mac)? {
                IpAddr::V4(ip) => Some(Node::Vxlan(*ip, mac.0)),
                IpAddr::V6(_) => None,
            }
        }
        Route::Unreachable => None,
    };
    let routes = desired.routes.iter();
    let to_nodes = routes.filter(|(key, _)| **key == RouteKey::to(key.destination));
    let nodes = to_nodes.filter_map(|(key, route)| Some((key.destination, way(route)?)));
    nodes.collect()
}

/// The VXLAN device, if it is there and its outer header is one that the programs make.
fn vxlan(device: &VxlanDevice, facts: &Facts<'_>, underlay: Option<u32>) -> Option<Vxlan> {
    let IpAddr::V4(node) = device.local else {
        return None;
    };
    let link = facts.links.values().find(|link| link.name == device.name)?;
    Some(Vxlan {
        link: link.index,
        vni: device.vni,
        port: device.port,
        node,
        underlay,
        source_ports: facts.ports,
    })
}

/// The one that there is.
fn only(links: &BTreeSet<u32>) -> Option<u32> {
    links.first().filter(|_| links.len() == 1).copied()
}

/// The links by which packets of other nodes come; `direct` are those of plain routes.
fn underlay(facts: &Facts<'_>, direct: &BTreeSet<u32>) -> BTreeSet<u32> {
    let underlay = &facts.network.underlay;
    let path = underlay.path.as_ref();
    let by_path = path.and_then(|path| facts.links.values().find(|link| link.name == path.link));
    let own = facts.links.get(&underlay.interface);
    let indices = own.into_iter().chain(by_path).map(|link| link.index);
    let all = indices.chain(direct.iter().copied());
    let is_wire = |index: &u32| facts.links.get(index).is_some_and(|link| !link.loopback);
    all.filter(is_wire).collect()
}

#[cfg(test)]
mod tests {
    use tweed_core::mac::Mac;
    use tweed_planner::overlay::Underlay;
    use tweed_planner::overlay::desired::{Desired, Ruleset};

    use super::*;

    const NIC: u32 = 2;
    const DEVICE: u32 = 3;

    fn link(index: u32, name: &str) -> (u32, Link) {
        let link = Link {
            index,
            name: name.to_owned(),
            ..Link::default()
        };
        (index, link)
    }

    fn qdisc(link: u32, kind: &str) -> Qdisc {
        Qdisc {
            link,
            kind: kind.to_owned(),
        }
    }

    /// A node with a node behind VXLAN and one on its link, and pods at the links 7 and 8.
    struct World {
        network: Network,
        links: BTreeMap<u32, Link>,
        qdiscs: Vec<Qdisc>,
    }

    impl World {
        fn new(local: &str, other: &str) -> Self {
            let cidr = |text: &str| text.parse::<IpNetwork>().unwrap();
            let (gateway, mac) = ("10.244.2.0".parse().unwrap(), Mac([2; 6]));
            let direct = Route::Direct {
                gateway: "192.0.2.13".parse().unwrap(),
                link: NIC,
            };
            let routes = [
                (
                    RouteKey::to(cidr("10.244.2.0/24")),
                    Route::Overlay { gateway },
                ),
                (RouteKey::to(cidr("10.244.3.0/24")), direct),
                (
                    RouteKey::unreachable(cidr("10.244.0.0/16")),
                    Route::Unreachable,
                ),
            ];
            let desired = Desired {
                neighbours: [(gateway, mac)].into(),
                fdb: [(mac, other.parse().unwrap())].into(),
                routes: routes.into(),
                ruleset: Ruleset {
                    local_cidrs: [cidr("10.244.1.0/24")].into(),
                    cluster_cidrs: [cidr("10.244.0.0/16")].into(),
                    ..Ruleset::default()
                },
                vxlan: Some(VxlanDevice {
                    name: "tweed.1".to_owned(),
                    vni: 1,
                    port: 8472,
                    local: local.parse().unwrap(),
                    mac,
                    mtu: 1450,
                }),
                ..Desired::default()
            };
            let network = Network {
                desired,
                pod_cidrs: vec![cidr("10.244.1.0/24")],
                pod_mtu: 1450,
                underlay: Underlay {
                    address: local.parse().unwrap(),
                    interface: NIC,
                    name: "eth0".to_owned(),
                    path: None,
                },
                own_addresses: BTreeMap::new(),
                host_sources: BTreeMap::new(),
            };
            let names = [(NIC, "eth0"), (DEVICE, "tweed.1"), (7, "twa"), (8, "twb")];
            Self {
                network,
                links: names
                    .iter()
                    .map(|(index, name)| link(*index, name))
                    .collect(),
                qdiscs: vec![qdisc(NIC, "mq"), qdisc(7, "noqueue"), qdisc(8, "noqueue")],
            }
        }

        fn plan(&self) -> Planned {
            plan(&Facts {
                network: &self.network,
                links: &self.links,
                pods: &[7, 8].into(),
                services: &["10.96.0.0/12".parse().unwrap()],
                qdiscs: &self.qdiscs,
                ports: (32_768, 60_999),
            })
        }
    }

    #[test]
    fn pods_other_nodes_and_services_are_planned() {
        let Planned { plan, left } = World::new("192.0.2.11", "192.0.2.12").plan();
        assert_eq!(left, Vec::<String>::new());
        assert_eq!(plan.pods, [7, 8].into());
        assert_eq!((plan.underlay, plan.direct), ([NIC].into(), [NIC].into()));
        let vxlan = plan.vxlan.unwrap();
        assert_eq!(
            (vxlan.link, vxlan.node.to_string()),
            (DEVICE, "192.0.2.11".to_owned())
        );
        let nodes: Vec<_> = plan.nodes.into_values().collect();
        assert_eq!(
            nodes,
            [
                Node::Vxlan([192, 0, 2, 12].into(), [2; 6]),
                Node::Direct(NIC)
            ]
        );
        assert_eq!(plan.ranges.len(), 3);
    }

    #[test]
    fn what_a_redirect_would_pass_by_stays_on_the_kernels_path() {
        let mut world = World::new("192.0.2.11", "192.0.2.12");
        world.qdiscs = vec![qdisc(NIC, "clsact"), qdisc(7, "tbf"), qdisc(8, "noqueue")];
        let Planned { plan, left } = world.plan();
        assert_eq!((plan.pods, plan.underlay), ([8].into(), [].into()));
        assert!(
            left[0].contains("(1)") && left[1].contains("eth0"),
            "{left:?}"
        );
        let bridged = world.links.get_mut(&8).unwrap();
        bridged.master = Some(9);
        assert_eq!(world.plan().plan.pods, [].into());
    }

    #[test]
    fn vxlan_over_ipv6_stays_on_the_kernels_path() {
        let Planned { plan, left } = World::new("fd00::11", "fd00::12").plan();
        assert_eq!(plan.vxlan, None);
        let nodes: Vec<_> = plan.nodes.into_values().collect();
        assert_eq!(nodes, [Node::Direct(NIC)]);
        assert!(left[0].contains("IPv6"), "{left:?}");
    }

    #[test]
    fn before_the_device_is_there_nothing_goes_by_it() {
        let mut world = World::new("192.0.2.11", "192.0.2.12");
        world.links.remove(&DEVICE);
        assert_eq!(world.plan().plan.vxlan, None);
    }
}
