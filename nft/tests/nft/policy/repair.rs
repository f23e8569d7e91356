//! A restart writes nothing, and what others change is put back.

use tweed_core::family::Family;
use tweed_nft::{Error, Table as _};
use tweed_planner::policy::desired::Desired;
use tweed_planner::policy::verdicts::Direction::{In, Out};
use tweed_planner::policy::verdicts::{Span, UNKNOWN};

use super::lab::{Lab, PacketOutcome::*, ruleset};
use super::plan::{Plan, TCP, UDP, identity, profile, range_profile};
use crate::node::NOTHING;
use crate::repair::catch_all;
use crate::tables::Tables;

/// Something in every set, of both families.
pub fn full(lab: &Lab) -> Desired {
    let mut plan = Plan::new(&[lab.a.both(), lab.b.both()].concat());
    for direction in [In, Out] {
        plan = plan
            .policed(direction, &lab.b.both())
            .pair(direction, &lab.b.both(), identity(0), profile(0))
            .pair(direction, &lab.b.both(), identity(1), profile(1))
            .pair(direction, &lab.b.both(), UNKNOWN, profile(2));
    }
    let mut plan = plan
        .identity(&lab.a.both(), identity(0))
        .network("192.0.2.0", "192.0.2.9", identity(1))
        .network("192.0.2.10", "192.0.2.10", identity(0))
        .network("2001:db8:9::", "2001:db8:9::ff", identity(1))
        .open(profile(1))
        .exact(profile(0), TCP, 80)
        .range(profile(0), range_profile(0), UDP, 1000, 1999)
        .range(profile(2), range_profile(1), TCP, 1, 65535);
    plan.0.verdicts.selves = lab.a.both().into();
    plan.0
}

#[test]
fn the_second_reconcile_and_a_restart_write_nothing_and_keep_the_generation() {
    let lab = Lab::new();
    let desired = full(&lab);
    lab.reconcile(&desired);
    assert_eq!(lab.reconcile(&desired), NOTHING);
    lab.follow(&desired, &desired, true);
    let (handles, generation) = (lab.handles(), lab.generation());
    assert_eq!(generation, "policy_2");
    lab.restart();
    assert_eq!(lab.reconcile(&desired), NOTHING);
    assert_eq!(
        (lab.handles(), lab.generation()),
        (handles.clone(), generation)
    );
    for _ in 0..20 {
        assert_eq!(lab.look(&ruleset(), &desired, true), NOTHING);
    }
    assert_eq!(lab.handles(), handles);
}

/// `nft` itself makes the same of the same elements as text.
#[test]
fn elements_are_as_nft_writes_them() {
    let lab = Lab::new();
    let desired = full(&lab);
    lab.reconcile(&desired);
    let whole = lab.listing();
    let twin = crate::lab::Host::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &whole).unwrap();
    let path = file.path().display();
    twin.sh(format!("nft -f {path}"));
    // Without the end at the lowest value with which nft begins an empty set of ranges;
    // nft 1.0 and 1.1 print such an end differently.
    let bytes = "nft --debug=netlink list table inet tweed-policy \
                 | grep -E '^(inet tweed-policy @|\telement)' | grep -Ev '^\telement (0+ ?)+ *(: 1 |flags 1)'";
    let sorted = |host: &crate::lab::Host| {
        let text = host.sh(bytes);
        let sets = text.split("inet tweed-policy @").map(|set| {
            let mut lines: Vec<_> = set.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        });
        sets.collect::<Vec<_>>()
    };
    assert_eq!(sorted(&twin), sorted(&lab.node.host));
}

