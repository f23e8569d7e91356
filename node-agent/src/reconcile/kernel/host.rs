//! This machine's own network, as the planner needs it.

use tweed_netlink::{link::Link, owned};
use tweed_planner::overlay::host::{HostAddress, HostFacts, Interface};

use super::mirror::Mirror;

impl Mirror {
    /// The machine's own network: everything but tweed's links.
    pub fn host_facts(&self) -> HostFacts {
        let is_own = |link: &Link| !self.is_device(link) && !owned::is_any_pod_link(link);
        let interfaces = self.links.iter().filter(|(_, link)| is_own(link));
        let interface = |index: u32, link: &Link| Interface {
            name: link.name.clone(),
            mtu: link.mtu,
            up: link.up && link.carrier,
            addresses: self
                .addresses
                .iter()
                .filter(|(key, _)| key.device == index)
                .map(|(key, state)| HostAddress {
                    network: key.network,
                    state: *state,
                })
                .collect(),
        };
        let connected = self.connected.iter();
        HostFacts {
            interfaces: interfaces
                .map(|(index, link)| (*index, interface(*index, link)))
                .collect(),
            connected: connected
                .filter(|route| self.links.get(&route.interface).is_some_and(is_own))
                .copied()
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tweed_planner::overlay::host::ConnectedRoute;

    use super::*;

    #[test]
    fn the_machines_own_network_is_without_what_tweed_made() {
        let named = |index, name: &str, group| Link {
            index,
            name: name.to_owned(),
            group,
            alias: Some("tweed:tweed/c/eth0".to_owned()),
            up: true,
            carrier: true,
            ..Link::default()
        };
        let mut mirror = Mirror::default();
        let pod = named(3, "tw001122334455", 116);
        let leaving = named(4, "twx01122334455", 117);
        mirror.set_links([(2, named(2, "eth0", 0)), (3, pod), (4, leaving)].into());
        mirror.connected = [2, 3]
            .map(|interface| ConnectedRoute {
                destination: "192.0.2.0/24".parse().unwrap(),
                interface,
            })
            .into();
        let host = mirror.host_facts();
        assert_eq!(host.interfaces.keys().collect::<Vec<_>>(), [&2]);
        assert!(host.interfaces[&2].up);
        assert_eq!(host.connected.len(), 1);
    }
}
