//! Looks for routing rules of others that lead packets past the routes to pods, and for
//! routes of others in the tables that rules lead to.
//!
//! It writes nothing and runs after everything was written: until then the routes that
//! it asks for may be missing. [`tweed_diagnosis`] asks the kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_diagnosis::policy_routing::{self, Peer, Ways};
use tweed_netlink::Socket;
use tweed_planner::overlay::Network;
use tweed_planner::overlay::desired::{Desired, Route, RouteKey};
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
            let vxlan = network.desired.vxlan.as_ref();
            let device = vxlan.and_then(|vxlan| mirror.link(&vxlan.name));
            let ways = Ways {
                links: &mirror.links,
                sources: &sources(&mirror.host_facts()),
                pods,
                own: &network.pod_cidrs,
                peers: &peers(&network.desired, device.map(|device| device.index)),
                uplink: network.underlay.interface,
                ranges: &network.desired.ruleset.cluster_cidrs,
            };
            let asked =
                Socket::open().and_then(|mut socket| policy_routing::problems(&mut socket, &ways));
            let unreadable = |error: tweed_netlink::Error| {
                let kind = ProblemKind::KernelUnreadable;
                let problem = Problem::new(kind, "routing rules", error.to_string());
                vec![problem.with_effect(Effect::Warning)]
            };
            self.found = Some(asked.unwrap_or_else(unreadable));
        }
        Outcome::of(self.found.clone().unwrap_or_default())
    }
}

/// The routes to other nodes' pods, where `device` is the index of the VXLAN device, in the
/// order of their ranges.
fn peers(desired: &Desired, device: Option<u32>) -> Vec<Peer> {
    let peer = |(key, route): (&RouteKey, &Route)| {
        let (gateway, link) = match route {
            Route::Overlay { gateway } => (*gateway, device?),
            Route::Direct { gateway, link } => (*gateway, *link),
            Route::Unreachable => return None,
        };
        Some(Peer {
            range: key.destination,
            gateway,
            link,
        })
    };
    desired.routes.iter().filter_map(peer).collect()
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
    use ipnetwork::IpNetwork;
    use tweed_planner::overlay::host::{HostAddress, Interface};

    #[test]
    fn peers_are_the_routes_that_lead_to_other_nodes() {
        let cidr = |text: &str| text.parse::<IpNetwork>().unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let overlay = |gateway: &str| Route::Overlay {
            gateway: ip(gateway),
        };
        let direct = Route::Direct {
            gateway: ip("192.0.2.3"),
            link: 2,
        };
        let desired = Desired {
            routes: [
                (
                    RouteKey::to(cidr("fd00:0:0:2::/64")),
                    overlay("fd00:0:0:2::"),
                ),
                (RouteKey::to(cidr("10.244.3.0/24")), direct),
                (RouteKey::to(cidr("10.244.2.0/24")), overlay("10.244.2.0")),
                (
                    RouteKey::unreachable(cidr("10.244.1.0/24")),
                    Route::Unreachable,
                ),
            ]
            .into(),
            ..Desired::default()
        };
        let peer = |range, gateway, link| Peer {
            range: cidr(range),
            gateway: ip(gateway),
            link,
        };
        let near = peer("10.244.3.0/24", "192.0.2.3", 2);
        assert_eq!(
            peers(&desired, Some(7)),
            [
                peer("10.244.2.0/24", "10.244.2.0", 7),
                near,
                peer("fd00:0:0:2::/64", "fd00:0:0:2::", 7),
            ]
        );
        assert_eq!(peers(&desired, None), [near], "no device yet");
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
