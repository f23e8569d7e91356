//! Which routes a pod gets: those that IPAM requests, and default routes.

use std::{collections::BTreeSet, net::IpAddr};

use ipnetwork::IpNetwork;
use tweed_cni::{CniError, Route};
use tweed_core::ownership::ROUTE_PROTOCOL;
use tweed_netlink::route;

use super::gateway_of;
use crate::config::DefaultRoute;

/// The metric of the route to the gateway. With 0, the metric of routes that name none,
/// it would be in the way of the same route by others: a key `ipam.routes`, an init
/// container, or another network with this gateway.
const GATEWAY_METRIC: u32 = 1024;

/// A route of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRoute {
    /// The route, as it stands in the result.
    pub route: Route,
    /// Whether nobody asked for it: [`DefaultRoute::Implied`].
    pub is_implied: bool,
}

/// The pod's routes, all through the gateway of their family: those that IPAM
/// requests, and default routes as `default` says. Routes of a family of which the
/// pod has no address are left out.
pub fn pod_routes(
    addresses: &[IpAddr],
    requested: &[Route],
    default: DefaultRoute,
) -> Vec<PodRoute> {
    let mut routes = Vec::new();
    for any in ["0.0.0.0/0", "::/0"] {
        let Ok(any) = any.parse::<IpNetwork>() else {
            continue;
        };
        let is_of_family = |ip: IpAddr| ip.is_ipv4() == any.is_ipv4();
        let Some(address) = addresses.iter().copied().find(|ip| is_of_family(*ip)) else {
            continue;
        };
        let is_wanted = |route: &&Route| default != DefaultRoute::Never || !is_main_default(route);
        let of_family: Vec<&Route> = requested
            .iter()
            .filter(|route| is_of_family(route.dst.ip()))
            .filter(is_wanted)
            .collect();
        let gw = Some(gateway_of(address));
        let is_implied = default == DefaultRoute::Implied && of_family.is_empty();
        let is_required =
            default == DefaultRoute::Required && !of_family.iter().any(|it| is_main_default(it));
        if is_implied || is_required {
            let route = Route {
                gw,
                ..Route::to(any)
            };
            routes.push(PodRoute { route, is_implied });
        }
        routes.extend(of_family.into_iter().map(|route| PodRoute {
            route: Route {
                gw,
                priority: route.priority,
                table: route.table,
                ..Route::to(network_of(route.dst))
            },
            is_implied: false,
        }));
    }
    let mut seen = BTreeSet::new();
    routes.retain(|it| seen.insert(key(&it.route)));
    routes
}

/// What the kernel tells routes apart by: destination, table, metric. It refuses a
/// second one with the same.
fn key(route: &Route) -> (IpNetwork, u32, u32) {
    let metric = route.priority.unwrap_or(0);
    let metric = match route.dst {
        IpNetwork::V6(_) if metric == 0 => route::IPV6_DEFAULT_METRIC,
        _ => metric,
    };
    (route.dst, table_of(route), metric)
}

/// Checks that no requested route has another next hop than the node, the only one
/// that a pod has on its link. `node` are the addresses that mean the node besides the
/// pod's own gateways: the gateways of the pod's subnets.
///
/// # Errors
/// Code 7, naming the route.
pub fn check_next_hops(requested: &[Route], node: &[IpAddr]) -> Result<(), CniError> {
    let is_the_node = |route: &Route| {
        route.gw.is_none_or(|gw| {
            gw.is_ipv4() == route.dst.is_ipv4() && (gw == gateway_of(gw) || node.contains(&gw))
        })
    };
    let Some(route) = requested.iter().find(|route| !is_the_node(route)) else {
        return Ok(());
    };
    let (dst, gw) = (route.dst, route.gw.map(|gw| gw.to_string()));
    let own = gateway_of(dst.ip());
    let of_family = node.iter().filter(|gw| gw.is_ipv4() == dst.is_ipv4());
    let known: Vec<String> = of_family.chain([&own]).map(ToString::to_string).collect();
    Err(CniError::config(format!(
        "the gateway of route {dst} is {}: a pod has no other next hop than its node",
        gw.unwrap_or_default()
    ))
    .details(format!(
        "leave out gw of that route in ipam.routes; these stand for the node: {}",
        known.join(", ")
    )))
}

