use std::fmt;

use super::*;
use crate::config::DefaultRoute;
use tweed_cni::Route;
use tweed_core::attachment::{ContainerId, IfName, NetworkName};

fn attachment() -> Attachment {
    Attachment {
        network: NetworkName::new("tweed").unwrap(),
        container_id: ContainerId::new("c1").unwrap(),
        ifname: IfName::new("eth0").unwrap(),
    }
}

fn steps(addresses: &[&str], routes: &[&str], mtu: u32) -> Result<Vec<Step>, CniError> {
    let addresses: Vec<IpAddr> = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
    let routes: Vec<Route> = routes
        .iter()
        .map(|dst| Route::to(dst.parse().unwrap()))
        .collect();
    plan(&Desired {
        attachment: &attachment(),
        pod: None,
        pod_mac: attachment().pod_mac(),
        mtu,
        addresses: &addresses,
        routes: &pod_routes(&addresses, &routes, DefaultRoute::Implied),
        host_source: &["192.0.2.7".parse().unwrap()],
    })
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host end",
            Self::Pod => "pod end",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreatePair { host, pod } => write!(f, "create {} and {}", host.name, pod.name),
            Self::SwitchOff(side, setting) => write!(f, "{side}: ipv6 {setting} = 0"),
            Self::NoLinkLocal(side) => write!(f, "{side}: no link-local address"),
            Self::Ipv4Gateway => write!(f, "{}: IPv4 gateway without redirects", Side::Host),
            Self::Address(network) => write!(f, "{}: address {network}", Side::Pod),
            Self::Up(side, None) => write!(f, "{side}: up"),
            Self::Up(side, Some(alias)) => write!(f, "{side}: up, alias {alias:?}"),
            Self::Neighbour(side, ip, mac) => write!(f, "{side}: neighbour {ip} is {mac}"),
            Self::Route(side, route) => write!(f, "{side}: route {route}"),
            Self::GatewayRoute(route) => write!(f, "{}: gateway route {route}", Side::Pod),
            Self::ImpliedDefault(route) => write!(f, "{}: implied route {route}", Side::Pod),
            Self::QueryCarrier(side) => write!(f, "{side}: query carrier"),
        }
    }
}

fn text(steps: &[Step]) -> Vec<String> {
    steps.iter().map(ToString::to_string).collect()
}

#[test]
fn an_ipv4_pod_takes_these_steps_in_this_order() {
    assert_eq!(
        text(&steps(&["10.244.1.5"], &[], 1450).unwrap()),
        [
            "create twe00e76fd76b4 and eth0",
            "host end: ipv6 accept_ra = 0",
            "host end: ipv6 autoconf = 0",
            "host end: ipv6 accept_redirects = 0",
            "pod end: no link-local address",
            "pod end: address 10.244.1.5/32",
            "pod end: up",
            "pod end: neighbour 169.254.1.1 is 26:d3:0d:b5:98:96",
            "pod end: gateway route 169.254.1.1/32",
            "pod end: implied route 0.0.0.0/0 via 169.254.1.1",
            "host end: no link-local address",
            "host end: IPv4 gateway without redirects",
            "host end: up, alias \"tweed:tweed/c1/eth0\"",
            "host end: neighbour 10.244.1.5 is 2a:07:c5:6e:99:61",
            "host end: route 10.244.1.5/32",
            "host end: query carrier",
            "pod end: query carrier",
        ]
    );
}

#[test]
fn both_families_are_one_path() {
    let both = text(&steps(&["10.244.1.5", "fd00::5"], &[], 1450).unwrap());
    for step in [
        "host end: ipv6 disable_ipv6 = 0",
        "pod end: ipv6 accept_ra = 0",
        "pod end: ipv6 autoconf = 0",
        "pod end: ipv6 disable_ipv6 = 0",
        "pod end: address fd00::5/128",
        "pod end: neighbour fe80::1 is 26:d3:0d:b5:98:96",
        "pod end: implied route ::/0 via fe80::1",
        "host end: neighbour fd00::5 is 2a:07:c5:6e:99:61",
        "host end: route fd00::5/128",
    ] {
        assert!(both.iter().any(|line| line == step), "{step}: {both:#?}");
    }
}

#[test]
fn no_end_is_up_before_its_settings_and_only_the_pair_has_an_undo() {
    let steps = steps(&["10.244.1.5", "fd00::5"], &[], 1450).unwrap();
    for side in [Side::Host, Side::Pod] {
        let up = steps
            .iter()
            .position(|s| matches!(s, Step::Up(of, _) if *of == side));
        let last = steps.iter().rposition(|step| match step {
            Step::SwitchOff(of, _) | Step::NoLinkLocal(of) => *of == side,
            Step::Ipv4Gateway => side == Side::Host,
            _ => false,
        });
        assert!(last < up, "{side}");
    }
    assert!(steps[0].needs_undo());
    assert!(steps[1..].iter().all(|step| !step.needs_undo()));
}

#[test]
fn the_host_route_has_the_source_of_its_family() {
    let source = |ip: &str| host_route(ip.parse().unwrap(), &["192.0.2.7".parse().unwrap()]).source;
    assert_eq!(source("10.244.1.5"), Some("192.0.2.7".parse().unwrap()));
    assert_eq!(source("fd00::5"), None);
}

#[test]
fn ipv6_needs_its_mtu() {
    assert!(steps(&["10.244.1.5"], &[], 600).is_ok());
    assert_eq!(steps(&["fd00::5"], &[], 1279).unwrap_err().code, 7);
    assert!(steps(&["fd00::5"], &[], 1280).is_ok());
}
