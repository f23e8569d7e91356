//! The table of a version that had all components in one is taken over without a packet
//! being lost.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use tweed_nft::services::Refused;
use tweed_nft::{Joint, switch};
use tweed_planner::services::desired::{AFFINITY_BLOCK, FIRST_AFFINITY, Target};

use super::lab::{Answer, FAMILIES, Lab, NEIGHBOUR, SERVICE, ask_tcp};
use super::plan::{Plan, TCP, endpoint};
use super::policy::{assert_judged, make, policies, servers, services};
use crate::node::NOTHING;
use crate::tables::Tables;
use crate::wires::ruleset;

/// Puts the rules of policies and Services into `inet tweed`, and takes their tables away. The
/// overlay's chains stand where they stood then.
fn join(lab: &Lab) {
    let mut joint = String::new();
    for chain in ["input", "forward"] {
        let own = lab.0.node.sh(format!("nft list chain inet tweed {chain}"));
        let at_zero = own.replace("priority filter - 1", "priority filter");
        assert_ne!(own, at_zero);
        joint += &format!("delete chain inet tweed {chain}\n{at_zero}\n");
    }
    let baseline = lab.0.run_dir.path().join("nft-skeleton");
    let text = fs::read_to_string(&baseline).unwrap();
    let (version, _) = text.split_once(' ').unwrap();
    fs::write(&baseline, text.replacen(version, "0-other", 1)).unwrap();
    joint += "table inet tweed {\n";
    for table in ["policy", "services"] {
        let listing = lab.0.node.sh(format!("nft list table inet tweed-{table}"));
        let mut blocks = listing.lines().skip(1).collect::<Vec<_>>();
        assert_eq!(blocks.pop(), Some("}"));
        // The sets that stand in each table, which `inet tweed` has.
        let mut is_local = false;
        for line in blocks {
            is_local |= line.starts_with("\tset local_cidrs");
            if !is_local && !line.starts_with("\tcomment") {
                let hooked = ["input", "forward", "output", "postrouting_nat"]
                    .into_iter()
                    .find(|name| line == format!("\tchain {name} {{"));
                joint += &match hooked {
                    Some(name) => format!("\tchain {table}_at_{name} {{\n"),
                    None => format!("{line}\n"),
                };
            }
            is_local &= line != "\t}";
        }
        let baseline = format!("nft-skeleton-{table}");
        fs::remove_file(lab.0.run_dir.path().join(baseline)).unwrap();
    }
    let file = lab.0.run_dir.path().join("joint.nft");
    fs::write(
        &file,
        format!("{joint}}}\ndelete table inet tweed-policy\ndelete table inet tweed-services\n"),
    )
    .unwrap();
    lab.0.node.sh(format!("nft -f {}", file.display()));
    lab.0.restart();
}

/// The same Services, and one whose clients keep their endpoint.
fn with_affinity() -> Plan {
    let mut plan = services();
    for (place, family) in (0..).zip(FAMILIES) {
        let group = FIRST_AFFINITY + place * AFFINITY_BLOCK;
        let members = [(0, endpoint(NEIGHBOUR.of(family), 8080))];
        plan = plan
            .cluster_ip(TCP, SERVICE.port(family, 82), Target::Affinity(group))
            .members(group, 600, &members);
    }
    plan
}

fn clients(lab: &Lab, table: &str) -> usize {
    let listed = |digit| {
        let map = format!("nft list map inet {table} service_clients{digit}");
        lab.0.node.sh(map).matches(" expires ").count()
    };
    listed('4') + listed('6')
}

#[test]
fn no_flow_is_lost_while_each_component_gets_its_table() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    let plan = with_affinity();
    make(&lab, &policies(), &plan);
    for family in FAMILIES {
        let name = lab.name(&lab.0.pod, TCP, SERVICE.port(family, 82));
        assert_eq!(name, "neighbour");
    }
    join(&lab);
    for family in FAMILIES {
        let answer = lab.0.pod.run(move || ask_tcp(SERVICE.port(family, 80)));
        assert!(matches!(answer, Some(Answer::From(..))), "{answer:?}");
    }
    let remembered = clients(&lab, "tweed");
    assert!(remembered > 0);
    // The table is not made anew: the kernel shows the elements of a new set of ranges some time
    // after the rules, and flows between pods that begin meanwhile would be masqueraded.
    let handle = || lab.0.node.sh("nft -a list table inet tweed | sed -n 1p");
    let before = handle();

    let done = AtomicBool::new(false);
    let flows = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut flows = 0;
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
            flows
        });
        let (policies, services) = (policies(), plan.0.clone());
        lab.0.with(move |tables| {
            let Tables {
                nft,
                policy,
                services: table,
                ..
            } = tables;
            let joint = Joint::find(nft, policy, table).unwrap();
            let both = Joint {
                policy: true,
                services: true,
            };
            assert_eq!(joint, Some(both));
            table.known_numbers(nft).unwrap();
            tables.police(&policies, false).unwrap();
            tables.serve(&services, false).unwrap();
            let Tables {
                nft,
                overlay,
                policy,
                services: table,
            } = tables;
            switch(nft, overlay, &ruleset(), Some(policy), Some(table)).unwrap();
        });
        done.store(true, Ordering::Relaxed);
        client.join().unwrap()
    });
    assert!(flows > 0);
    assert_eq!(lab.refused(), Refused::default());
    let dropped = |tables: &mut Tables| tables.policy.dropped(&mut tables.nft).unwrap();
    assert_eq!(lab.0.with(dropped), Some(Default::default()));
    let table = lab.0.node.sh("nft list table inet tweed");
    assert!(
        !table.contains("policy_") && !table.contains("service_"),
        "{table}"
    );
    assert_eq!(handle(), before);
    assert_eq!(clients(&lab, "tweed-services"), remembered);
    assert_judged(&lab);
    assert_eq!(make(&lab, &policies(), &plan), NOTHING);
    let none = lab.0.with(|tables| {
        Joint::find(&mut tables.nft, &mut tables.policy, &mut tables.services).unwrap()
    });
    assert_eq!(none, None);
    assert!(
        lab.0
            .with(|tables| tables.reconcile(&ruleset(), true))
            .unwrap()
            == NOTHING
    );
}
