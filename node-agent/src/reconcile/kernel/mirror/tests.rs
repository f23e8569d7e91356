use super::*;

#[test]
fn the_objects_of_a_link_that_is_gone_are_removed_with_it() {
    let link = |index| Link {
        index,
        ..Link::default()
    };
    let address = |device| AddressKey {
        device,
        network: "192.0.2.1/24".parse().unwrap(),
    };
    let mut mirror = Mirror::default();
    mirror.set_links([(1, link(1)), (2, link(2))].into());
    for device in [1, 2] {
        let usable = AddressState::Usable;
        mirror.addresses.insert(address(device), usable);
        mirror.apply(&Change::AddRoute(Route {
            out: Some(device),
            ..Route::to("10.0.0.0/8".parse().unwrap(), 116)
        }));
    }
    mirror.set_links([(2, link(2))].into());
    assert_eq!(mirror.addresses.keys().collect::<Vec<_>>(), [&address(2)]);
    let routes: Vec<_> = mirror.routes.values().flatten().collect();
    assert_eq!(routes.len(), 1);
    assert_eq!(routes[0].out, Some(2));
}

/// The kernel shows the next hops of an IPv6 route with the protocol of the first.
#[test]
fn a_next_hop_that_the_kernel_does_not_delete_as_ours_is_somebody_elses() {
    let via = |gateway: &str| Route {
        gateway: Some(gateway.parse().unwrap()),
        ..Route::to("fd00::/64".parse().unwrap(), 116)
    };
    let (ours, other) = (via("fd00::"), via("2001:db8::9"));
    let key = route_key(&ours);
    let mut mirror = Mirror::default();
    assert!(mirror.set_routes(vec![ours.clone(), other.clone()]));
    assert_eq!(mirror.routes_with(&key).len(), 2);
    mirror.disown(&other);
    assert!(!mirror.set_routes(vec![ours.clone(), other.clone()]));
    assert_eq!(mirror.routes_with(&key), std::slice::from_ref(&ours));
    assert_eq!(mirror.beside()[&key].len(), 1);
    assert!(mirror.set_routes(vec![ours]), "it is gone");
    assert!(mirror.beside().is_empty());
}

#[test]
fn routes_of_others_stay_known_while_only_ours_are_read() {
    let ours = Route::to("10.244.2.0/24".parse().unwrap(), 116);
    let foreign = Route {
        protocol: 3,
        ..ours.clone()
    };
    let mut mirror = Mirror::default();
    mirror.set_routes(vec![ours.clone()]);
    assert!(mirror.set_foreign(vec![foreign.clone()]));
    assert!(!mirror.set_routes(vec![ours.clone()]));
    assert!(!mirror.set_foreign(vec![foreign.clone()]));
    assert_eq!(mirror.beside()[&route_key(&ours)], [&foreign]);
    assert!(mirror.set_foreign(Vec::new()));
    assert!(mirror.beside().is_empty());
}

#[test]
fn leaving_links_are_deleted_at_once_and_not_those_of_others_in_their_group() {
    let link = |index, name: &str, group| Link {
        index,
        name: name.to_owned(),
        group,
        alias: Some("tweed:tweed/c/eth0".to_owned()),
        ..Link::default()
    };
    let mut mirror = Mirror::default();
    let pod = (2, link(2, "tw001122334455", 116));
    let leaving = [3, 4].map(|index| (index, link(index, "twx01122334455", 117)));
    mirror.set_links(leaving.iter().cloned().chain([pod]).collect());
    let links = vec![3, 4];
    let group = 0x7400_0009;
    let all = vec![Change::RemoveLeavingLinks { group, links }];
    assert_eq!(mirror.delete_leaving_links(|| 9), all);
    mirror.links.insert(5, link(5, "foreign", 117));
    assert_eq!(mirror.delete_leaving_links(|| 9), all);
    for change in all {
        mirror.apply(&change);
    }
    assert_eq!(mirror.links.keys().collect::<Vec<_>>(), [&2, &5]);
}
