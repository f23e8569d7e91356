//! The sets change while flows come and go.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tweed_component::drops::DropReason;
use tweed_core::family::Family;
use tweed_planner::services::desired::{Endpoint, FIRST_LIMIT, Masquerade, Number, Span, Target};

use super::lab::{
    Addresses, BALANCER, FAMILIES, Lab, NEIGHBOUR, NODE, OTHER_SERVICE, PATIENCE, POD, REMOTE,
    SERVICE, Servers, WORLD,
};
use super::plan::{PROTOCOLS, Plan, TCP, endpoint, frontend, group, node_port, span};
use crate::node::NOTHING;

fn at(address: Addresses, family: Family) -> Endpoint {
    endpoint(address.of(family), 8080)
}

/// A Service of both families with these endpoints.
pub fn service(endpoints: &[Addresses]) -> Plan {
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let target = match endpoints {
            [] => Target::Reject,
            _ => group(2 * number),
        };
        if !endpoints.is_empty() {
            let own: Vec<_> = endpoints.iter().map(|a| at(*a, family)).collect();
            plan = plan.endpoints(target, &own);
        }
        for protocol in PROTOCOLS {
            plan = plan
                .cluster_ip(protocol, SERVICE.port(family, 80), target)
                .node_port(family, protocol, 30080, target)
                .node_port_policy(node_port(family, protocol, 30080), None, Masquerade::All);
        }
    }
    plan
}

#[test]
fn the_second_reconcile_and_a_restart_write_nothing() {
    let lab = Lab::new();
    let plan = service(&[POD, NEIGHBOUR]);
    let outcome = lab.reconcile(&plan);
    assert_eq!(outcome.repaired, 0, "{outcome:?}");
    assert_eq!(lab.reconcile(&plan), NOTHING);
    lab.0.restart();
    assert_eq!(lab.reconcile(&plan), NOTHING);
    for _ in 0..60 {
        assert_eq!(lab.look(&plan, true), NOTHING);
    }
}

#[test]
fn what_is_changed_by_hand_is_put_back() {
    let lab = Lab::new();
    let plan = service(&[POD, NEIGHBOUR]);
    lab.reconcile(&plan);
    // Elements come in any order; the table's comment says what it was last made with as
    // a whole.
    let listing = || {
        let text = lab
            .0
            .node
            .sh("nft -s list table inet tweed-services | grep -v comment.*tweed");
        let words = text.split([',', ' ', '\n', '\t']);
        let mut words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        words.sort();
        words.join(" ")
    };
    let before = listing();
    for tampering in [
        "flush map inet tweed-services service_slots4",
        "delete element inet tweed-services service_targets4 { 10.96.0.1 . tcp . 80 }",
        "add element inet tweed-services service_cluster_ips4 { 10.96.0.99 }",
        "flush set inet tweed-services service_networks6",
        "flush map inet tweed-services service_targets6",
        "add element inet tweed-services service_affinity_groups { 0:9 : goto service_draw_3 }",
        "flush map inet tweed-services service_leads",
        "delete element inet tweed-services service_part_leads { 0:2 }",
        "flush chain inet tweed-services service_draw_2",
        "flush chain inet tweed-services service_to_target_in4",
        "delete table inet tweed-services",
    ] {
        lab.0.node.sh(format!("nft '{tampering}'"));
        let outcome = lab.reconcile(&plan);
        assert!(outcome.repaired > 0, "{tampering}: {outcome:?}");
        assert!(listing() == before, "{tampering}");
        assert_eq!(lab.reconcile(&plan), NOTHING, "{tampering}");
    }
}

