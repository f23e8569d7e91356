//! An agent of another version, with sets of other names, has left the table: what it serves
//! is served until the new agent knows what to serve, and what it isolates is isolated.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use tweed_core::family::Family;
use tweed_nft::inet_tweed::{Components, Refused, Wanted};
use tweed_nft::{Outcome, Table};
use tweed_planner::policy::desired::Desired as Policies;
use tweed_planner::services::desired::{FIRST_AFFINITY, Target};

use super::lab::{Answer, FAMILIES, Lab, NEIGHBOUR, SERVICE, ask_tcp};
use super::plan::{PROTOCOLS, Plan, TCP, endpoint, group};
use super::policy::{answers, policies, servers, services};
use crate::node::NOTHING;
use crate::policy::plan::{Plan as PolicyPlan, profile};
use crate::wires::ruleset;

/// Makes the table one of another version, which has a set of each of these names, but under
/// another name, and has the next agent begin with it.
fn make_other_version(lab: &Lab, names: &[&str]) {
    let node = &lab.0.node;
    let baseline = lab.0.run_dir.path().join("nft-skeleton");
    let mut known = fs::read_to_string(&baseline).unwrap();
    let (version, _) = known.split_once(' ').unwrap();
    known = known.replacen(version, "0-other", 1);
    for name in names {
        let renamed = |text: String| text.replace(name, &format!("other_{name}"));
        let listing = node.sh("nft -s list table inet tweed");
        let mut script = String::new();
        let mut chain = None;
        let mut users = BTreeSet::new();
        let mut kind = "";
        for line in listing.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["chain", name, "{"] => chain = Some(name.to_owned()),
                [word @ ("set" | "map"), set, "{"] if set == *name => {
                    kind = if word == "set" { "set" } else { "map" };
                }
                ref words if words.iter().any(|word| *word == format!("@{name}")) => {
                    users.insert(chain.clone().unwrap());
                }
                _ => {}
            }
        }
        assert!(!users.is_empty(), "no rule has {name}");
        script += &renamed(node.sh(format!("nft -s list {kind} inet tweed {name}")));
        for user in users {
            script += &format!("flush chain inet tweed {user}\n");
            script += &renamed(node.sh(format!("nft -s list chain inet tweed {user}")));
        }
        script += &format!("delete {kind} inet tweed {name}\n");
        let file = lab.0.run_dir.path().join("other.nft");
        fs::write(&file, script).unwrap();
        node.sh(format!("nft -f {}", file.display()));
        let lines = known.lines();
        // It says nothing of chains, whose rules are others now.
        let lines =
            lines.filter(|line| ![Some(*name), Some("chain")].contains(&line.split(' ').next()));
        known = lines.map(|line| format!("{line}\n")).collect();
    }
    fs::write(&baseline, known).unwrap();
    lab.0.restart();
}

/// Makes the table with what is known of policies and Services, in a cluster with one more
/// node if `joined`.
fn reconcile(
    lab: &Lab,
    policies: Option<Policies>,
    services: Option<Plan>,
    joined: bool,
) -> Outcome {
    lab.0.with(move |table| {
        table.forget_policy();
        table.forget_services();
        let components = Components {
            policy: policies.as_ref().map_or(Wanted::AsItIs, Wanted::As),
            log: false,
            services: services
                .as_ref()
                .map_or(Wanted::AsItIs, |plan| Wanted::As(&plan.0)),
        };
        let mut ruleset = ruleset();
        if joined {
            ruleset.node_addresses.insert("192.0.2.3".parse().unwrap());
        }
        table.reconcile_all(&ruleset, &components, false).unwrap()
    })
}

/// The same Services, with the numbers of a planner of another version: those that one
/// version gives to one Service port, the other gives to another one.
fn other_numbers() -> Plan {
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        for (port, real) in [(80, 8080), (81, 8081)] {
            let target = group(4 * number + 81 - u32::from(port));
            plan = plan.endpoints(target, &[endpoint(NEIGHBOUR.of(family), real)]);
            for protocol in PROTOCOLS {
                plan = plan.cluster_ip(protocol, SERVICE.port(family, port), target);
            }
        }
    }
    plan
}

/// Whether new flows of a pod are led to the Service, and judged.
fn check(lab: &Lab) {
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let to = SERVICE.port(family, 80);
            assert_eq!(lab.name(&lab.0.pod, protocol, to), "neighbour");
            assert!(!reaches_the_other_port(lab, family));
        }
    }
}

