//! Looks for routing rules of others that lead packets past the routes to pods.
//!
//! It writes nothing and runs after everything was written: until then the routes that
//! it asks for may be missing. [`tweed_diagnosis`] asks the kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_diagnosis::policy_routing::{self, Target};
use tweed_netlink::Socket;
use tweed_planner::overlay::Network;
use tweed_planner::overlay::desired::Route;
use tweed_planner::overlay::host::{AddressState, HostFacts};

use super::{kernel::mirror::Mirror, outcome::Outcome, tables::PodLinks};

/// Maximum number of the machine's addresses that rules by source are asked for.
const MAX_SOURCES: usize = 32;

/// Names routing rules that hide tweed's routes.
#[derive(Default)]
pub struct RoutingInspector {
    /// What was found when it was last looked; none before that.
    found: Option<Vec<Problem>>,
}

impl RoutingInspector {
    /// Asks the kernel, if `due` says so or it was never asked. There are notifications
    /// of rules, but none of what a changed table means for a route.
    pub fn inspect(
        &mut self,
        network: &Network,
        mirror: &Mirror,
        pods: &PodLinks,
        due: bool,
    ) -> Outcome {
        if due || self.found.is_none() {
            let targets = targets(network, pods);
            let sources = sources(&mirror.host_facts());
            let asked = Socket::open()
                .and_then(|mut socket| policy_routing::problems(&mut socket, &targets, &sources));
            let unreadable = |error: tweed_netlink::Error| {
                let kind = ProblemKind::KernelUnreadable;
                let problem = Problem::new(kind, "routing rules", error.to_string());
                vec![problem.with_effect(Effect::Warning)]
            };
            self.found = Some(asked.unwrap_or_else(unreadable));
        }
        Outcome {
            problems: self.found.clone().unwrap_or_default(),
            ..Outcome::default()
        }
    }
}

/// A local pod and a pod CIDR of another node, of each family.
fn targets(network: &Network, pods: &PodLinks) -> Vec<Target> {
    let desired = &network.desired;
    let ranges = &desired.ruleset.cluster_cidrs;
    let widest = |address: IpAddr| {
        let holding = ranges.iter().filter(|range| range.contains(address));
        let range = holding.min_by_key(|range| range.prefix()).copied();
        let range = range.unwrap_or_else(|| IpNetwork::from(address));
        Target { address, range }
    };
    let peers = desired
        .routes
        .iter()
        .filter_map(|(key, route)| match route {
            Route::Overlay { .. } | Route::Direct { .. } => Some(key.destination.network()),
            Route::Unreachable => None,
        });
    let pods = pods.iter().map(|(address, _)| *address);
    let mut targets = Vec::new();
    for family in [Family::V4, Family::V6] {
        let of_family = |address: &IpAddr| Family::of(*address) == family;
        targets.extend(pods.clone().find(of_family).map(widest));
        targets.extend(peers.clone().find(of_family).map(widest));
    }
    targets
}

/// The addresses that this machine sends from.
fn sources(host: &HostFacts) -> Vec<IpAddr> {
    let addresses = host.interfaces.values().flat_map(|link| &link.addresses);
    let usable = addresses.filter(|address| address.state == AddressState::Usable);
    let is_routed = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let addresses: BTreeSet<IpAddr> = usable.map(|a| a.network.ip()).filter(is_routed).collect();
    addresses.into_iter().take(MAX_SOURCES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_planner::overlay::Underlay;
    use tweed_planner::overlay::desired::{Desired, RouteKey};
    use tweed_planner::overlay::host::{HostAddress, Interface, Path};

    fn network() -> Network {
        let cidr = |text: &str| text.parse::<IpNetwork>().unwrap();
        let overlay = |text: &str| {
            let gateway = cidr(text).network();
            (RouteKey::to(cidr(text)), Route::Overlay { gateway })
        };
        let mut desired = Desired {
            routes: ["10.244.2.0/24", "10.244.3.0/24", "fd00:0:0:2::/64"]
                .map(overlay)
                .into(),
            ..Desired::default()
        };
        let own = RouteKey::unreachable(cidr("10.244.1.0/24"));
        desired.routes.insert(own, Route::Unreachable);
        desired.ruleset.cluster_cidrs = ["10.244.0.0/16", "10.244.2.0/24"].map(cidr).into();
        Network {
            desired,
            pod_cidrs: vec![cidr("10.244.1.0/24")],
            pod_mtu: 1450,
            underlay: Underlay {
                address: "192.0.2.1".parse().unwrap(),
                interface: 2,
                name: "eth0".to_owned(),
                path: Some(Path {
                    mtu: 1500,
                    link: "eth0".to_owned(),
                }),
            },
            own_addresses: Default::default(),
            host_sources: Default::default(),
        }
    }

    #[test]
    fn a_pod_and_a_peer_of_each_family_are_asked_for() {
        let pods = ["10.244.1.5", "10.244.1.6"].map(|ip| (ip.parse().unwrap(), 7));
        let asked = targets(&network(), &pods.into());
        let asked: Vec<(String, String)> = asked
            .iter()
            .map(|target| (target.address.to_string(), target.range.to_string()))
            .collect();
        let pair = |address: &str, range: &str| (address.to_owned(), range.to_owned());
        assert_eq!(
            asked,
            [
                pair("10.244.1.5", "10.244.0.0/16"),
                pair("10.244.2.0", "10.244.0.0/16"),
                pair("fd00:0:0:2::", "fd00:0:0:2::/128"),
            ]
        );
    }

    #[test]
    fn the_machine_sends_from_addresses_that_others_can_answer_to() {
        let address = |network: &str, state| HostAddress {
            network: network.parse().unwrap(),
            state,
        };
        let addresses = [
            ("127.0.0.1/8", AddressState::Usable),
            ("::1/128", AddressState::Usable),
            ("169.254.1.1/16", AddressState::Usable),
            ("fe80::1/64", AddressState::Usable),
            ("192.0.2.1/24", AddressState::Usable),
            ("2001:db8::1/64", AddressState::Usable),
            ("2001:db8::2/64", AddressState::Tentative),
            ("2001:db8::3/64", AddressState::Temporary),
        ];
        let link = Interface {
            name: "eth0".into(),
            mtu: 1500,
            mtu_v6: 1500,
            up: true,
            loopback: false,
            dummy: false,
            port: false,
            addresses: addresses
                .map(|(network, state)| address(network, state))
                .into(),
        };
        let host = HostFacts {
            connected: Default::default(),
            interfaces: [(2, link)].into(),
            paths: Default::default(),
            last_pod_mtu: None,
        };
        let expected = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(sources(&host), expected);
    }
}
