//! A client keeps its endpoint, for as long as both are there and it comes in time.

use tweed_component::schema::Sets as _;
use tweed_core::family::Family;
use tweed_nft::Table as _;
use tweed_planner::services::desired::{
    AFFINITY_BLOCK, Endpoint, FIRST_AFFINITY, GROUP_DISTANCE, Number, Target,
};

use super::lab::{
    Addresses, BALANCER, FAMILIES, Lab, NEIGHBOUR, PATIENCE, POD, REMOTE, SERVICE, Servers,
};
use super::plan::{PROTOCOLS, Plan, TCP, endpoint};
use crate::node::NOTHING;
use crate::wires::{ruleset, socket, sources};

/// The port of the servers of [`all`].
pub const REAL: u16 = 8080;

/// Servers on the pods of both nodes.
pub fn all(lab: &Lab) -> Servers {
    let hosts = [
        (&lab.0.pod, "pod", POD),
        (&lab.0.neighbour, "neighbour", NEIGHBOUR),
        (&lab.0.remote_pod, "remote", REMOTE),
    ];
    let mut servers = Servers::new();
    for family in FAMILIES {
        for (host, name, address) in hosts {
            servers = servers.add(host, name, address.port(family, REAL));
        }
    }
    servers
}

fn at(address: Addresses, family: Family) -> Endpoint {
    endpoint(address.of(family), REAL)
}

/// A Service with affinity at two addresses, with these endpoints by their place.
fn service(timeout: u32, members: &[(Number, Addresses)]) -> Plan {
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let group = FIRST_AFFINITY + number * AFFINITY_BLOCK;
        let own: Vec<_> = members
            .iter()
            .map(|(place, address)| (*place, at(*address, family)))
            .collect();
        plan = plan.members(group, timeout, &own);
        for protocol in PROTOCOLS {
            let target = Target::Affinity(group);
            plan = plan
                .cluster_ip(protocol, SERVICE.port(family, 80), target)
                .at(protocol, BALANCER.port(family, 80), target);
        }
    }
    plan
}

#[test]
fn a_client_keeps_its_endpoint_at_all_addresses_until_it_is_gone() {
    let lab = Lab::new();
    let _servers = all(&lab);
    let places = [(0, POD), (1, NEIGHBOUR), (2, REMOTE)];
    let full = service(10_800, &places);
    lab.reconcile(&full);
    let mut old = full.clone();
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let ask =
                |address: Addresses| lab.name(&lab.0.world, protocol, address.port(family, 80));
            let first = ask(SERVICE);
            for _ in 0..10 {
                assert_eq!(ask(SERVICE), first);
                assert_eq!(ask(BALANCER), first);
            }
            // Its slot moves: it is still the client's.
            let mut moved = places;
            moved.rotate_left(1);
            let moved = service(10_800, &moved);
            lab.follow(&old.0, &moved.0);
            assert_eq!(ask(SERVICE), first);
            // It goes, and another one takes its number.
            let names = ["pod", "neighbour", "remote"];
            let place = names.iter().position(|name| *name == first).unwrap();
            let without: Vec<_> = (0..3).filter(|i| *i != place).map(|i| places[i]).collect();
            let gone = service(10_800, &without);
            lab.follow(&moved.0, &gone.0);
            let second = ask(SERVICE);
            assert_ne!(second, first);
            for _ in 0..10 {
                assert_eq!(ask(BALANCER), second);
            }
            lab.follow(&gone.0, &full.0);
            old = full.clone();
            assert_eq!(ask(SERVICE), second);
        }
    }
}

/// Those of the Service's other endpoints are remembered for flows of the cluster.
#[test]
fn from_outside_only_the_endpoints_of_the_node_are_drawn() {
    let lab = Lab::new();
    let _servers = all(&lab);
    let mut plan = service(10_800, &[(0, POD), (1, REMOTE), (2, NEIGHBOUR)]);
    for (number, family) in (0..).zip(FAMILIES) {
        let group = FIRST_AFFINITY + number * AFFINITY_BLOCK + GROUP_DISTANCE;
        plan = plan.members(group, 10_800, &[(2, at(NEIGHBOUR, family))]);
        for protocol in PROTOCOLS {
            let to = BALANCER.port(family, 80);
            plan = plan.outside(protocol, to, Target::Affinity(group));
        }
    }
    lab.reconcile(&plan);
    for family in FAMILIES {
        let clients = match family {
            Family::V4 => "service_clients4",
            Family::V6 => "service_clients6",
        };
        // Of three endpoints the same one is not drawn so often once in 10^7 runs.
        for _ in 0..15 {
            let to = BALANCER.port(family, 80);
            assert_eq!(lab.name(&lab.0.world, TCP, to), "neighbour");
            lab.0
                .node
                .sh(format!("nft flush map inet tweed-services {clients}"));
        }
    }
}