/// Whether the pod reaches the port of the Service that `policies` denies.
fn reaches_the_other_port(lab: &Lab, family: Family) -> bool {
    let dropped = || {
        let dropped = lab.0.with(|table| table.dropped().unwrap()).unwrap();
        dropped.ingress + dropped.egress + dropped.isolated
    };
    let before = dropped();
    answers(lab, SERVICE.port(family, 81), || dropped() > before)
}

/// Counts the new connections of a pod to the Service, of which none is refused or dropped,
/// while `work` is done.
fn under_new_flows(lab: &Lab, work: impl FnOnce()) -> usize {
    let dropped = || lab.0.with(|table| table.dropped().unwrap());
    let before = dropped();
    let (done, mut flows) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for family in FAMILIES {
                    let to = SERVICE.port(family, 80);
                    // An answer that is late on a busy machine is none that was dropped.
                    match lab.0.pod.run(move || ask_tcp(to)) {
                        Some(Answer::From(name, _)) => assert_eq!(name, "neighbour"),
                        Some(answer) => panic!("{answer:?} from {to}"),
                        None => {}
                    }
                    flows += 1;
                }
            }
        });
        work();
        done.store(true, Ordering::Relaxed);
        client.join().unwrap();
    });
    assert_eq!(lab.refused(), Refused::default());
    assert_eq!(dropped(), before);
    flows
}

#[test]
fn its_rules_stay_in_force_until_policies_and_services_are_known() {
    // Of policies, of Services, of both.
    for names in [
        &["policy_pairs_in4"][..],
        &["service_targets4", "service_affinity_groups"],
        &["service_slots6", "policy_ids6"],
    ] {
        let lab = Lab::new();
        let _servers = servers(&lab);
        // Numbers mean the same in both versions as long as the sets are the same.
        let has_other = names.iter().any(|name| name.starts_with("service_"));
        let left = if has_other {
            other_numbers()
        } else {
            services()
        };
        reconcile(&lab, Some(policies()), Some(left), false);
        make_other_version(&lab, names);
        check(&lab);
        let before = lab.0.node.sh("nft -s -a list table inet tweed");
        let keeps = || lab.0.with(|table| table.keeps_earlier());

        assert_eq!(reconcile(&lab, None, None, false), NOTHING, "{names:?}");
        assert!(keeps(), "{names:?}");
        let after = lab.0.node.sh("nft -s -a list table inet tweed");
        assert!(after == before, "{names:?}: the table was changed");
        // A Node joins.
        assert_eq!(reconcile(&lab, None, None, true).changed, 1, "{names:?}");
        assert_eq!(reconcile(&lab, None, None, true), NOTHING, "{names:?}");
        let nodes = lab.0.node.sh("nft list set inet tweed node_addresses4");
        assert!(nodes.contains("192.0.2.3"), "{nodes}");
        assert!(keeps(), "{names:?}");
        check(&lab);

        let flows = under_new_flows(&lab, || {
            reconcile(&lab, Some(policies()), Some(services()), true);
        });
        assert!(flows > 0);
        assert!(!keeps(), "{names:?}");
        let after = lab.0.node.sh("nft list table inet tweed");
        assert!(!after.contains("other_"), "{after}");
        check(&lab);
        let known = reconcile(&lab, Some(policies()), Some(services()), true);
        assert_eq!(known, NOTHING, "{names:?}");
    }
}

/// A file of an earlier version may not say of a set how it looked.
#[test]
fn a_set_that_is_not_known_is_made_again_with_those_of_its_provider_and_no_other() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    reconcile(&lab, Some(policies()), Some(services()), false);
    let baseline = lab.0.run_dir.path().join("nft-skeleton");
    let known = fs::read_to_string(&baseline).unwrap();
    let (version, _) = known.split_once(' ').unwrap();
    let lines = known.lines();
    let lines = lines.filter(|line| !line.starts_with("policy_ids4 "));
    let less: String = lines.map(|line| format!("{line}\n")).collect();
    fs::write(&baseline, less.replacen(version, "0-other", 1)).unwrap();
    lab.0.restart();
    let handle = |set: &str| {
        let text = lab.0.node.sh("nft -a list table inet tweed");
        let begins = format!("map {set} {{ # handle ");
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(&begins));
        line.unwrap().to_owned()
    };
    let sets = ["policy_ids4", "policy_ids6", "service_slots4"];
    let before = sets.map(handle);
    reconcile(&lab, Some(policies()), Some(services()), false);
    let after = sets.map(handle);
    let is_kept = [0, 1, 2].map(|set| before[set] == after[set]);
    assert_eq!(is_kept, [false, false, true]);
    check(&lab);
}