/// `nft` itself makes the same of the same elements as text.
#[test]
fn elements_are_as_nft_writes_them() {
    let lab = Lab::new();
    let many: Vec<_> = (1..200)
        .map(|port| endpoint(POD.of(Family::V4), port))
        .collect();
    let members = [(0, at(POD, Family::V4)), (1, at(REMOTE, Family::V4))];
    let mut plan = service(&[POD, NEIGHBOUR])
        .endpoints(group(100), &many)
        .members(0x8000_0000, 600, &members);
    plan.0.allowed.insert((
        tweed_planner::services::desired::FIRST_LIMIT,
        super::plan::span("192.0.2.0", "192.0.2.99"),
    ));
    lab.reconcile(&plan);
    let twin = crate::lab::Host::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        lab.0.node.sh("nft -s list table inet tweed-services"),
    )
    .unwrap();
    twin.sh(format!("nft -f {}", file.path().display()));
    let bytes = "nft --debug=netlink list table inet tweed-services \
                 | grep -E '^(inet tweed-services @|\telement)' | grep -Ev '^\telement (0+ ?)+ : 1 '";
    let sorted = |host: &crate::lab::Host| {
        let text = host.sh(bytes);
        let sets = text.split("inet tweed-services @").map(|set| {
            let mut lines: Vec<_> = set.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        });
        sets.collect::<Vec<_>>()
    };
    let (twin, own) = (sorted(&twin), sorted(&lab.0.node));
    assert_eq!(twin.len(), own.len());
    for (twin, own) in twin.iter().zip(&own) {
        assert_eq!(twin, own);
    }
    lab.0.node.sh("nft list ruleset; nft -j list ruleset");
}

/// Endpoints come and go, and groups get and lose slots, under a storm of new flows.
#[test]
fn no_new_flow_is_lost_while_the_sets_change() {
    let lab = Lab::new();
    let mut servers = Servers::new();
    for family in FAMILIES {
        servers = servers.add(&lab.0.pod, "pod", POD.port(family, 8080)).add(
            &lab.0.neighbour,
            "neighbour",
            NEIGHBOUR.port(family, 8080),
        );
    }
    let plans = [
        service(&[POD, NEIGHBOUR]),
        service(&[NEIGHBOUR]),
        service(&[POD, NEIGHBOUR, POD]),
        service(&[POD]),
    ];
    change_under_storm(&lab, SERVICE, &plans, 400, follow);
    for reason in [DropReason::Unsettled, DropReason::UnknownAddress] {
        assert_eq!(lab.dropped(reason), 0, "{reason}");
    }
    drop(servers);
}

/// Who may come is allowed by all of them, also where an agent that starts finds the change.
/// That many others are allowed too makes each transaction take longer.
#[test]
fn no_client_is_refused_that_old_and_new_source_ranges_allow() {
    let lab = Lab::new();
    let mut servers = Servers::new();
    for family in FAMILIES {
        servers = servers.add(&lab.0.neighbour, "neighbour", NEIGHBOUR.port(family, 8080));
    }
    let plans = [0, 1].map(|turn| {
        let mut plan = service(&[NEIGHBOUR]);
        for (number, family) in (0..).zip(FAMILIES) {
            let to = BALANCER.port(family, 80);
            plan = plan.at(TCP, to, group(2 * number));
            let limit = FIRST_LIMIT + 2 * number + turn;
            plan.0.limits.insert(frontend(TCP, to), limit);
            let others = (0..500_u16).map(|other| match family {
                Family::V4 => IpAddr::from([192, 168, (other / 250) as u8, (other % 250) as u8]),
                Family::V6 => IpAddr::from([0x2001, 0xdb8, 9, 0, 0, 0, 0, other]),
            });
            for source in others.chain([WORLD.of(family)]) {
                let (first, last) = (source, source);
                plan.0.allowed.insert((limit, Span { first, last }));
            }
        }
        plan
    });
    change_under_storm(&lab, BALANCER, &plans, 100, follow);
    assert_eq!(lab.dropped(DropReason::SourceNotAllowed), 0);
    change_under_storm(&lab, BALANCER, &plans, 40, |lab, _, new| {
        lab.0.restart();
        lab.reconcile(new);
    });
    assert_eq!(lab.dropped(DropReason::SourceNotAllowed), 0);
    drop(servers);
}

