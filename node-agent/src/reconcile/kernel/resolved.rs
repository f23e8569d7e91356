//! The plan in the kernel's terms: names become interface indices, and what
//! cannot be written yet is left out. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tweed_core::mac::Mac;
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
    /// it are left out. A direct route whose gateway is no longer on its link is a
    /// problem: the kernel would refuse it.
    pub fn resolve(
        desired: &Desired,
        device: Option<u32>,
        host: &HostFacts,
    ) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
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
        for (key, route) in &desired.routes {
            let blank = Route {
                metric: key.metric,
                ..Route::to(key.destination, ROUTE_PROTOCOL)
            };
            let route = match route {
                desired::Route::Unreachable => Some(Route {
                    kind: Kind::Unreachable,
                    ..blank
                }),
                desired::Route::Overlay { gateway } => device.map(|device| Route {
                    out: Some(device),
                    gateway: Some(*gateway),
                    onlink: true,
                    ..blank
                }),
                desired::Route::Direct { gateway, link } => {
                    let is_on_link = host.on_link(*link, *gateway);
                    if !is_on_link {
                        problems.push(gateway_not_on_link(key.destination, *gateway));
                    }
                    is_on_link.then_some(Route {
                        out: Some(*link),
                        gateway: Some(*gateway),
                        ..blank
                    })
                }
            };
            resolved.routes.extend(route.map(|route| (*key, route)));
        }
        (resolved, problems)
    }
}

fn gateway_not_on_link(destination: ipnetwork::IpNetwork, gateway: IpAddr) -> Problem {
    Problem::new(
        ProblemKind::GatewayNotOnLink,
        gateway.to_string(),
        format!(
            "pods of {destination} cannot be reached directly: their node is on no link of this one"
        ),
    )
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
        assert!(resolved.routes.is_empty());
        assert_eq!(problems[0].kind, ProblemKind::GatewayNotOnLink);
    }
}
