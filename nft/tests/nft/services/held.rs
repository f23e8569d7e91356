//! What the kernel holds of a plan, read element by element.

use std::collections::BTreeSet;

use tweed_core::family::Family;
use tweed_nft::services::{Difference, Held, held};
use tweed_planner::services::desired::{
    Desired, FIRST_AFFINITY, Frontend, Masquerade, Target, Tracked,
};

use super::lab::{BALANCER, FAMILIES, Lab, NEIGHBOUR, NODE, OTHER_SERVICE, POD, SERVICE};
use super::plan::{Plan, TCP, endpoint, group, node_port};
use crate::tables::Tables;

/// What the kernel of the lab's node holds of a plan and all its frontends.
fn read(lab: &Lab, desired: &Desired) -> Option<Held> {
    let addresses = desired.addresses.targets.keys();
    let node_ports = desired.node_ports.targets.keys();
    let frontends: Vec<Tracked> = (addresses.map(|key| Tracked::Address(*key)))
        .chain(node_ports.map(|key| Tracked::NodePort(*key)))
        .collect();
    let desired = desired.clone();
    lab.0.node.run(move || held(&desired, &frontends).unwrap())
}

/// A frontend of each kind that leads to so many endpoints, one with affinity, and one
/// that is refused, in both families.
fn plan(endpoints: u8) -> Plan {
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        let at = |port| endpoint(POD.of(family), port);
        let all: Vec<_> = (0..endpoints)
            .map(|one| at(8000 + u16::from(one)))
            .collect();
        let target = group(2 * number);
        let affinity = FIRST_AFFINITY + number * 0x2000;
        let members = [(0, at(8080)), (1, endpoint(NEIGHBOUR.of(family), 8080))];
        plan = plan
            .endpoints(target, &all)
            .members(affinity, 60, &members)
            .cluster_ip(TCP, SERVICE.port(family, 80), target)
            .cluster_ip(TCP, OTHER_SERVICE.port(family, 80), Target::Reject)
            .at(TCP, BALANCER.port(family, 80), Target::Affinity(affinity))
            .outside(TCP, BALANCER.port(family, 80), Target::Drop)
            .masquerade(TCP, BALANCER.port(family, 80), Masquerade::OwnNode)
            .node_port(family, TCP, 30080, target)
            .node_port_policy(node_port(family, TCP, 30080), None, Masquerade::All);
    }
    plan
}

#[test]
fn what_was_written_is_read_back_and_what_is_changed_by_hand_is_named() {
    let lab = Lab::new();
    // More than one group has slots for.
    let plan = plan(90);
    assert_eq!(read(&lab, &plan.0), None, "there are no Services yet");
    lab.reconcile(&plan);
    let seen = read(&lab, &plan.0).unwrap();
    assert_eq!((seen.differences, seen.unread), (vec![], 0));
    assert!(seen.read > 2 * 90, "{}", seen.read);

    let at = SERVICE.of(Family::V4);
    let slot = format!("{} . 30080", NODE.of(Family::V4));
    lab.0.node.sh(format!(
        "nft delete element inet tweed-services service_targets4 '{{ {at} . tcp . 80 }}'
         nft add element inet tweed-services service_targets_outside4 '{{ {at} . tcp . 80 : 0x6ffffff1 }}'
         nft delete element inet tweed-services service_endpoints4 '{{ 0x80000200 }}'
         nft add element inet tweed-services service_endpoints4 '{{ 0x80000200 : {slot} }}'"
    ));
    let named = |set: &str, key: &str, planned: Option<&str>, held: Option<&str>| Difference {
        set: set.to_owned(),
        key: key.to_owned(),
        planned: planned.map(str::to_owned),
        held: held.map(str::to_owned),
    };
    let key = format!("{at} . 6 . 80");
    let planned = format!("{} . 8080", POD.of(Family::V4));
    let differences = read(&lab, &plan.0).unwrap().differences;
    assert_eq!(
        differences,
        [
            named("service_targets4", &key, Some("0x40000082"), None),
            named("service_targets_outside4", &key, None, Some("0x6ffffff1")),
            named(
                "service_endpoints4",
                "0x80000200",
                Some(&planned),
                Some(&slot)
            ),
        ]
    );
}

#[test]
fn the_endpoints_of_frontends_are_read_back_whatever_their_groups_hold() {
    let lab = Lab::new();
    // In parts, since they are more than one group has slots for.
    lab.reconcile(&plan(90));
    let numbers = lab
        .0
        .with(|table: &mut Tables| table.services.known_numbers(&mut table.nft));
    let known = numbers.unwrap().frontends_of(TCP);
    for family in FAMILIES {
        let of = |address| {
            let (protocol, port) = (TCP, 80);
            let at = Tracked::Address(Frontend {
                address,
                protocol,
                port,
            });
            known.get(&at).map(|all| BTreeSet::from_iter(all.clone()))
        };
        let at = |port| endpoint(POD.of(family), port);
        let in_parts = (8000..8090).map(at).collect();
        assert_eq!(of(SERVICE.of(family)), Some(in_parts));
        let members = [at(8080), endpoint(NEIGHBOUR.of(family), 8080)];
        assert_eq!(of(BALANCER.of(family)), Some(members.into()));
        assert_eq!(of(OTHER_SERVICE.of(family)), None);
    }
}

#[test]
fn so_many_elements_are_read_at_most_and_the_others_are_counted() {
    let lab = Lab::new();
    let mut plan = plan(1);
    let target = group(8);
    let many: Vec<_> = (1..=1100)
        .map(|port| endpoint(POD.of(Family::V4), port))
        .collect();
    plan = plan
        .endpoints(target, &many)
        .cluster_ip(TCP, SERVICE.port(Family::V4, 81), target);
    lab.reconcile(&plan);
    let seen = read(&lab, &plan.0).unwrap();
    assert_eq!((seen.differences, seen.read), (vec![], 1024));
    assert!(seen.unread > 76, "{}", seen.unread);
}
