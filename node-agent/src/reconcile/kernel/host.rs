//! This machine's own network, as the planner needs it.

use std::collections::BTreeMap;

use tweed_core::family::Family;
use tweed_netlink::{Error, link::Link, owned, path};
use tweed_planner::overlay::PathTargets;
use tweed_planner::overlay::host::{HostAddress, HostFacts, Interface, Path};

use super::{Kernel, mirror::Mirror};

impl Kernel {
    /// The machine's own network, as it was last read, with the ways to `targets`,
    /// which the kernel is asked for each time: there is no notification that they
    /// have changed.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn host_facts(&mut self, targets: &PathTargets) -> Result<HostFacts, Error> {
        let mut paths = BTreeMap::new();
        for to in &targets.to {
            let way = path::to(&mut self.socket, *to, targets.from)?;
            let path = way.and_then(|way| self.mirror.path(Family::of(*to), &way));
            paths.extend(path.map(|path| (*to, path)));
        }
        Ok(HostFacts {
            paths,
            ..self.mirror.host_facts()
        })
    }
}

impl Mirror {
    /// The machine's own network, everything but tweed's links, without ways.
    pub fn host_facts(&self) -> HostFacts {
        let is_own = |link: &Link| self.is_of_host(link);
        let interfaces = self.links.iter().filter(|(_, link)| is_own(link));
        let interface = |index: u32, link: &Link| Interface {
            name: link.name.clone(),
            mtu: link.mtu,
            mtu_v6: link.mtu_of(Family::V6),
            up: link.up && link.carrier,
            loopback: link.loopback,
            dummy: link.kind.as_deref() == Some("dummy"),
            port: link.master.is_some(),
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
            paths: BTreeMap::new(),
            last_pod_mtu: None,
        }
    }

    /// A way that the kernel takes to an address of `family`, with the smallest MTU of its
    /// links; none if it leads into the machine itself or into the overlay.
    fn path(&self, family: Family, path: &path::Path) -> Option<Path> {
        let found = path.out.iter().map(|index| self.links.get(index));
        let links: Option<Vec<&Link>> = found
            .map(|link| link.filter(|link| !link.loopback && self.is_of_host(link)))
            .collect();
        let narrowest = links?.into_iter().min_by_key(|link| link.mtu_of(family))?;
        Some(Path {
            mtu: path.mtu.unwrap_or(u32::MAX).min(narrowest.mtu_of(family)),
            link: narrowest.name.clone(),
        })
    }

    /// Whether `link` is none of tweed's.
    fn is_of_host(&self, link: &Link) -> bool {
        !self.is_device(link) && !owned::is_any_pod_link(link)
    }
}

#[cfg(test)]
mod tests {
    use tweed_netlink::link::Ipv6Settings;
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
                by_hand: false,
            })
            .into();
        let host = mirror.host_facts();
        assert_eq!(host.interfaces.keys().collect::<Vec<_>>(), [&2]);
        assert!(host.interfaces[&2].up);
        assert_eq!(host.connected.len(), 1);
    }

    #[test]
    fn a_way_carries_what_its_route_and_its_narrowest_link_do() {
        let link = |index, mtu, loopback| {
            let name = format!("eth{index}");
            let link = Link {
                index,
                name,
                mtu,
                loopback,
                ..Link::default()
            };
            (index, link)
        };
        let mut mirror = Mirror::default();
        let mut advertised = link(4, 1500, false);
        advertised.1.ipv6 = Some(Ipv6Settings {
            mtu: 1450,
            ..Ipv6Settings::default()
        });
        mirror.set_links(
            [
                link(1, 65536, true),
                link(2, 1500, false),
                link(3, 1400, false),
                advertised,
            ]
            .into(),
        );
        let carries_of = |family, out: &[u32], mtu| {
            let path = path::Path {
                out: out.to_vec(),
                mtu,
            };
            mirror.path(family, &path).map(|path| (path.mtu, path.link))
        };
        let carries = |out: &[u32], mtu| carries_of(Family::V4, out, mtu);
        let some = |mtu, link: &str| Some((mtu, link.to_owned()));
        assert_eq!(carries(&[2], None), some(1500, "eth2"));
        assert_eq!(carries(&[2, 3], None), some(1400, "eth3"));
        assert_eq!(carries(&[2], Some(1300)), some(1300, "eth2"));
        assert_eq!(carries(&[2], Some(9000)), some(1500, "eth2"));
        assert_eq!(carries(&[4], None), some(1500, "eth4"));
        let over_ipv6 = carries_of(Family::V6, &[2, 4], None);
        assert_eq!(over_ipv6, some(1450, "eth4"));
        assert_eq!(carries(&[1], None), None, "to this machine itself");
        assert_eq!(carries(&[9], None), None, "a link that is not known yet");
        assert_eq!(carries(&[], None), None);
    }
}
