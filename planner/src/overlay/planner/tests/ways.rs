//! The ways to other nodes, on which the MTU depends.

use super::*;

#[test]
fn the_way_to_some_other_nodes_is_asked_for_and_to_the_default_route_without_any() {
    let (mut cluster, mut planner) = started(config(""), 2..100);
    let targets = planner.path_targets();
    assert_eq!(targets.from, Some([192, 0, 2, 1].into()));
    assert_eq!(targets.to.len(), 3);
    for number in 2..100_u8 {
        apply(
            &mut cluster,
            Event::Delete(format!("n{number}").as_str().into()),
        );
    }
    planner.update(&mut cluster, host());
    assert!(
        planner.path_targets().to.is_empty(),
        "it has a network of its own"
    );
    let mut alone = host();
    alone.connected.clear();
    planner.update(&mut cluster, alone);
    assert_eq!(planner.path_targets().to, [OUTSIDE_V4.into()].into());
}

#[test]
fn only_a_way_that_carries_something_else_is_a_new_plan() {
    let (mut cluster, mut planner) = started(config(""), 2..10);
    let (version, first) = (planner.version(), planner.network().cloned().unwrap());
    let mut mtu_with = |mtu| {
        let link = "eth0".to_owned();
        let path = Path { mtu, link };
        let targets = planner.path_targets().to.into_iter();
        let paths = targets.map(|ip| (ip, path.clone())).collect();
        planner.update(&mut cluster, HostFacts { paths, ..host() });
        let network = planner.network().cloned().unwrap();
        (network.pod_mtu, Arc::ptr_eq(&network, &first))
    };
    assert_eq!(mtu_with(1500), (1450, true));
    assert_eq!(mtu_with(1400), (1350, false));
    assert_ne!(planner.version(), version);
}

/// As with a routing daemon that restarts (BGP to the host).
#[test]
fn a_way_that_is_lost_counts_until_there_is_another() {
    let way = |mtu| Path {
        mtu,
        link: "eth0".to_owned(),
    };
    let (mut cluster, mut planner) = started(config(""), 2..5);
    let targets = planner.path_targets().to;
    assert_eq!(targets.len(), 3);
    let each = |mtus: [Option<u32>; 3]| -> BTreeMap<IpAddr, Path> {
        let ways = targets.iter().zip(mtus);
        ways.filter_map(|(ip, mtu)| Some((*ip, way(mtu?))))
            .collect()
    };
    let mtu_with = |planner: &mut OverlayPlanner, cluster: &mut Cluster, paths| {
        planner.update(cluster, HostFacts { paths, ..host() });
        planner.network().unwrap().pod_mtu
    };
    let (low, high) = (Some(1400), Some(1500));
    for (ways, mtu) in [
        ([low, low, high], 1350),
        ([None, None, None], 1350),
        // The votes of those that are lost still count.
        ([None, None, high], 1350),
        ([None, high, high], 1450),
        ([None, None, None], 1450),
        ([low, low, low], 1350),
    ] {
        let version = planner.version();
        let before = planner.network().unwrap().pod_mtu;
        let now = mtu_with(&mut planner, &mut cluster, each(ways));
        assert_eq!(now, mtu, "{ways:?}");
        assert_eq!(planner.version() == version, before == mtu, "{ways:?}");
    }

    // Other peers, to which there is no way yet.
    for number in 2..5 {
        let name = format!("n{number}");
        apply(&mut cluster, Event::Delete(name.as_str().into()));
    }
    apply(&mut cluster, Event::Apply(other(7, 0)));
    let none = BTreeMap::new;
    assert_eq!(mtu_with(&mut planner, &mut cluster, none()), 1350);
    assert_eq!(mtu_with(&mut planner, &mut cluster, none()), 1350);
    let target = planner.path_targets().to.into_iter().next().unwrap();
    let paths = [(target, way(1300))].into();
    assert_eq!(mtu_with(&mut planner, &mut cluster, paths), 1250);

    // Without peers the own interface decides: it has a network of its own.
    apply(&mut cluster, Event::Delete("n7".into()));
    mtu_with(&mut planner, &mut cluster, none());
    assert_eq!(mtu_with(&mut planner, &mut cluster, none()), 1450);
}

