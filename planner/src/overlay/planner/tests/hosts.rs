//! The machine's own network: only what a plan is made from makes a new one.

use tweed_core::problem::ProblemKind;

use super::*;

fn link(name: &str, addresses: &[&str]) -> Interface {
    let address = |text: &&str| HostAddress {
        network: text.parse().unwrap(),
        state: AddressState::Usable,
    };
    Interface {
        name: name.into(),
        mtu: 1400,
        mtu_v6: 1400,
        up: true,
        loopback: false,
        dummy: false,
        port: false,
        addresses: addresses.iter().map(address).collect(),
    }
}

/// The machine with one link more, and the connected routes of its addresses.
fn host_with(index: u32, link: Interface) -> HostFacts {
    let mut host = host();
    let routes = link.addresses.iter().map(|address| ConnectedRoute {
        destination: IpNetwork::new(address.network.network(), address.network.prefix()).unwrap(),
        interface: index,
        by_hand: false,
    });
    host.connected.extend(routes);
    host.interfaces.insert(index, link);
    host
}

/// Whether all was planned because of `host`: then the claims have to be looked up again.
fn plans_all(host: HostFacts) -> bool {
    let (mut cluster, mut planner) = started(config(""), 2..10);
    planner.prepare(&cluster);
    assert!(planner.claims.is_some());
    planner.update(&mut cluster, host);
    planner.claims.is_none()
}

#[test]
fn links_of_others_that_come_and_go_cost_no_plan() {
    let down = Interface {
        up: false,
        mtu: 9000,
        ..link("docker7", &[])
    };
    for foreign in [
        link("veth7", &[]),
        link("veth7", &["fe80::1234/64"]),
        link("cni0", &["169.254.7.1/16"]),
        down,
    ] {
        assert!(!plans_all(host_with(7, foreign.clone())), "{foreign:?}");
    }
    assert!(plans_all(host_with(7, link("docker0", &["172.17.0.1/16"]))));
    assert!(plans_all(host_with(7, link("lo", &["198.51.100.77/32"]))));
    assert!(plans_all(host_with(7, link("twin", &["192.0.2.1/24"]))));
}

#[test]
fn whatever_happens_to_the_own_link_is_planned() {
    let changes: [fn(&mut HostFacts); 5] = [
        |host| host.interfaces.get_mut(&2).unwrap().up = false,
        |host| host.interfaces.get_mut(&2).unwrap().mtu = 9000,
        |host| host.interfaces.get_mut(&2).unwrap().addresses.clear(),
        |host| {
            host.interfaces.get_mut(&2).unwrap().addresses[0].state = AddressState::Tentative;
        },
        |host| host.connected.clear(),
    ];
    for change in changes {
        let mut changed = host();
        change(&mut changed);
        assert!(plans_all(changed.clone()), "{changed:?}");
    }
}

proptest! {
    /// A network that was left out of a comparison would be missing in the plan.
    #[test]
    fn whatever_the_machine_has_the_plan_is_what_would_have_been_made(
        line in prop::sample::select(vec!["", "--backend direct", "--backend cross-subnet"]),
        steps in prop::collection::vec(
            (
                2..9_u32,
                prop::collection::vec(prop::sample::select(vec![
                    "192.0.2.1/24", "192.0.2.7/24", "192.0.2.77/30", "10.244.7.9/24", "10.0.0.1/8",
                    "198.51.100.1/24", "fe80::7/64", "169.254.1.1/16", "2001:db8::1/64",
                ]), 0..3),
                any::<(bool, bool)>(),
                0..24_u8,
            ),
            1..10,
        ),
    ) {
        let config = config(line);
        let (mut cluster, mut planner) = started(config.clone(), 5..9);
        for (index, addresses, (up, connected), odd) in steps {
            let own = if index == 2 { "eth0" } else { "other" };
            let mut host = host_with(index, Interface { up, ..link(own, &addresses) });
            if !connected {
                host.connected.retain(|route| route.interface != index);
            }
            if odd < 18 {
                apply(&mut cluster, Event::Apply(other(7, odd)));
            }
            planner.update(&mut cluster, host.clone());
            let whole = plan(&config, &cluster.snapshot().unwrap(), &host);
            prop_assert_eq!(planner.is_current(), whole.network.is_some());
            if whole.network.is_some() {
                prop_assert_eq!(planner.network().map(Arc::as_ref), whole.network.as_ref());
            }
            // The ways are no part of a plan, and there are none here.
            let of_plan = |problem: &&Problem| problem.kind != ProblemKind::NoWayToNodes;
            let problems: Vec<Problem> = planner.problems().filter(of_plan).cloned().collect();
            prop_assert_eq!(problems, whole.problems);
        }
    }
}