/// The timeout begins anew with each flow; the kernel says how much is left of it.
#[test]
fn a_client_is_forgotten_after_the_services_timeout() {
    let lab = Lab::new();
    let _servers = all(&lab);
    lab.reconcile(&service(5, &[(0, POD), (1, NEIGHBOUR), (2, REMOTE)]));
    let to = SERVICE.port(Family::V4, 80);
    let clients = || {
        lab.0
            .node
            .sh("nft list map inet tweed-services service_clients4")
    };
    let first = lab.name(&lab.0.world, TCP, to);
    assert!(clients().contains("timeout 5s"), "{}", clients());
    let start = std::time::Instant::now();
    let mut asked = 0;
    // Without a limit of time: at some moment another one is drawn, but only after a gap.
    while clients().contains("expires") {
        assert!(start.elapsed() < PATIENCE);
        asked += 1;
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(asked > 0);
    let mut others = 0;
    while others == 0 {
        assert!(start.elapsed() < PATIENCE * 3, "always {first}");
        lab.0
            .node
            .sh("nft flush map inet tweed-services service_clients4");
        others += usize::from(lab.name(&lab.0.world, TCP, to) != first);
    }
}

#[test]
fn a_restart_keeps_clients_and_other_numbers_forget_them() {
    let lab = Lab::new();
    let _servers = all(&lab);
    let plan = service(10_800, &[(0, POD), (1, NEIGHBOUR), (2, REMOTE)]);
    lab.reconcile(&plan);
    let ask = || lab.name(&lab.0.world, TCP, SERVICE.port(Family::V4, 80));
    let first = ask();
    lab.0.restart();
    assert_eq!(lab.reconcile(&plan), NOTHING);
    assert_eq!(ask(), first);
    lab.0.restart();
    let outcome = lab.reconcile(&service(10_800, &[(2, POD), (0, NEIGHBOUR), (1, REMOTE)]));
    assert_eq!(outcome.repaired, 0, "{outcome:?}");
    let clients = lab
        .0
        .node
        .sh("nft list map inet tweed-services service_clients4");
    assert!(!clients.contains("expires"), "{clients}");
}

/// A step of the plan that took an endpoint away could not be written; the next one gives
/// its number to another endpoint, and all sets are compared.
#[test]
fn a_number_that_is_reused_forgets_no_client() {
    let lab = Lab::new();
    let _servers = all(&lab);
    let plan = |second: Addresses| service(10_800, &[(0, POD), (1, second)]);
    let ask = || FAMILIES.map(|family| lab.name(&lab.0.world, TCP, SERVICE.port(family, 80)));
    lab.reconcile(&service(10_800, &[(0, POD)]));
    assert_eq!(ask(), ["pod"; 2]);
    let is_remembered = || {
        for family in ['4', '6'] {
            let clients = format!("nft list map inet tweed-services service_clients{family}");
            let clients = lab.0.node.sh(clients);
            assert_eq!(clients.matches("expires").count(), 1, "{clients}");
        }
    };
    lab.replan(&plan(NEIGHBOUR));
    lab.replan(&plan(REMOTE));
    is_remembered();
    // The next run of the agent has taken the numbers over, and had no luck either.
    lab.0.restart();
    lab.0
        .with(|table| table.services.known_numbers(&mut table.nft).unwrap());
    lab.reconcile(&plan(NEIGHBOUR));
    is_remembered();
    assert_eq!(ask(), ["pod"; 2]);
}

/// The rules change with the timeouts and with the lengths of the Nodes' prefixes. The sets
/// stay as they are then, and packets are translated without a gap.
#[test]
fn clients_are_remembered_while_the_rules_change() {
    let lab = Lab::new();
    let _servers = all(&lab);
    let places = [(0, POD), (1, NEIGHBOUR), (2, REMOTE)];
    let plan = service(10_800, &places);
    lab.reconcile(&plan);
    let frontends = FAMILIES.map(|family| SERVICE.port(family, 80));
    let ask = || frontends.map(|to| lab.name(&lab.0.world, TCP, to));
    let first = ask();
    // What is made anew has another handle.
    let sets = || {
        let sets = "nft -a list table inet tweed-services | grep -E '^.(set|map) .*service_'";
        lab.0.node.sh(sets)
    };
    let before = sets();
    let mut other_timeout = plan.clone();
    let other = FIRST_AFFINITY + 0x10_0000;
    for (index, family) in (0..).zip(FAMILIES) {
        let block = other + index * 0x2000;
        other_timeout = other_timeout.members(block, 600, &[(0, at(POD, family))]);
    }
    let mut other_prefix = ruleset();
    other_prefix.vxlan_sources.extend(sources(
        "192.0.2.3",
        &["10.244.128.0/20", "fd00:0:0:80::/60"],
    ));
    for (ruleset, plan) in [
        (ruleset(), &other_timeout),
        (other_prefix, &other_timeout),
        (ruleset(), &plan),
    ] {
        lab.0.with(|table| table.services.forget());
        let outcome = lab.make(&ruleset, plan, false);
        assert_eq!(outcome.repaired, 0, "{outcome:?}");
        assert_eq!(ask(), first);
        assert_eq!(sets(), before);
        for family in ['4', '6'] {
            let clients = format!("nft list map inet tweed-services service_clients{family}");
            let clients = lab.0.node.sh(clients);
            assert_eq!(clients.matches("expires").count(), 1, "{clients}");
        }
    }
}

/// The only Service of a timeout goes while the agent is restarted, and its chains can go only
/// after what leads to them.
#[test]
fn a_timeout_that_is_gone_after_a_restart_costs_no_client_of_others_its_endpoint() {
    let lab = Lab::new();
    let _servers = all(&lab);
    let plan = service(10_800, &[(0, POD), (1, NEIGHBOUR), (2, REMOTE)]);
    let other = FIRST_AFFINITY + 0x10_0000;
    lab.reconcile(
        &plan
            .clone()
            .members(other, 600, &[(0, at(POD, Family::V4))]),
    );
    let ask = || FAMILIES.map(|family| lab.name(&lab.0.world, TCP, SERVICE.port(family, 80)));
    let first = ask();
    let clients = || {
        let map = lab
            .0
            .node
            .sh("nft -a list map inet tweed-services service_clients4");
        // What is made anew has another handle, and no elements.
        (
            map.lines().nth(1).unwrap().to_owned(),
            map.contains("expires"),
        )
    };
    let before = clients();
    assert!(before.1);
    lab.0.restart();
    lab.reconcile(&plan);
    assert_eq!(clients(), before);
    assert_eq!(ask(), first);
}

/// Clients of one interface identifier, which differ in any half of their prefix.
#[test]
fn a_client_of_ipv6_is_known_by_all_of_its_address() {
    let lab = Lab::new();
    let _servers = all(&lab);
    lab.reconcile(&service(10_800, &[(0, POD), (1, NEIGHBOUR), (2, REMOTE)]));
    let clients = [
        "2001:db8:1::2",
        "2001:db9:1::2",
        "2001:db8:2::2",
        "2001:db8:1:1::2",
        "2001:db8:1::1:2",
    ];
    let to = SERVICE.port(Family::V6, 80);
    for (known, client) in clients.iter().enumerate() {
        lab.0
            .world
            .sh(format!("ip -6 addr replace {client}/128 dev eth0 nodad"));
        let socket = socket(&lab.0.world, &format!("[{client}]:0"));
        socket.set_read_timeout(Some(PATIENCE / 100)).unwrap();
        let start = std::time::Instant::now();
        // The first datagram may be lost while the neighbour is looked for.
        while socket
            .send_to(b"x", to)
            .and(socket.recv(&mut [0; 200]))
            .is_err()
        {
            assert!(start.elapsed() < PATIENCE, "nobody answers {client}");
        }
        let map = lab
            .0
            .node
            .sh("nft list map inet tweed-services service_clients6");
        assert_eq!(map.matches("expires").count(), known + 1, "{map}");
    }
}

/// A timeout that no Service had before: only a look can make its chains.
#[test]
fn a_new_timeout_brings_its_chains() {
    let lab = Lab::new();
    let _servers = all(&lab);
    let places = [(0, POD), (1, NEIGHBOUR)];
    let (old, new) = (service(600, &places), service(30, &places));
    lab.reconcile(&old);
    let delta = old.0.change_to(&new.0);
    let followed = lab
        .0
        .with(move |table| table.services.follow(&mut table.nft, &delta));
    assert_eq!(followed.unwrap(), None);
    lab.replan(&new);
    let ask = || lab.name(&lab.0.world, TCP, SERVICE.port(Family::V4, 80));
    let first = ask();
    for _ in 0..10 {
        assert_eq!(ask(), first);
    }
    let chains = |timeout: &str| {
        let table = lab.0.node.sh("nft -s list table inet tweed-services");
        table.contains(&format!("chain service_affinity_cluster_{timeout} "))
    };
    assert!(chains("30"));
    // The chains that nothing leads to any more go with the next look.
    lab.reconcile(&new);
    assert!(chains("30") && !chains("600"));
    assert_eq!(lab.reconcile(&new), NOTHING);
}