/// Sets that both versions declare alike mean the same to both.
#[test]
fn policies_change_under_its_rules_if_only_services_are_others() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    reconcile(&lab, Some(policies()), Some(services()), false);
    make_other_version(&lab, &["service_targets4"]);
    assert_eq!(reconcile(&lab, Some(policies()), None, false), NOTHING);
    check(&lab);
    let mut open = policies();
    for protocol in PROTOCOLS {
        open = PolicyPlan(open).exact(profile(0), protocol, 8081).0;
    }
    reconcile(&lab, Some(open.clone()), None, false);
    assert!(
        lab.0
            .with(|table| table.keeps_earlier() && table.knows_policy())
    );
    assert!(FAMILIES.map(|family| reaches_the_other_port(&lab, family)) == [true; 2]);
    reconcile(&lab, Some(open), Some(services()), false);
    assert!(
        lab.0
            .with(|table| table.knows_policy() && table.knows_services())
    );
    assert!(FAMILIES.map(|family| reaches_the_other_port(&lab, family)) == [true; 2]);
}

#[test]
fn a_plan_whose_sets_are_others_there_waits_for_what_is_not_known() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    reconcile(&lab, Some(policies()), Some(services()), false);
    make_other_version(&lab, &["policy_ids4", "service_targets4"]);
    for (policies, services) in [(Some(policies()), None), (None, Some(services()))] {
        assert_eq!(reconcile(&lab, policies, services, false), NOTHING);
        assert!(
            !lab.0
                .with(|table| table.knows_policy() || table.knows_services())
        );
        check(&lab);
    }
    reconcile(&lab, Some(policies()), Some(services()), false);
    assert!(
        lab.0
            .with(|table| table.knows_policy() && table.knows_services())
    );
    check(&lab);
}

/// How the table of another version should look is not known: only the own one can be put
/// in place of one that somebody has damaged. It serves nothing and lets nothing pass that
/// policies may forbid until these are known.
#[test]
fn a_table_of_another_version_that_is_damaged_is_replaced() {
    for names in [["service_targets4"], ["policy_in4"]] {
        let lab = Lab::new();
        let _servers = servers(&lab);
        reconcile(&lab, Some(policies()), Some(services()), false);
        make_other_version(&lab, &names);
        assert_eq!(reconcile(&lab, None, None, false), NOTHING);
        lab.0.node.sh("nft flush chain inet tweed from_pod");
        assert!(lab.0.with(Table::drain_notifications).unwrap());
        reconcile(&lab, None, None, false);
        assert!(!lab.0.with(|table| table.keeps_earlier()));
        let chain = lab.0.node.sh("nft list chain inet tweed from_pod");
        assert!(chain.contains("drop"), "{chain}");
        if names == ["policy_in4"] {
            assert!(!reaches_the_other_port(&lab, Family::V4));
        }
        reconcile(&lab, Some(policies()), Some(services()), false);
        check(&lab);
    }
}

/// Rules that stay have no chain for a timeout of affinity that is new.
#[test]
fn a_timeout_that_its_rules_do_not_have_waits_for_the_own_rules() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    reconcile(&lab, Some(policies()), Some(services()), false);
    make_other_version(&lab, &["policy_ids4"]);
    let sticky = || {
        let at = SERVICE.port(Family::V4, 82);
        let member = endpoint(NEIGHBOUR.of(Family::V4), 8080);
        services()
            .cluster_ip(TCP, at, Target::Affinity(FIRST_AFFINITY))
            .members(FIRST_AFFINITY, 600, &[(0, member)])
    };
    assert_eq!(reconcile(&lab, None, Some(sticky()), false), NOTHING);
    assert!(!lab.0.with(|table| table.knows_services()));
    check(&lab);
    reconcile(&lab, Some(policies()), Some(sticky()), false);
    assert!(
        lab.0
            .with(|table| table.knows_policy() && table.knows_services())
    );
    check(&lab);
}

/// Where there are no policies, none has to come into force.
#[test]
fn no_policies_are_in_force_where_there_are_none() {
    let lab = Lab::new();
    let none = || Some(Policies::default());
    reconcile(&lab, none(), Some(services()), false);
    make_other_version(&lab, &["service_targets4"]);
    assert_eq!(reconcile(&lab, none(), None, false), NOTHING);
    assert!(
        lab.0
            .with(|table| table.keeps_earlier() && table.knows_policy())
    );
}
