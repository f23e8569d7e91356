//! Policy judges the pod behind the Service.

use tweed_component::drops::{DropReason, Owner};
use tweed_core::family::Family;
use tweed_nft::{Outcome, Table as _};
use tweed_planner::policy::desired::Desired as Policies;
use tweed_planner::policy::verdicts::Direction;
use tweed_planner::services::desired::Target;

use super::lab::{Answer, FAMILIES, Lab, NEIGHBOUR, POD, SERVICE, Servers, WORLD};
use super::plan::{PROTOCOLS, Plan, TCP, UDP, endpoint, group};
use crate::node::NOTHING;
use crate::policy::plan::{Plan as PolicyPlan, identity, profile};
use crate::script::write_script;
use crate::wires::ruleset;

/// Two frontends that lead to two ports of one pod.
pub(super) fn services() -> Plan {
    let mut plan = Plan::new();
    for (number, family) in (0..).zip(FAMILIES) {
        for (port, real) in [(80, 8080), (81, 8081)] {
            let target = group(4 * number + u32::from(port - 80));
            plan = plan.endpoints(target, &[endpoint(NEIGHBOUR.of(family), real)]);
            for protocol in PROTOCOLS {
                plan = plan.cluster_ip(protocol, SERVICE.port(family, port), target);
            }
        }
    }
    plan
}

/// What answers at these two ports.
pub(super) fn servers(lab: &Lab) -> Servers {
    let mut servers = Servers::new();
    for family in FAMILIES {
        for port in [8080, 8081] {
            servers = servers.add(&lab.0.neighbour, "neighbour", NEIGHBOUR.port(family, port));
        }
    }
    servers
}

/// The pod may reach the port 8080 behind, and no other.
pub(super) fn policies() -> Policies {
    let both = |address: super::lab::Addresses| FAMILIES.map(|family| address.of(family));
    let enforced = [both(POD), both(NEIGHBOUR)].concat();
    let plan = PolicyPlan::new(&enforced)
        .identity(&both(POD), identity(0))
        .identity(&both(NEIGHBOUR), identity(1))
        .policed(Direction::In, &both(NEIGHBOUR))
        .pair(Direction::In, &both(NEIGHBOUR), identity(0), profile(0))
        .policed(Direction::Out, &both(POD))
        .pair(Direction::Out, &both(POD), identity(1), profile(0));
    plan.exact(profile(0), TCP, 8080)
        .exact(profile(0), UDP, 8080)
        .0
}

/// Makes the tables of policies and Services so.
pub(super) fn make(lab: &Lab, policies: &Policies, services: &Plan) -> Outcome {
    let (policies, services) = (policies.clone(), services.0.clone());
    lab.0.with(move |tables| {
        let policies = tables.police(&policies, false).unwrap();
        policies + tables.serve(&services, false).unwrap()
    })
}

/// How many packets policies have dropped.
fn dropped(lab: &Lab) -> u64 {
    let reasons = DropReason::of(Owner::Policy);
    reasons.map(|reason| lab.dropped(reason)).sum()
}

/// Asserts that a pod reaches the Service's port that leads to an allowed one, and not the
/// other, in each family.
pub(super) fn assert_enforced(lab: &Lab) {
    let dropped = || dropped(lab);
    for family in FAMILIES {
        let to = |port| SERVICE.port(family, port);
        for protocol in PROTOCOLS {
            assert_eq!(lab.name(&lab.0.pod, protocol, to(80)), "neighbour");
        }
        let before = dropped();
        assert!(!answers(lab, to(81), || dropped() > before));
    }
}

/// Of chains with one priority the kernel runs the one that was registered last first, so no
/// two chains of these tables have one.
#[test]
fn it_makes_no_difference_which_table_was_made_first() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for order in orders {
        lab.0
            .node
            .sh("for table in $(nft list tables inet | cut -d' ' -f3); do
                 nft delete table inet $table
             done");
        lab.0.restart();
        for table in order {
            lab.0.with(move |tables| {
                match table {
                    0 => tables.reconcile(&ruleset(), false),
                    1 => tables.police(&policies(), false),
                    _ => tables.serve(&services().0, false),
                }
                .unwrap()
            });
        }
        assert_enforced(&lab);
        // What a pod sends to the world has the node's address, and what it sends to a
        // Service keeps its own.
        let world = Servers::new().add(&lab.0.world, "world", WORLD.port(Family::V4, 8080));
        let of_pod = lab.ask(&lab.0.remote_pod, TCP, WORLD.port(Family::V4, 8080));
        assert!(matches!(of_pod, Answer::From(..)), "{order:?}: {of_pod:?}");
        let Answer::From(_, seen) = lab.ask(&lab.0.pod, TCP, SERVICE.port(Family::V4, 80)) else {
            panic!("{order:?}: the Service does not answer");
        };
        assert_eq!(seen, POD.of(Family::V4), "{order:?}");
        drop(world);
    }
}