/// Whether it is a default route of the main table.
fn is_main_default(route: &Route) -> bool {
    route.dst.prefix() == 0 && is_main(route)
}

/// Whether it is in the main table.
pub fn is_main(route: &Route) -> bool {
    table_of(route) == route::MAIN_TABLE
}

/// The kernel's table of a route. No table and table 0 (unspecified) are the main one.
fn table_of(route: &Route) -> u32 {
    let table = route.table.filter(|table| *table != 0);
    table.unwrap_or(route::MAIN_TABLE)
}

/// The destination without host bits: the kernel's routes have none, and CHECK looks
/// for what ADD returned.
fn network_of(dst: IpNetwork) -> IpNetwork {
    IpNetwork::new(dst.network(), dst.prefix()).unwrap_or(dst)
}

/// Parts of the requested routes that have no effect here, as text for the log.
pub fn unsupported(requested: &[Route]) -> Vec<String> {
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
    requested
        .iter()
        .map(|route| (route, parts(route)))
        .filter(|(_, parts)| !parts.is_empty())
        .map(|(route, parts)| format!("{} of route {}", parts.join(" and "), route.dst))
        .collect()
}

/// The pod's route to its IPv4 gateway, which is not in the result. The pod's own
/// routes do not need it, as they are `onlink`. Programs in the pod, such as VPN
/// clients, add theirs without that flag, and then the kernel takes only a next hop to
/// which there is a route. With IPv6 it takes any link-local next hop of a named link.
pub(super) fn gateway_route(gateway: IpAddr) -> Option<route::Route> {
    let mut result = route::Route::to(gateway.into(), ROUTE_PROTOCOL);
    result.link_scope = true;
    result.metric = GATEWAY_METRIC;
    gateway.is_ipv4().then_some(result)
}

