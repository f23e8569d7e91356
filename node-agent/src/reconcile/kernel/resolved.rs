//! The plan in the kernel's terms: names become interface indices, and what
//! cannot be written yet is left out. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tweed_core::{family::Family, mac::Mac};
use tweed_netlink::route::{Kind, Route};

use super::key::{AddressKey, FdbKey, NeighbourKey};
use tweed_core::problem::{Problem, ProblemKind};
use tweed_planner::overlay::desired::{self, Desired, ROUTE_PROTOCOL, RouteKey};
use tweed_planner::overlay::host::HostFacts;

/// The objects that the kernel should hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Index of the VXLAN device.
    pub device: Option<u32>,
    /// Addresses of the VXLAN device.
    pub addresses: BTreeSet<AddressKey>,
    /// Neighbours on the VXLAN device.
    pub neighbours: BTreeMap<NeighbourKey, Mac>,
    /// The FDB of the VXLAN device: the outer address of each MAC.
    pub fdb: BTreeMap<FdbKey, IpAddr>,
    /// Routes.
    pub routes: BTreeMap<RouteKey, Route>,
    /// Keys of the routes to local pods: [`crate::reconcile::pods`] keeps these.
    pub kept: BTreeSet<RouteKey>,
}

impl Resolved {
    /// Resolves `desired` where `device` is the index of the VXLAN device and
    /// `host` this machine's own network. Without the device, objects that need
    /// it are left out. A direct route whose gateway is no longer on its link, which
    /// the kernel would refuse, becomes an unreachable one; that is one problem for each
    /// link. The planner makes none from the same network: the link has changed under a
    /// plan that is held.
    pub fn resolve(
        desired: &Desired,
        device: Option<u32>,
        host: &HostFacts,
    ) -> (Self, Vec<Problem>) {
        let mut resolved = Self {
            device,
            ..Self::default()
        };
        if let Some(device) = device {
            let on_device = |network: &_| AddressKey {
                device,
                network: *network,
            };
            resolved.addresses = desired.vxlan_addresses.iter().map(on_device).collect();
            resolved.neighbours = (desired.neighbours.iter())
                .map(|(ip, mac)| (NeighbourKey { device, ip: *ip }, *mac))
                .collect();
            resolved.fdb = (desired.fdb.iter())
                .map(|(mac, remote)| (FdbKey { device, mac: *mac }, *remote))
                .collect();
        }
        let mut lost = BTreeMap::new();
        for (key, route) in &desired.routes {
            let blank = Route {
                metric: key.metric,
                ..Route::to(key.destination, ROUTE_PROTOCOL)
            };
            let route = match route {
                desired::Route::Unreachable => Some((*key, unreachable(*key))),
                desired::Route::Overlay { gateway } => device.map(|device| {
                    let route = Route {
                        out: Some(device),
                        gateway: Some(*gateway),
                        onlink: true,
                        ..blank
                    };
                    (*key, route)
                }),
                desired::Route::Direct { gateway, link } if host.on_link(*link, *gateway) => {
                    let route = Route {
                        out: Some(*link),
                        gateway: Some(*gateway),
                        ..blank
                    };
                    Some((*key, route))
                }
                desired::Route::Direct { gateway, link } => {
                    let gateways: &mut BTreeSet<IpAddr> = lost.entry(*link).or_default();
                    gateways.insert(*gateway);
                    // The default route must not take packets to these pods.
                    let key = RouteKey::unreachable(key.destination);
                    Some((key, unreachable(key)))
                }
            };
            resolved.routes.extend(route);
        }
        let by_link = lost.into_iter();
        let problems = by_link.map(|(link, gateways)| lost_link(host, link, &gateways));
        (resolved, problems.collect())
    }
}

fn unreachable(key: RouteKey) -> Route {
    Route {
        kind: Kind::Unreachable,
        metric: key.metric,
        ..Route::to(key.destination, ROUTE_PROTOCOL)
    }
}

