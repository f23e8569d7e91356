//! What a plan allows passes, and nothing else does.

use tweed_core::family::Family;
use tweed_planner::policy::desired::Desired;
use tweed_planner::policy::verdicts::Direction::{In, Out};
use tweed_planner::policy::verdicts::{SELF, UNKNOWN};

use super::lab::{FAMILIES, Lab, PacketOutcome::*};
use super::plan::{Plan, TCP, UDP, identity, profile, range_profile};

fn enforced(lab: &Lab) -> Plan {
    Plan::new(&[lab.a.both(), lab.b.both()].concat())
}

#[test]
fn without_a_policy_there_is_nothing_of_it_in_the_table() {
    let lab = Lab::new();
    lab.reconcile(&Desired::default());
    let tables = || lab.node.host.sh("nft list tables");
    assert!(!tables().contains("tweed-policy"), "{}", tables());
    lab.reconcile(&enforced(&lab).0);
    assert!(lab.listing().contains("policy_entry"));
    lab.node.host.sh("nft list ruleset");
    lab.reconcile(&Desired::default());
    assert!(!tables().contains("tweed-policy"), "{}", tables());
}

#[test]
fn ports_and_protocols_of_both_directions() {
    let lab = Lab::new();
    let plan = enforced(&lab)
        .policed(In, &lab.b.both())
        .policed(Out, &lab.a.both())
        .identity(&lab.a.both(), identity(0))
        .identity(&lab.b.both(), identity(1))
        .pair(In, &lab.b.both(), identity(0), profile(0))
        .pair(Out, &lab.a.both(), identity(1), profile(1))
        .exact(profile(0), TCP, 80)
        .exact(profile(0), UDP, 53)
        .range(profile(0), range_profile(0), TCP, 8000, 8010)
        .open(profile(1));
    lab.reconcile(&plan.0);
    for family in FAMILIES {
        let tcp = |port| lab.tcp(&lab.a, &lab.b, family, port);
        let udp = |port| lab.udp(&lab.a, &lab.b, family, port);
        assert_eq!(tcp(80), Passed);
        assert_eq!(tcp(81), Dropped);
        assert_eq!(udp(53), Passed);
        assert_eq!(udp(80), Dropped);
        for (port, outcome) in [
            (7999, Dropped),
            (8000, Passed),
            (8010, Passed),
            (8011, Dropped),
        ] {
            assert_eq!(tcp(port), outcome, "{port}");
        }
        assert_eq!(udp(8005), Dropped);
        assert_eq!(lab.ping(&lab.a, lab.b.address(family), 56), Dropped);
        // The other way: b may send anything, a receives anything.
        assert_eq!(lab.tcp(&lab.b, &lab.a, family, 81), Passed);
        assert_eq!(lab.ping(&lab.b, lab.a.address(family), 56), Passed);
        // The world is nobody to both.
        assert_eq!(lab.tcp(&lab.world, &lab.b, family, 80), Dropped);
        assert_eq!(lab.tcp(&lab.a, &lab.world, family, 80), Dropped);
        assert_eq!(lab.tcp(&lab.world, &lab.a, family, 80), Passed);
        assert_eq!(lab.tcp(&lab.b, &lab.world, family, 80), Passed);
    }
    lab.node.host.sh("nft list ruleset");
}

#[test]
fn protocols_without_ports_are_allowed_apart_from_those_with_ports() {
    let lab = Lab::new();
    let plan = enforced(&lab)
        .policed(In, &lab.b.both())
        .pair(In, &lab.b.both(), UNKNOWN, profile(0))
        .range(profile(0), range_profile(0), TCP, 8000, 8010)
        .others(profile(0), range_profile(1));
    lab.reconcile(&plan.0);
    for family in FAMILIES {
        assert_eq!(lab.ping(&lab.a, lab.b.address(family), 56), Passed);
        assert_eq!(lab.tcp(&lab.a, &lab.b, family, 8000), Passed);
        assert_eq!(lab.tcp(&lab.a, &lab.b, family, 7999), Dropped);
        assert_eq!(lab.udp(&lab.a, &lab.b, family, 8000), Dropped);
    }
    lab.node.host.sh("nft list ruleset");
}

/// k3s#2390.
#[test]
fn what_one_pod_may_send_does_not_override_what_the_other_may_not_receive() {
    let lab = Lab::new();
    let plan = enforced(&lab)
        .policed(In, &lab.b.both())
        .policed(Out, &lab.a.both())
        .pair(Out, &lab.a.both(), UNKNOWN, profile(0))
        .open(profile(0));
    lab.reconcile(&plan.0);
    for family in FAMILIES {
        assert_eq!(lab.tcp(&lab.a, &lab.b, family, 80), Dropped);
        assert_eq!(lab.tcp(&lab.a, &lab.world, family, 80), Passed);
    }
}

