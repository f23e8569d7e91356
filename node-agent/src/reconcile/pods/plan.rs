//! What has to be written for a local pod: pure, from its record alone.
//!
//! The record says the addresses, the MACs and the MTU, which a lower one of the pod's end
//! replaces; the overlay's plan says which source address this node uses towards its pods.
//! A pod's route is added
//! and replaced here and never removed: DEL does that, or the kernel with the
//! link. Other routes of tweed's protocol with its key are removed.

use std::{collections::BTreeMap, net::IpAddr};

use ipnetwork::IpNetwork;
use tweed_core::{mac::Mac, mtu, ownership::LINK_GROUP};
use tweed_ipam::record::{Owner, Record, State};
use tweed_netlink::{link::Link, route::Route};

use crate::reconcile::kernel::key::NeighbourKey;
use crate::reconcile::kernel::mirror::Mirror;
use crate::reconcile::kernel::{change::Change, diff::one_route};
use tweed_core::family::Family;
use tweed_netlink::owned;
use tweed_planner::overlay::desired::{ROUTE_PROTOCOL, RouteKey};
use tweed_planner::overlay::host::AddressState;

/// Whether the agent keeps what `record` says.
pub(super) fn is_kept(record: &Record) -> bool {
    record.owner == Owner::Tweed && record.state == State::Live
}

/// The host end of the record's link: it has the name, which is a hash of the
/// attachment, and the group or the alias. Where no link has the name, somebody may have
/// renamed it: then it has both.
pub(super) fn link_of<'a>(record: &Record, mirror: &'a Mirror) -> Option<&'a Link> {
    let attachment = record.attachment();
    match mirror.link(record.link.as_deref()?) {
        Some(link) => {
            let is_own = owned::is_in_group(link) || owned::has_alias_of(link, &attachment);
            is_own.then_some(link)
        }
        None => {
            let mut links = mirror.links.values();
            links.find(|link| owned::is_renamed_link_of(link, &attachment))
        }
    }
}

/// The keys of the record's routes.
pub(super) fn route_keys(record: &Record) -> impl Iterator<Item = RouteKey> + '_ {
    record.addresses.iter().map(|network| RouteKey {
        destination: IpNetwork::from(network.ip()),
        metric: 0,
    })
}

/// The writes that put back what `record` says, on its host end `link`. `pod_mtu` is that of
/// the pod's end, where it is known. `sources` are the source addresses that this node uses and
/// has, by family; routes of a family that is missing keep their source.
pub(super) fn diff(
    record: &Record,
    link: &Link,
    pod_mtu: Option<u32>,
    mirror: &Mirror,
    sources: &BTreeMap<Family, IpAddr>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    if let Some(name) = record.link.clone().filter(|name| *name != link.name) {
        let index = link.index;
        changes.push(Change::RenameLink { index, name });
    }
    if link.group != LINK_GROUP {
        let (index, group) = (link.index, LINK_GROUP);
        changes.push(Change::SetLinkGroup { index, group });
    }
    // What comes in by a port of a bridge has the bridge as its device, and passes by the
    // rules against spoofing, which know pods' links by their group.
    if link.master.is_some() {
        changes.push(Change::ReleaseLink { index: link.index });
    }
    let mtu = host_mtu(record, pod_mtu).filter(|mtu| *mtu != link.mtu);
    // The pod has a permanent neighbour with this MAC, for its gateway.
    let mac = Some(host_mac(record)).filter(|mac| Some(*mac) != link.mac);
    if !link.up || mtu.is_some() || mac.is_some() {
        changes.push(Change::SetLink {
            index: link.index,
            up: true,
            mtu,
            mac,
        });
    }
    // The kernel removes all neighbours of a link whose MAC changes.
    let lose_neighbours = mac.is_some();
    if let Some(mac) = record.pod_mac {
        let keys = record.addresses.iter().map(|network| NeighbourKey {
            device: link.index,
            ip: network.ip(),
        });
        changes.extend(
            keys.filter(|key| lose_neighbours || mirror.neighbours.get(key) != Some(&mac))
                .map(|key| Change::SetNeighbour { key, mac }),
        );
    }
    for key in route_keys(record) {
        let present = mirror.routes_with(&key);
        let source = sources
            .get(&Family::of(key.destination.ip()))
            .copied()
            .or_else(|| source_of(present, link));
        let want = Route {
            out: Some(link.index),
            link_scope: key.destination.is_ipv4(),
            source,
            ..Route::to(key.destination, ROUTE_PROTOCOL)
        };
        changes.extend(one_route(present, &want));
    }
    changes
}