/// A number has other sources, and the old and new ones overlap: the kernel takes it.
#[test]
fn a_restart_that_gives_limits_other_numbers_brings_their_sources_with_them() {
    let lab = Lab::new();
    let [all, one] = [
        ("198.51.100.0", "198.51.100.255"),
        ("198.51.100.1", "198.51.100.2"),
    ];
    let mut servers = Servers::new();
    servers = servers.add(
        &lab.0.neighbour,
        "neighbour",
        NEIGHBOUR.port(Family::V4, 8080),
    );
    let plan = |limits: [Number; 2]| {
        let mut plan = service(&[NEIGHBOUR]);
        for (addresses, limit, (first, last)) in
            [(BALANCER, limits[0], all), (OTHER_SERVICE, limits[1], one)]
        {
            let to = addresses.port(Family::V4, 80);
            plan = plan.at(TCP, to, group(0));
            plan.0.limits.insert(frontend(TCP, to), limit);
            plan.0.allowed.insert((limit, span(first, last)));
        }
        plan
    };
    let [first, second] = [FIRST_LIMIT, FIRST_LIMIT + 1];
    for limits in [[first, second], [second, first]] {
        lab.0.restart();
        lab.reconcile(&plan(limits));
        for to in [BALANCER, OTHER_SERVICE] {
            assert_eq!(
                lab.name(&lab.0.world, TCP, to.port(Family::V4, 80)),
                "neighbour"
            );
        }
        assert_eq!(lab.reconcile(&plan(limits)), NOTHING);
    }
    drop(servers);
}

/// From one plan to the next one of the same planner.
fn follow(lab: &Lab, old: &Plan, new: &Plan) {
    lab.follow(&old.0, &new.0);
}

/// Goes through the plans again and again by `change`, so many times at least, while a host
/// outside opens one connection after another to port 80.
fn change_under_storm(
    lab: &Lab,
    to: Addresses,
    plans: &[Plan],
    least: usize,
    change: impl Fn(&Lab, &Plan, &Plan),
) {
    lab.replan(&plans[0]);
    let (stop, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let clients: Vec<_> = FAMILIES
        .map(|family| {
            let (stop, asked) = (Arc::clone(&stop), Arc::clone(&asked));
            let address = to.port(family, 80);
            let open = move || loop {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                // A packet that is lost is sent again after a second.
                let mut stream = TcpStream::connect(address).expect("refused");
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                assert!(!text.is_empty());
                asked.fetch_add(1, Ordering::Relaxed);
            };
            lab.0.world.run(move || thread::spawn(open))
        })
        .into();
    let mut old = &plans[0];
    let mut changes = 0;
    while asked.load(Ordering::Relaxed) < 1000 || changes < least {
        let new = &plans[changes % plans.len()];
        change(lab, old, new);
        old = new;
        changes += 1;
        assert!(clients.iter().all(|client| !client.is_finished()));
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn an_open_connection_survives_all_changes_of_its_service() {
    let lab = Lab::new();
    let first = service(&[NEIGHBOUR]);
    lab.reconcile(&first);
    for family in FAMILIES {
        for (from, to) in [
            (&lab.0.pod, SERVICE.port(family, 80)),
            (&lab.0.world, NODE.port(family, 30080)),
        ] {
            let (mut client, mut server) = connection(from, to, &lab, family);
            let mut speaks = || {
                client.write_all(b"a").unwrap();
                server.read_exact(&mut [0]).unwrap();
                server.write_all(b"b").unwrap();
                client.read_exact(&mut [0]).unwrap();
            };
            speaks();
            let mut old = first.clone();
            for plan in [service(&[POD]), service(&[]), Plan::new(), first.clone()] {
                lab.follow(&old.0, &plan.0);
                old = plan;
                speaks();
            }
        }
    }
}

fn connection(
    from: &crate::lab::Host,
    to: SocketAddr,
    lab: &Lab,
    family: Family,
) -> (TcpStream, TcpStream) {
    let at = NEIGHBOUR.port(family, 8080);
    let listener = lab.0.neighbour.bind(move || TcpListener::bind(at));
    let client = from.run(move || TcpStream::connect(to).unwrap());
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    (client, server)
}