#[test]
fn an_address_that_is_not_enforced_is_isolated_both_ways() {
    let lab = Lab::new();
    lab.reconcile(&Plan::new(&lab.b.both()).0);
    for family in FAMILIES {
        assert_eq!(lab.udp(&lab.a, &lab.b, family, 80), Dropped);
        assert_eq!(lab.udp(&lab.b, &lab.a, family, 80), Dropped);
        assert_eq!(lab.udp(&lab.a, &lab.world, family, 80), Dropped);
        assert_eq!(lab.udp(&lab.world, &lab.a, family, 80), Dropped);
        assert_eq!(lab.udp(&lab.a, &lab.node, family, 80), Dropped);
        assert_eq!(lab.udp(&lab.b, &lab.world, family, 80), Passed);
        // The node's own probes.
        assert_eq!(lab.tcp(&lab.node, &lab.a, family, 80), Passed);
        assert_eq!(lab.ping(&lab.node, lab.a.address(family), 56), Passed);
    }
    let old = Plan::new(&lab.b.both()).0;
    lab.follow(&old, &enforced(&lab).0, false);
    assert_eq!(lab.udp(&lab.a, &lab.b, Family::V4, 80), Passed);
}

#[test]
fn a_reply_passes_where_only_one_side_is_subject_to_policy() {
    let lab = Lab::new();
    let plan = enforced(&lab)
        .policed(In, &lab.a.both())
        .policed(Out, &lab.a.both())
        .pair(Out, &lab.a.both(), UNKNOWN, profile(0))
        .exact(profile(0), TCP, 80);
    lab.reconcile(&plan.0);
    for family in FAMILIES {
        assert_eq!(lab.tcp(&lab.a, &lab.b, family, 80), Passed);
        let mut connection = lab.connection(&lab.a, &lab.b, family, 80);
        assert_eq!(lab.answer(&mut connection), Passed);
        assert_eq!(lab.tcp(&lab.b, &lab.a, family, 80), Dropped);
    }
}

#[test]
fn a_pod_to_its_own_node_is_evaluated_and_the_node_to_its_pod_is_not() {
    let lab = Lab::new();
    let plan = enforced(&lab)
        .policed(In, &lab.a.both())
        .policed(Out, &lab.a.both())
        .identity(&lab.node.both(), identity(0))
        .pair(Out, &lab.a.both(), identity(0), profile(0))
        .exact(profile(0), TCP, 80);
    lab.reconcile(&plan.0);
    for family in FAMILIES {
        assert_eq!(lab.tcp(&lab.a, &lab.node, family, 80), Passed);
        assert_eq!(lab.tcp(&lab.a, &lab.node, family, 81), Dropped);
        assert_eq!(lab.tcp(&lab.node, &lab.a, family, 81), Passed);
        assert_eq!(lab.ping(&lab.node, lab.a.address(family), 3000), Passed);
    }
}

#[test]
fn networks_are_asked_where_no_single_address_is_known() {
    let lab = Lab::new();
    let plan = enforced(&lab)
        .policed(In, &[lab.a.v4, lab.b.v4])
        .network("0.0.0.0", "198.51.100.1", identity(0))
        .network("198.51.100.2", "198.51.100.2", identity(1))
        .network("198.51.100.3", "255.255.255.255", identity(0))
        .identity(&[lab.b.v4], identity(2))
        .pair(In, &[lab.a.v4], identity(1), profile(0))
        .pair(In, &[lab.b.v4], identity(0), profile(0))
        .open(profile(0));
    lab.reconcile(&plan.0);
    assert_eq!(lab.udp(&lab.world, &lab.a, Family::V4, 80), Passed);
    assert_eq!(lab.udp(&lab.world, &lab.b, Family::V4, 80), Dropped);
    assert_eq!(lab.udp(&lab.b, &lab.a, Family::V4, 80), Dropped);
    assert_eq!(lab.udp(&lab.a, &lab.b, Family::V4, 80), Passed);
}

/// Through a Service, which another table makes: the packet leaves the pod to the
/// Service's address and comes back to it.
#[test]
fn a_pod_to_itself_has_an_identity_of_its_own() {
    let lab = Lab::new();
    lab.node.host.sh("nft -f - <<'E'
         table inet services {
           chain pre {
             type nat hook prerouting priority -100
             ip daddr 203.0.113.1 dnat ip to 10.244.1.5
             ip daddr 203.0.113.2 dnat ip to 10.244.1.6
           }
           chain post {
             type nat hook postrouting priority 99
             ip saddr 10.244.1.5 ip daddr 10.244.1.5 masquerade
             ip saddr 10.244.1.6 ip daddr 10.244.1.6 masquerade
           }
         }\nE");
    let mut plan = enforced(&lab)
        .policed(In, &[lab.a.v4, lab.b.v4])
        .policed(Out, &[lab.a.v4, lab.b.v4])
        .identity(&[lab.a.v4], identity(0))
        .identity(&[lab.b.v4], identity(1))
        .open(profile(0));
    for direction in [In, Out] {
        plan = plan.pair(direction, &[lab.a.v4, lab.b.v4], SELF, profile(0));
    }
    plan.0.verdicts.selves = [lab.a.v4].into();
    lab.reconcile(&plan.0);
    let itself = "203.0.113.1".parse().unwrap();
    assert_eq!(lab.ping(&lab.a, itself, 56), Passed);
    let itself = "203.0.113.2".parse().unwrap();
    assert_eq!(lab.ping(&lab.b, itself, 56), Dropped);
}