/// A route of the pod as the kernel takes it. No subnet of the pod contains the
/// gateway, so the kernel must be told that it is on-link.
pub(super) fn kernel_route(route: &Route) -> route::Route {
    let mut result = route::Route::to(route.dst, ROUTE_PROTOCOL);
    result.gateway = route.gw;
    result.onlink = true;
    result.metric = route.priority.unwrap_or(0);
    result.table = table_of(route);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn to(dst: &str) -> Route {
        Route::to(dst.parse().unwrap())
    }

    /// The destinations, those of implied routes in brackets.
    fn destinations(requested: &[Route], default: DefaultRoute) -> Vec<String> {
        pod_routes(&addresses(&["10.244.1.5", "fd00::5"]), requested, default)
            .into_iter()
            .map(|it| {
                if it.is_implied {
                    format!("({})", it.route.dst)
                } else {
                    it.route.dst.to_string()
                }
            })
            .collect()
    }

    #[test]
    fn a_family_with_routes_of_its_own_gets_no_default() {
        let ips = addresses(&["10.244.1.5", "fd00::5"]);
        let requested = [Route {
            gw: Some("10.244.1.1".parse().unwrap()),
            mtu: Some(1400),
            priority: Some(7),
            ..to("10.0.0.0/8")
        }];
        let routes = pod_routes(&ips, &requested, DefaultRoute::Implied);
        assert_eq!(routes.len(), 2);
        assert_eq!(routes[0].route.dst.to_string(), "10.0.0.0/8");
        assert_eq!(routes[0].route.gw, Some("169.254.1.1".parse().unwrap()));
        assert_eq!(
            (routes[0].route.mtu, routes[0].route.priority),
            (None, Some(7))
        );
        assert_eq!(routes[1].route.dst.to_string(), "::/0");
        assert_eq!(unsupported(&requested), ["mtu of route 10.0.0.0/8"]);
        assert_eq!(
            pod_routes(&ips[1..], &requested, DefaultRoute::Implied).len(),
            1,
            "IPv4 route, no IPv4 address"
        );
    }

    #[test]
    fn the_keys_decide_on_default_routes() {
        use DefaultRoute::{AsRequested, Implied, Never, Required};
        let (v4, v6) = ("0.0.0.0/0", "::/0");
        assert_eq!(destinations(&[], Implied), ["(0.0.0.0/0)", "(::/0)"]);
        assert_eq!(destinations(&[to(v4)], Implied), [v4, "(::/0)"]);
        assert_eq!(destinations(&[], Required), [v4, v6]);
        assert_eq!(
            destinations(&[to(v4), to("10.0.0.0/8")], Required),
            [v4, "10.0.0.0/8", v6]
        );
        assert_eq!(destinations(&[], AsRequested), [""; 0]);
        assert_eq!(destinations(&[to(v6)], AsRequested), [v6]);
        assert_eq!(
            destinations(&[to(v4), to("10.0.0.0/8"), to(v6)], Never),
            ["10.0.0.0/8"]
        );
        let elsewhere = Route {
            table: Some(7),
            ..to(v4)
        };
        assert_eq!(destinations(std::slice::from_ref(&elsewhere), Never), [v4]);
        assert_eq!(destinations(&[elsewhere], Required), [v4, v4, v6]);
    }

    #[test]
    fn a_route_that_is_named_twice_is_made_once() {
        let of = |dst: &str, priority, table| Route {
            priority,
            table,
            ..to(dst)
        };
        let requested = [
            to("10.0.0.0/8"),
            of("10.1.2.3/8", None, Some(254)),
            of("10.0.0.0/8", Some(0), None),
            of("10.0.0.0/8", Some(7), None),
            of("10.0.0.0/8", None, Some(7)),
            to("fd00::/8"),
            of("fd00::/8", Some(1024), Some(0)),
            of("fd00::/8", Some(1), None),
        ];
        assert_eq!(
            destinations(&requested, DefaultRoute::Implied),
            [
                "10.0.0.0/8",
                "10.0.0.0/8",
                "10.0.0.0/8",
                "fd00::/8",
                "fd00::/8"
            ]
        );
    }

    #[test]
    fn the_only_next_hop_is_the_node() {
        let node = addresses(&["10.244.1.1", "fd00::1"]);
        let by = |dst: &str, gw: &str| Route {
            gw: Some(gw.parse().unwrap()),
            ..to(dst)
        };
        for fine in [
            to("10.0.0.0/8"),
            by("0.0.0.0/0", "10.244.1.1"),
            by("10.0.0.0/8", "169.254.1.1"),
            by("::/0", "fd00::1"),
            by("::/0", "fe80::1"),
        ] {
            assert_eq!(
                check_next_hops(std::slice::from_ref(&fine), &node),
                Ok(()),
                "{fine:?}"
            );
        }
        for (dst, gw) in [
            ("192.0.2.0/24", "10.244.1.77"),
            ("0.0.0.0/0", "fd00::1"),
            ("::/0", "10.244.1.1"),
            ("::/0", "fe80::2"),
        ] {
            let error = check_next_hops(&[to("10.0.0.0/8"), by(dst, gw)], &node).unwrap_err();
            assert_eq!(error.code, 7);
            for word in [dst, gw] {
                assert!(error.msg.contains(word), "{word}: {error}");
            }
            let known = if gw == "10.244.1.77" || dst == "0.0.0.0/0" {
                "10.244.1.1, 169.254.1.1"
            } else {
                "fd00::1, fe80::1"
            };
            assert!(error.details.ends_with(known), "{error}");
        }
    }

    #[test]
    fn bits_behind_a_routes_prefix_do_not_matter() {
        let routes = pod_routes(
            &addresses(&["10.244.1.5"]),
            &[to("10.1.2.3/8")],
            DefaultRoute::Implied,
        );
        assert_eq!(routes[0].route.dst.to_string(), "10.0.0.0/8");
    }
}