/// What tells the client has the Service's address, which no policy can name.
#[test]
fn a_pod_that_may_not_send_there_is_told_that_a_service_has_no_endpoints() {
    let lab = Lab::new();
    let mut plan = Plan::new();
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let empty = SERVICE.port(family, 82);
            plan = plan.cluster_ip(protocol, empty, Target::Reject);
        }
    }
    make(&lab, &policies(), &plan);
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let to = SERVICE.port(family, 82);
            assert_eq!(lab.ask(&lab.0.pod, protocol, to), Answer::Refused, "{to}");
        }
    }
}

/// A version of nft, or a kernel, that does not take rules with this word: another agent
/// works with it from now on.
fn refuse(lab: &Lab, word: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let nft = folder.path().join("nft");
    let input = folder.path().join("input").display().to_string();
    let script = format!(
        "#!/bin/sh\ncat >{input}\nif grep {word} {input} >&2; then exit 1; fi\n\
         exec nft -f {input}\n"
    );
    write_script(&nft, &script);
    lab.0.restart_with(&nft);
    folder
}

/// The sets of a new table are filled before its rules come: those that no rule uses must not
/// be taken for Services that are in force.
#[test]
fn a_new_table_whose_rules_are_refused_is_not_there() {
    let lab = Lab::new();
    let _folder = refuse(&lab, "unsettled.drop");
    let error = lab
        .0
        .with(|tables| tables.serve(&services().0, false).unwrap_err());
    assert!(error.to_string().contains("unsettled"), "{error}");
    let tables = lab.0.node.sh("nft list tables");
    assert!(!tables.contains("tweed-services"), "{tables}");
    assert!(
        lab.0
            .node
            .sh("nft list table inet tweed")
            .contains("goto from_pod")
    );
}

/// What is refused has replaced nothing, so no flow has to be evaluated anew.
#[test]
fn a_table_whose_new_rules_are_refused_stays() {
    let lab = Lab::new();
    make(&lab, &policies(), &services());
    let _folder = refuse(&lab, "service_affinity_groups");
    let table = || lab.0.node.sh("nft -s -a list table inet tweed-services");
    let before = table();
    lab.0
        .node
        .sh("nft flush chain inet tweed-services service_send");
    lab.0
        .with(|tables| tables.serve(&services().0, false).unwrap_err());
    lab.0.restart();
    lab.0
        .with(|tables| tables.serve(&services().0, false).unwrap());
    assert_eq!(table().lines().count(), before.lines().count());
}

#[test]
fn both_are_kept_over_a_restart_and_each_goes_alone() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    make(&lab, &policies(), &services());
    assert_enforced(&lab);
    assert_eq!(make(&lab, &policies(), &services()), NOTHING);
    lab.0.restart();
    assert_enforced(&lab);
    assert_eq!(make(&lab, &policies(), &services()), NOTHING);
    let handles = |table: &str| lab.0.node.sh(format!("nft -s -a list table inet {table}"));
    let kept = handles("tweed-services");
    lab.0
        .with(|tables| tables.police(&Policies::default(), false).unwrap());
    assert_eq!(handles("tweed-services"), kept);
    let tables = lab.0.node.sh("nft list tables");
    assert!(!tables.contains("tweed-policy"), "{tables}");
    make(&lab, &policies(), &services());
    let kept = handles("tweed-policy");
    lab.0
        .with(|tables| tables.services.remove(&mut tables.nft).unwrap());
    assert_eq!(handles("tweed-policy"), kept);
    let direct = |port| NEIGHBOUR.port(Family::V4, port);
    let dropped = || dropped(&lab);
    let before = dropped();
    assert!(!answers(&lab, direct(8081), || dropped() > before));
    assert!(answers(&lab, direct(8080), || false));
}

/// Whether a connection from the pod is answered, before `drops` says that it was dropped.
fn answers(lab: &Lab, to: std::net::SocketAddr, mut drops: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < super::lab::PATIENCE {
        if let Some(answer) = lab.0.pod.run(move || super::lab::ask_tcp(to)) {
            assert!(matches!(answer, Answer::From(..)), "{answer:?}");
            return true;
        }
        if drops() {
            return false;
        }
    }
    panic!("neither answered nor dropped: {to}");
}