/// That the link with this index does not lead to `gateways` any more, each of which is
/// the address that one Node has of its family.
fn lost_link(host: &HostFacts, link: u32, gateways: &BTreeSet<IpAddr>) -> Problem {
    let name = match host.interfaces.get(&link) {
        Some(interface) => interface.name.clone(),
        None => format!("link number {link} (gone)"),
    };
    let four = gateways.iter().filter(|gateway| gateway.is_ipv4()).count();
    let nodes: Vec<String> = [(four, Family::V4), (gateways.len() - four, Family::V6)]
        .into_iter()
        .filter(|(nodes, _)| *nodes > 0)
        .map(|(nodes, family)| format!("{nodes} over {family}"))
        .collect();
    let message = format!(
        "Nodes that the last plan reaches directly over {name} are not on it any more ({}): \
         until there is another plan, their pods are unreachable",
        nodes.join(", ")
    );
    Problem::new(ProblemKind::GatewayNotOnLink, name, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_planner::overlay::host::ConnectedRoute;

    fn desired(route: desired::Route) -> Desired {
        let key = RouteKey {
            destination: "10.244.2.0/24".parse().unwrap(),
            metric: 0,
        };
        Desired {
            vxlan_addresses: ["10.244.1.0/32".parse().unwrap()].into(),
            routes: [(key, route)].into(),
            ..Desired::default()
        }
    }

    #[test]
    fn without_the_device_only_what_does_not_need_it_is_resolved() {
        let overlay = desired(desired::Route::Overlay {
            gateway: "10.244.2.0".parse().unwrap(),
        });
        let (resolved, problems) = Resolved::resolve(&overlay, None, &HostFacts::default());
        assert_eq!(resolved, Resolved::default());
        assert_eq!(problems, vec![]);
        let (resolved, _) = Resolved::resolve(&overlay, Some(7), &HostFacts::default());
        assert_eq!((resolved.addresses.len(), resolved.routes.len()), (1, 1));
        let (resolved, _) = Resolved::resolve(
            &desired(desired::Route::Unreachable),
            None,
            &HostFacts::default(),
        );
        assert_eq!(resolved.routes.len(), 1);
    }

    #[test]
    fn a_direct_route_takes_the_link_of_the_own_address_and_no_other() {
        let direct = desired(desired::Route::Direct {
            gateway: "192.0.2.9".parse().unwrap(),
            link: 2,
        });
        let connected = |network: &str, interface| ConnectedRoute {
            destination: network.parse().unwrap(),
            interface,
            by_hand: false,
        };
        let mut host = HostFacts {
            connected: [
                connected("192.0.2.0/24", 2),
                connected("192.0.2.0/24", 3),
                connected("192.0.2.0/28", 4),
            ]
            .into(),
            ..HostFacts::default()
        };
        let (resolved, problems) = Resolved::resolve(&direct, None, &host);
        assert_eq!(problems, vec![]);
        assert_eq!(
            resolved.routes.values().next().and_then(|route| route.out),
            Some(2)
        );
        host.connected.retain(|route| route.interface != 2);
        let (resolved, problems) = Resolved::resolve(&direct, None, &host);
        let key = RouteKey::unreachable("10.244.2.0/24".parse().unwrap());
        assert_eq!(resolved.routes, [(key, unreachable(key))].into());
        assert_eq!(problems[0].kind, ProblemKind::GatewayNotOnLink);
    }

    #[test]
    fn a_lost_link_is_one_problem_however_many_nodes_were_behind_it() {
        let route = |number: u8| {
            let four = (format!("10.244.{number}.0/24"), format!("192.0.2.{number}"));
            let six = (
                format!("fd00:0:0:{number}::/64"),
                format!("2001:db8::{number}"),
            );
            [four, six].map(|(destination, gateway)| {
                let gateway = gateway.parse().unwrap();
                let route = desired::Route::Direct { gateway, link: 2 };
                (RouteKey::to(destination.parse().unwrap()), route)
            })
        };
        let desired = Desired {
            routes: (2..=9).flat_map(route).collect(),
            ..Desired::default()
        };
        let (resolved, problems) = Resolved::resolve(&desired, None, &HostFacts::default());
        let routes = resolved.routes.values();
        assert_eq!(resolved.routes.len(), 16);
        assert!(routes.clone().all(|route| route.kind == Kind::Unreachable));
        let said: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
        assert_eq!(
            said,
            [
                "Nodes that the last plan reaches directly over link number 2 (gone) are \
              not on it any more (8 over IPv4, 8 over IPv6): until there is another plan, their \
              pods are unreachable"
            ]
        );
    }
}