#[test]
fn what_is_changed_by_hand_is_put_back_and_flows_are_evaluated_anew() {
    let lab = Lab::new();
    let desired = full(&lab);
    lab.reconcile(&desired);
    let whole = |lab: &Lab| {
        let generation = format!("goto {}", lab.generation());
        lab.listing().replace(&generation, "goto the_one_in_force")
    };
    let before = whole(&lab);
    let catch_all = catch_all(&lab.node.host, "policy_judged4");
    let all = [
        "delete element inet tweed-policy policy_judged4 { 10.244.1.5 }",
        "add element inet tweed-policy policy_judged4 { 10.244.1.99 }",
        "flush set inet tweed-policy policy_in6",
        "delete element inet tweed-policy policy_ids4 { 10.244.1.5 }; add element inet tweed-policy policy_ids4 { 10.244.1.5 : 0:9 }",
        "add element inet tweed-policy policy_nets4 { 198.51.100.0/24 : 0:2 }",
        "delete element inet tweed-policy policy_nets6 { 2001:db8:9::-2001:db8:9::ff }",
        "flush map inet tweed-policy policy_pairs_in4",
        "add element inet tweed-policy policy_open { 1000:0000 }",
        "add element inet tweed-policy policy_exact { 1000:0000 . tcp . 81 }",
        "flush set inet tweed-policy policy_ranges",
        "add element inet tweed-policy policy_ranges { 2000:0000 . 5-9 }",
        "flush chain inet tweed-policy policy_to4",
        "insert rule inet tweed-policy policy_judge accept",
        "add chain inet tweed-policy mine; add rule inet tweed-policy mine ip saddr @policy_in4 accept",
        "add chain inet tweed-policy mine { type filter hook forward priority -1; policy drop; }",
        "add set inet tweed-policy mine { type ipv4_addr; }",
        "add counter inet tweed-policy mine",
    ];
    for tampering in all.into_iter().chain(catch_all.as_deref()) {
        let generation = lab.generation();
        lab.node.host.sh(format!("nft '{tampering}'"));
        let outcome = lab.reconcile(&desired);
        assert!(
            outcome.repaired > 0 && outcome.changed == 0,
            "{tampering}: {outcome:?}"
        );
        assert_eq!(whole(&lab), before, "{tampering}");
        assert_ne!(lab.generation(), generation, "{tampering}");
        assert_eq!(lab.reconcile(&desired), NOTHING, "{tampering}");
    }
    let generation = lab.generation();
    for tampering in [
        "delete element inet tweed-policy policy_entry { ipv4 }",
        "delete element inet tweed-policy policy_entry { ipv4 }; add element inet tweed-policy policy_entry { ipv4 : goto policy_1 }",
    ] {
        lab.node.host.sh(format!("nft '{tampering}'"));
        assert!(lab.reconcile(&desired).repaired > 0, "{tampering}");
        assert_eq!(whole(&lab), before, "{tampering}");
        assert_eq!(lab.generation(), generation, "{tampering}");
    }
}

#[test]
fn a_deleted_table_is_made_again_and_flows_are_evaluated_anew() {
    let lab = Lab::new();
    let desired = full(&lab);
    lab.reconcile(&desired);
    let mut connection = lab.connection(&lab.a, &lab.b, Family::V4, 80);
    lab.node.host.sh("nft delete table inet tweed-policy");
    // Meanwhile nothing is evaluated.
    let mut denied = lab.connection(&lab.a, &lab.b, Family::V4, 81);
    assert!(lab.reconcile(&desired).repaired > 0);
    assert_eq!(lab.request(&mut connection), Passed);
    assert_eq!(lab.answer(&mut connection), Passed);
    assert_eq!(lab.answer(&mut denied), Dropped);
    assert_eq!(lab.reconcile(&desired), NOTHING);
    // The number goes on. Otherwise all marks would have to be cleared first, while nothing
    // is evaluated.
    assert_eq!(lab.generation(), "policy_2");
}

/// Networks that overlap, which no kernel takes.
fn with_overlap(desired: &Desired) -> Desired {
    let mut refused = desired.clone();
    for (last, number) in [("10.1.255.255", identity(0)), ("10.2.0.7", identity(1))] {
        let (first, last) = ("10.1.0.9".parse().unwrap(), last.parse().unwrap());
        refused
            .verdicts
            .networks
            .insert(Span { first, last }, number);
    }
    refused
}