fn host_mtu(record: &Record, pod_mtu: Option<u32>) -> Option<u32> {
    let has_ipv6 = record.addresses.iter().any(IpNetwork::is_ipv6);
    let added = record.mtu?;
    Some(pod_mtu.map_or(added, |pod_end| mtu::of_host_end(added, pod_end, has_ipv6)))
}

/// The MAC of the host end, which the plugin derives from the attachment.
fn host_mac(record: &Record) -> Mac {
    record
        .host_mac
        .unwrap_or_else(|| record.attachment().host_mac())
}

/// The source of the route that leads to `link`, or else of the first.
fn source_of(present: &[Route], link: &Link) -> Option<IpAddr> {
    let mut on_link = present.iter().filter(|route| route.out == Some(link.index));
    on_link.next().or(present.first())?.source
}

/// Those of these addresses that the kernel accepts as a route's source: they must be addresses
/// of this machine.
pub(super) fn usable(
    sources: &BTreeMap<Family, IpAddr>,
    mirror: &Mirror,
) -> BTreeMap<Family, IpAddr> {
    let addresses = mirror.addresses.iter();
    let accepted = addresses.filter(|(_, state)| **state != AddressState::Tentative);
    let ips = accepted.map(|(key, _)| key.network.ip());
    let usable = ips.filter(|ip| sources.get(&Family::of(*ip)) == Some(ip));
    usable.map(|ip| (Family::of(ip), ip)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use tweed_core::attachment::{ContainerId, IfName, NetworkName};
    use tweed_ipam::record::FORMAT_VERSION;

    use super::*;
    use crate::reconcile::kernel::change::order;
    use crate::reconcile::kernel::key::AddressKey;

    const LINK: u32 = 9;
    const NODE: &str = "192.0.2.1";

    /// A record of a pod that runs.
    pub fn record() -> Record {
        let mut record = Record {
            version: FORMAT_VERSION,
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new("c1").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
            netns: None,
            addresses: vec![
                "10.244.1.5/24".parse().unwrap(),
                "fd00:1::5/64".parse().unwrap(),
            ],
            ipam: None,
            host_netns: None,
            owner: Owner::Tweed,
            link: None,
            host_mac: None,
            pod_mac: Some(Mac([2, 0, 0, 0, 0, 5])),
            mtu: Some(1450),
            pod: None,
            pod_uid: None,
            made: None,
            boot_id: String::new(),
            state: State::Live,
            held: false,
        };
        record.link = Some(record.attachment().link_name());
        record
    }

    fn mirror() -> Mirror {
        let link = Link {
            index: LINK,
            name: record().attachment().link_name(),
            group: 116,
            alias: Some("tweed:tweed/c1/eth0 default/web".to_owned()),
            mtu: 1500,
            mac: Some(record().attachment().host_mac()),
            ..Link::default()
        };
        let address = AddressKey {
            device: 2,
            network: format!("{NODE}/24").parse().unwrap(),
        };
        Mirror {
            links: [(LINK, link)].into(),
            addresses: [(address, AddressState::Usable)].into(),
            ..Mirror::default()
        }
    }

    fn sources() -> BTreeMap<Family, IpAddr> {
        [(Family::V4, NODE.parse().unwrap())].into()
    }

    fn write(mirror: &mut Mirror, sources: &BTreeMap<Family, IpAddr>) -> Vec<Change> {
        write_beside(None, mirror, sources)
    }

    /// As [`write`], where the pod's end has this MTU.
    fn write_beside(
        pod_mtu: Option<u32>,
        mirror: &mut Mirror,
        sources: &BTreeMap<Family, IpAddr>,
    ) -> Vec<Change> {
        let record = record();
        let link = link_of(&record, mirror).unwrap().clone();
        let sources = usable(sources, mirror);
        let mut changes = diff(&record, &link, pod_mtu, mirror, &sources);
        order(&mut changes);
        for change in &changes {
            mirror.apply(change);
        }
        changes
    }

    #[test]
    fn what_the_record_says_is_put_back_and_then_left_alone() {
        let mut mirror = mirror();
        let changes = write(&mut mirror, &sources());
        assert!(matches!(
            changes[..],
            [
                Change::SetLink { .. },
                Change::SetNeighbour { .. },
                Change::SetNeighbour { .. },
                Change::AddRoute(_),
                Change::AddRoute(_),
            ]
        ));
        assert_eq!(write(&mut mirror, &sources()), vec![]);
        let link = &mirror.links[&LINK];
        assert!(link.up);
        assert_eq!(link.mtu, 1450);
        let key = route_keys(&record()).next().unwrap();
        let [route] = mirror.routes_with(&key) else {
            panic!("one route");
        };
        assert_eq!(route.source, Some(NODE.parse().unwrap()));
        assert!(route.link_scope);
    }

    #[test]
    fn the_host_end_follows_a_lower_mtu_of_the_pods_end() {
        let mut mirror = mirror();
        for (pod_mtu, expected) in [(1300, 1300), (1000, 1280), (9000, 1450), (1450, 1450)] {
            write_beside(Some(pod_mtu), &mut mirror, &sources());
            assert_eq!(mirror.links[&LINK].mtu, expected, "beside {pod_mtu}");
            assert_eq!(write_beside(Some(pod_mtu), &mut mirror, &sources()), []);
        }
    }

    #[test]
    fn a_new_underlay_address_becomes_the_source() {
        let mut mirror = mirror();
        write(&mut mirror, &sources());
        let next = AddressKey {
            device: 2,
            network: "192.0.2.99/24".parse().unwrap(),
        };
        mirror.addresses.insert(next, AddressState::Usable);
        let next = [(Family::V4, next.network.ip())].into();
        let changes = write(&mut mirror, &next);
        assert!(matches!(changes[..], [Change::ReplaceRoute { .. }]));
        assert_eq!(write(&mut mirror, &next), vec![]);
    }

    #[test]
    fn a_source_that_the_node_does_not_have_is_left_out_and_not_taken_away() {
        let mut mirror = mirror();
        write(&mut mirror, &sources());
        assert_eq!(write(&mut mirror, &BTreeMap::new()), vec![]);
        mirror.addresses.clear();
        mirror.routes.clear();
        write(&mut mirror, &sources());
        assert!(mirror.routes.values().flatten().all(|r| r.source.is_none()));
    }

    #[test]
    fn a_link_that_was_taken_out_of_its_group_is_put_back_and_mended() {
        for group in [0, 7, 117] {
            let mut mirror = mirror();
            write(&mut mirror, &sources());
            let drifted = |mirror: &mut Mirror| {
                mirror.links.get_mut(&LINK).unwrap().group = group;
                mirror.routes.clear();
            };
            drifted(&mut mirror);
            let changes = write(&mut mirror, &sources());
            assert!(matches!(
                changes[..],
                [
                    Change::SetLinkGroup { .. },
                    Change::AddRoute(_),
                    Change::AddRoute(_),
                ]
            ));
            assert_eq!(mirror.links[&LINK].group, 116);
            assert_eq!(write(&mut mirror, &sources()), vec![]);
        }
    }

    #[test]
    fn a_link_that_is_a_port_of_another_device_is_released() {
        let mut mirror = mirror();
        write(&mut mirror, &sources());
        mirror.links.get_mut(&LINK).unwrap().master = Some(4);
        let changes = write(&mut mirror, &sources());
        assert_eq!(changes, [Change::ReleaseLink { index: LINK }]);
        assert_eq!(write(&mut mirror, &sources()), vec![]);
    }

    /// The kernel removes the neighbours of a link whose MAC changes.
    #[test]
    fn a_link_with_another_mac_gets_its_own_back_and_its_neighbours() {
        let mut mirror = mirror();
        write(&mut mirror, &sources());
        let own = record().attachment().host_mac();
        mirror.links.get_mut(&LINK).unwrap().mac = Some(Mac([2, 0, 0, 0, 0, 0x98]));
        let changes = write(&mut mirror, &sources());
        let set = Change::SetLink {
            index: LINK,
            up: true,
            mtu: None,
            mac: Some(own),
        };
        assert!(matches!(
            &changes[..],
            [first, Change::SetNeighbour { .. }, Change::SetNeighbour { .. }] if *first == set
        ));
        assert_eq!(write(&mut mirror, &sources()), vec![]);
    }

    #[test]
    fn the_mac_that_the_record_says_goes_before_the_derived_one() {
        let record = Record {
            host_mac: Some(Mac([2, 0, 0, 0, 0, 7])),
            ..record()
        };
        let mut mirror = mirror();
        let link = link_of(&record, &mirror).unwrap().clone();
        for change in diff(&record, &link, None, &mirror, &sources()) {
            mirror.apply(&change);
        }
        assert_eq!(mirror.links[&LINK].mac, record.host_mac);
    }

    #[test]
    fn of_several_routes_to_a_pod_its_own_alone_stays() {
        let mut mirror = mirror();
        write(&mut mirror, &sources());
        let before = mirror.routes.clone();
        for key in route_keys(&record()) {
            let second = Route {
                out: Some(2),
                ..Route::to(key.destination, ROUTE_PROTOCOL)
            };
            mirror
                .routes
                .get_mut(&key)
                .unwrap()
                .insert(0, second.clone());
            // Without a source to take, that of the pod's own route stays.
            for sources in [sources(), BTreeMap::new()] {
                let mut written = mirror.clone();
                let changes = write(&mut written, &sources);
                assert_eq!(changes, [Change::RemoveRoute(second.clone())]);
                assert_eq!(written.routes, before);
            }
            mirror.routes.clone_from(&before);
        }
    }

    #[test]
    fn a_link_that_was_renamed_is_known_by_group_and_alias_and_gets_its_name_back() {
        let name = record().link.unwrap();
        let renamed = |group, alias: &str| {
            let mut mirror = mirror();
            write(&mut mirror, &sources());
            let link = mirror.links.get_mut(&LINK).unwrap();
            (link.name, link.group) = ("mine".to_owned(), group);
            link.alias = Some(alias.to_owned());
            mirror
        };
        let mut mirror = renamed(LINK_GROUP, "tweed:tweed/c1/eth0 default/web");
        let changes = write(&mut mirror, &sources());
        let index = LINK;
        assert_eq!(
            changes,
            [Change::RenameLink {
                index,
                name: name.clone()
            }]
        );
        assert_eq!(mirror.links[&LINK].name, name);
        for (group, alias) in [
            (0, "tweed:tweed/c1/eth0"),
            (117, "tweed:tweed/c1/eth0"),
            (LINK_GROUP, "tweed:tweed/c2/eth0"),
            (LINK_GROUP, "mine"),
        ] {
            let mirror = renamed(group, alias);
            assert!(link_of(&record(), &mirror).is_none(), "{alias} in {group}");
        }
        // A foreign link has its name.
        let mut mirror = renamed(LINK_GROUP, "tweed:tweed/c1/eth0");
        let foreign = Link {
            index: 11,
            name,
            ..Link::default()
        };
        mirror.links.insert(foreign.index, foreign);
        assert!(link_of(&record(), &mirror).is_none());
    }

    #[test]
    fn a_foreign_link_with_the_name_is_not_the_pods() {
        let record = record();
        let aliases = [
            ("tweed:tweed/c1/eth0", true),
            ("tweed:tweed/c1/eth0 default/web", true),
            ("tweed:tweed/c1/eth01", false),
            ("tweed:tweed/c2/eth0", false),
            ("mine", false),
            ("", false),
        ];
        for (alias, expected) in aliases {
            for (group, expected) in [(0, expected), (116, true)] {
                let mut mirror = mirror();
                if let Some(link) = mirror.links.get_mut(&LINK) {
                    link.alias = Some(alias.to_owned());
                    link.group = group;
                }
                let found = link_of(&record, &mirror).is_some();
                assert_eq!(found, expected, "{alias} in group {group}");
            }
        }
        let mut mirror = mirror();
        mirror.links.clear();
        assert!(link_of(&record, &mirror).is_none());
    }

    #[test]
    fn only_live_records_of_tweed_are_kept() {
        let kept = |owner, state| {
            is_kept(&Record {
                owner,
                state,
                ..record()
            })
        };
        assert!(kept(Owner::Tweed, State::Live));
        assert!(!kept(Owner::Other, State::Live));
        assert!(!kept(Owner::Tweed, State::Deleting));
    }
}