/// As long as there is a way to one of those that are asked for, there is one.
#[test]
fn no_way_to_any_node_is_named_as_long_as_there_is_none() {
    let (mut cluster, mut planner) = started(config(""), 2..9);
    let targets = planner.path_targets().to;
    let said = |planner: &OverlayPlanner| -> Vec<String> {
        let problems = planner.problems();
        let said = problems.map(|p| format!("{} {}: {}", p.kind, p.object, p.message));
        said.collect()
    };
    assert_eq!(said(&planner), [""; 0], "nobody was asked for yet");
    let asked: Vec<String> = targets.iter().map(ToString::to_string).collect();
    let named = [format!(
        "no-way-to-nodes eth0: the kernel has no route from this node's address 192.0.2.1 to \
         other nodes: it was asked for {}",
        asked.join(", ")
    )];
    planner.update(&mut cluster, host());
    assert_eq!(said(&planner), named);
    let last = targets.last().map(|to| {
        let link = "eth0".to_owned();
        (*to, Path { mtu: 1500, link })
    });
    let paths = last.into_iter().collect();
    planner.update(&mut cluster, HostFacts { paths, ..host() });
    assert_eq!(said(&planner), [""; 0]);
    // The last known way counts for the MTU alone.
    planner.update(&mut cluster, host());
    assert_eq!(said(&planner), named);

    // A plan that holds says what is wrong with the address by which the kernel was asked.
    let mut without = host();
    without.interfaces.clear();
    planner.update(&mut cluster, without);
    let words: Vec<&str> = planner.problems().map(|p| p.kind.word()).collect();
    assert_eq!(words, ["underlay-address-missing"]);

    // Without other nodes nobody is missed.
    planner.update(&mut cluster, host());
    for number in 2..9 {
        let name = format!("n{number}");
        apply(&mut cluster, Event::Delete(name.as_str().into()));
    }
    planner.update(&mut cluster, host());
    planner.update(&mut cluster, host());
    assert_eq!(said(&planner), [""; 0]);
}

/// As an agent that is started before the routing daemon (BGP to the host).
#[test]
fn without_any_way_the_others_are_asked_for_until_there_is_one() {
    type Ways<'a> = &'a [(IpAddr, u32)];
    let on_lo = |paths: Ways<'_>| {
        let mut host = host();
        host.connected.clear();
        host.interfaces.get_mut(&2).unwrap().loopback = true;
        let link = "eth1".to_owned();
        let way = |(to, mtu): &(IpAddr, u32)| {
            (
                *to,
                Path {
                    mtu: *mtu,
                    link: link.clone(),
                },
            )
        };
        host.paths = paths.iter().map(way).collect();
        host
    };
    let peer = IpAddr::from([192, 0, 2, 2]);
    let run = |last, with: &[(Ways<'_>, Option<u32>)]| {
        let (mut cluster, _) = started(config(""), 2..3);
        let mut planner = OverlayPlanner::new(config(""), last);
        planner.update(&mut cluster, on_lo(&[]));
        for (paths, mtu) in with {
            assert_eq!(planner.path_targets().to, [peer].into());
            planner.update(&mut cluster, on_lo(paths));
            let network = planner.network().filter(|_| planner.is_current());
            assert_eq!(
                network.map(|network| network.pod_mtu),
                *mtu,
                "{last:?} {paths:?}"
            );
            let words: Vec<&str> = planner.problems().map(|p| p.kind.word()).collect();
            let expected = match (mtu, paths) {
                (None, _) => &["mtu-unknown"][..],
                (_, []) => &["no-way-to-nodes"],
                _ => &[],
            };
            assert_eq!(words, expected, "{last:?} {paths:?}");
        }
    };
    let way: &[_] = &[(peer, 1400)];
    run(
        None,
        &[
            (&[], None),
            (&[], None),
            (way, Some(1350)),
            (&[], Some(1350)),
        ],
    );
    run(
        Some(1250),
        &[
            (&[], Some(1250)),
            (&[], Some(1250)),
            (way, Some(1350)),
            (&[], Some(1350)),
        ],
    );
}

/// What an IPv4 way carries says nothing of IPv6.
#[test]
fn a_lost_way_of_another_family_does_not_count() {
    let six = |mut host: HostFacts| {
        let addresses = &mut host.interfaces.get_mut(&2).unwrap().addresses;
        addresses.push(HostAddress {
            network: "2001:db8::1/64".parse().unwrap(),
            state: AddressState::Usable,
        });
        host
    };
    let mut cluster = Cluster::new("me");
    let mut planner = OverlayPlanner::new(config(""), None);
    let dual = |number: u8, node: Node| node.internal(&format!("2001:db8::{number}"));
    apply(&mut cluster, Event::Init);
    apply(&mut cluster, Event::InitApply(dual(1, me())));
    apply(&mut cluster, Event::InitApply(dual(2, other(2, 0))));
    apply(&mut cluster, Event::InitDone);
    planner.update(&mut cluster, six(host()));
    let way = Path {
        mtu: 1400,
        link: "eth0".to_owned(),
    };
    let paths = [([192, 0, 2, 2].into(), way)].into();
    planner.update(
        &mut cluster,
        HostFacts {
            paths,
            ..six(host())
        },
    );
    assert_eq!(planner.network().unwrap().pod_mtu, 1350);
    let first_six = node("me")
        .cidr("10.244.0.0/24")
        .internal("2001:db8::1")
        .internal("192.0.2.1");
    apply(&mut cluster, Event::Apply(first_six));
    planner.update(&mut cluster, six(host()));
    planner.update(&mut cluster, six(host()));
    let network = planner.network().unwrap();
    assert!(network.underlay.address.is_ipv6());
    assert_eq!(network.pod_mtu, 1430);
}