/// The rules are put back, and then the elements of the same look are refused.
#[test]
fn what_a_foreign_rule_let_pass_is_evaluated_anew_though_elements_are_refused_meanwhile() {
    let lab = Lab::new();
    let desired = full(&lab);
    lab.reconcile(&desired);
    lab.node
        .host
        .sh("nft insert rule inet tweed-policy policy_judge return");
    let mut denied = lab.connection(&lab.a, &lab.b, Family::V4, 81);
    let refused = with_overlap(&desired);
    let result = lab.with(move |table| {
        table.policy.forget();
        table.police(&refused, false)
    });
    assert!(matches!(result, Err(Error::Netlink(_))), "{result:?}");
    lab.with(|table| table.policy.forget());
    lab.reconcile(&desired);
    assert_eq!(lab.answer(&mut denied), Dropped);
    assert_eq!(lab.reconcile(&desired), NOTHING);
}

/// The planner starts anew and has no delta.
#[test]
fn a_full_plan_while_in_force_writes_what_differs() {
    let lab = Lab::new();
    let desired = full(&lab);
    lab.reconcile(&desired);
    let mut other = desired.clone();
    other.ports.exact = [(profile(0), TCP, 81)].into();
    lab.with(|table| table.policy.forget());
    let outcome = lab.reconcile(&other);
    assert_eq!((outcome.changed, outcome.repaired), (2, 0), "{outcome:?}");
    assert_eq!(lab.generation(), "policy_2");
    assert_eq!(lab.tcp(&lab.a, &lab.b, Family::V4, 81), Passed);
    assert_eq!(lab.tcp(&lab.a, &lab.b, Family::V4, 80), Dropped);
    assert_eq!(lab.reconcile(&other), NOTHING);
}

/// A Node whose pod CIDR has a length that no other has: the rules change.
#[test]
fn a_change_of_other_rules_cuts_nothing() {
    let lab = Lab::new();
    let desired = full(&lab);
    let with_vxlan = |inner: &[&str]| tweed_planner::overlay::desired::Ruleset {
        vxlan: Some(tweed_planner::overlay::desired::VxlanMatch {
            device: "tweed.1".to_owned(),
            vni: 1,
            port: 8472,
        }),
        vxlan_sources: crate::wires::sources("192.0.2.2", inner),
        ..ruleset()
    };
    lab.look(&with_vxlan(&["10.244.2.0/24"]), &desired, false);
    let mut connection = lab.connection(&lab.a, &lab.b, Family::V4, 80);
    // The table and the sets of policy stay, with their elements.
    let kept = |lab: &Lab| {
        let text = lab.handles();
        let kept = |line: &&str| {
            line.starts_with("table ")
                || line.contains("set policy_")
                || line.contains("map policy_")
        };
        text.lines()
            .filter(kept)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = kept(&lab);
    assert!(
        before.len() > 10 && before[0].contains("# handle"),
        "{before:?}"
    );
    for inner in [
        &["10.244.2.0/25"][..],
        &["10.244.4.0/23", "fd00:0:0:2::/64"],
    ] {
        let outcome = lab.look(&with_vxlan(inner), &desired, false);
        assert_eq!(outcome.repaired, 0, "{outcome:?}");
        assert_eq!(kept(&lab), before);
        assert_eq!(lab.request(&mut connection), Passed);
        assert_eq!(lab.answer(&mut connection), Passed);
        assert_eq!(lab.tcp(&lab.a, &lab.b, Family::V4, 81), Dropped);
        assert_eq!(lab.look(&with_vxlan(inner), &desired, false), NOTHING);
    }
    // VXLAN's own port is evaluated as any other.
    assert_eq!(lab.udp(&lab.a, &lab.b, Family::V4, 8472), Dropped);
}

/// Without policies or Services that are known, nothing is put back: each look at that must be
/// the last one until somebody changes something.
#[test]
fn a_table_that_cannot_be_put_back_is_looked_at_once() {
    let lab = Lab::new();
    let touched = lab.with(|tables| {
        let Tables {
            nft,
            policy,
            services,
            ..
        } = tables;
        let before = [policy.is_touched(nft), services.is_touched(nft)].map(Result::unwrap);
        policy.restore(nft).unwrap();
        services.restore(nft).unwrap();
        let after = [policy.is_touched(nft), services.is_touched(nft)].map(Result::unwrap);
        (before, after)
    });
    assert_eq!(touched, ([true; 2], [false; 2]));
}
