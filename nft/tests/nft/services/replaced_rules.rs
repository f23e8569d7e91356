//! What becomes of Services while the rules of others in their table change.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tweed_core::family::Family;
use tweed_nft::Table as _;
use tweed_planner::services::desired::{AFFINITY_BLOCK, FIRST_AFFINITY, Target};

use super::lab::{FAMILIES, Lab, NEIGHBOUR, POD, SERVICE, Servers};
use super::plan::{Plan, UDP, endpoint, group};
use crate::node::NOTHING;
use crate::policy::plan::Plan as PolicyPlan;
use crate::script::write_script;
use crate::tables::Tables;
use crate::wires::ruleset;

/// The port of the server.
const REAL: u16 = 8080;

/// Rules of Services that stay are not made again when others change: right after it was
/// made, a rule with a set of ranges finds nothing in it on some kernels.
#[test]
fn no_flow_is_lost_while_policy_comes_and_goes() {
    let lab = Lab::new();
    let _servers = Servers::new().add(
        &lab.0.neighbour,
        "neighbour",
        NEIGHBOUR.port(Family::V4, REAL),
    );
    let target = group(0);
    let plan = Plan::new()
        .cluster_ip(UDP, SERVICE.port(Family::V4, 80), target)
        .endpoints(target, &[endpoint(NEIGHBOUR.of(Family::V4), REAL)]);
    let all: Vec<_> = [POD, NEIGHBOUR]
        .iter()
        .flat_map(|pod| FAMILIES.map(|family| pod.of(family)))
        .collect();
    let policies = PolicyPlan::new(&all).0;
    let make = |with_policy: bool| {
        let (plan, policies) = (plan.clone(), policies.clone());
        lab.0.with(move |table| {
            let policy = if with_policy {
                table.police(&policies, false).unwrap()
            } else {
                table.policy.remove(&mut table.nft).unwrap()
            };
            let overlay = table.reconcile(&ruleset(), false).unwrap();
            policy + overlay + table.serve(&plan.0, false).unwrap()
        })
    };
    make(false);
    let map = || {
        lab.0
            .node
            .sh("nft -s -a list map inet tweed-services service_slots4")
    };
    let before = map();
    let done = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut sent = 0;
            while !done.load(Ordering::Relaxed) {
                sent += lab.0.pod.run(|| {
                    let to = SERVICE.port(Family::V4, 80);
                    let flows = 0..20;
                    flows
                        .map(|_| UdpSocket::bind("0.0.0.0:0").unwrap())
                        .filter(|socket| socket.send_to(b"x", to).is_ok())
                        .count()
                });
                // The program that loads the rules needs a processor too.
                std::thread::sleep(std::time::Duration::from_micros(500));
            }
            sent
        });
        for _ in 0..5 {
            assert!(make(true).changed > 0);
            assert!(make(false).changed > 0);
        }
        done.store(true, Ordering::Relaxed);
        client.join().unwrap()
    });
    assert!(sent > 0);
    assert!(lab.refused().iter().all(|count| *count == 0));
    // The table that counted is the same one.
    assert_eq!(map(), before);
}

/// Rules that came later than others are repaired as those are: the sets stay.
#[test]
fn a_rule_that_is_damaged_after_rules_were_added_does_not_cost_the_sets() {
    let lab = Lab::new();
    let plan = |timeouts: &[u32]| {
        let mut plan = Plan::new();
        for (block, timeout) in (0..).zip(timeouts) {
            let group = FIRST_AFFINITY + block * AFFINITY_BLOCK;
            let at = SERVICE.port(Family::V4, 80 + u16::try_from(block).unwrap());
            let pod = endpoint(NEIGHBOUR.of(Family::V4), REAL);
            plan = plan.cluster_ip(UDP, at, Target::Affinity(group)).members(
                group,
                *timeout,
                &[(0, pod)],
            );
        }
        plan
    };
    // The chains of the first timeout stay, and the text has those of the second before them.
    lab.reconcile(&plan(&[10_800]));
    lab.replan(&plan(&[10_800, 600]));
    let map = || {
        lab.0
            .node
            .sh("nft -s -a list map inet tweed-services service_targets4")
    };
    let before = map();
    lab.0
        .node
        .sh("nft flush chain inet tweed-services service_send");
    assert!(lab.reconcile(&plan(&[10_800, 600])).repaired > 0);
    assert_eq!(map(), before);
    let chain = lab
        .0
        .node
        .sh("nft list chain inet tweed-services service_send");
    assert!(chain.contains("vmap @service_leads"), "{chain}");
}

/// Another program, such as a kube-proxy, changes a table of its own while rules come that
/// are new to this agent: the sets, and what they remember of clients, stay.
#[test]
fn rules_that_come_while_others_change_their_own_do_not_cost_the_sets() {
    let lab = Lab::new();
    let plan = Plan::new()
        .cluster_ip(UDP, SERVICE.port(Family::V4, 80), group(0))
        .endpoints(group(0), &[endpoint(NEIGHBOUR.of(Family::V4), REAL)]);
    lab.reconcile(&plan);
    let folder = tempfile::tempdir().unwrap();
    lab.0.restart_with(&nft_beside_others(folder.path()));
    let map = || {
        lab.0
            .node
            .sh("nft -s -a list map inet tweed-services service_targets4")
    };
    let before = map();
    let with_affinity = plan.members(
        FIRST_AFFINITY,
        600,
        &[(0, endpoint(NEIGHBOUR.of(Family::V4), REAL))],
    );
    assert!(lab.replan(&with_affinity).changed > 0);
    assert!(folder.path().join("others").exists());
    assert_eq!(map(), before);

    // The sets of policy are new too, and are made again when it cannot be told whether these
    // are the ones that were loaded.
    let folder = tempfile::tempdir().unwrap();
    lab.0.restart_with(&nft_beside_others(folder.path()));
    let pods = FAMILIES.map(|family| POD.of(family));
    let policies = PolicyPlan::new(&pods).0;
    let enforced = policies.verdicts.enforced.len();
    let with_policy = move |table: &mut Tables| {
        let policy = table.police(&policies, false).unwrap();
        (policy, table.serve(&with_affinity.0, false).unwrap())
    };
    let (policy, services) = lab.0.with(with_policy);
    assert!(policy.changed > 0);
    assert_eq!(services, NOTHING);
    assert!(folder.path().join("others").exists());
    assert_eq!(map(), before);
    let of_policy = |set: &str| {
        lab.0
            .node
            .sh(format!("nft list set inet tweed-policy {set}"))
    };
    let elements = ["policy_judged4", "policy_judged6"].map(of_policy);
    assert_eq!(enforced, 2);
    assert!(
        elements.iter().all(|set| set.contains("elements")),
        "{elements:?}"
    );
}

/// A program `nft` that changes a table of others as soon as it has loaded the first script.
fn nft_beside_others(folder: &Path) -> PathBuf {
    let (nft, others) = (
        folder.join("nft"),
        folder.join("others").display().to_string(),
    );
    write_script(
        &nft,
        &format!(
            "#!/bin/sh\nnft \"$@\" || exit\n\
             [ -e {others} ] || {{ touch {others}; nft add table inet others; nft delete table inet others; }}\n"
        ),
    );
    nft
}
