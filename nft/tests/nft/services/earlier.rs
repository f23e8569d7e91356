//! An agent of another version, with sets of other names, has left the table: what it serves
//! is served until the new agent knows what to serve, and what it isolates is isolated.

use std::collections::BTreeSet;
use std::fs;

use tweed_nft::inet_tweed::{Components, Wanted};
use tweed_nft::{Outcome, Table};

use super::lab::{FAMILIES, Lab, NEIGHBOUR, SERVICE, Servers};
use super::plan::PROTOCOLS;
use super::policy::{answers, policies, services};
use crate::node::NOTHING;
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
        let lines = lines.filter(|line| line.split(' ').next() != Some(name));
        known = lines.map(|line| format!("{line}\n")).collect();
    }
    fs::write(&baseline, known).unwrap();
    lab.0.restart();
}

/// Makes the table with what is known of policies and Services, in a cluster with one more
/// node if `joined`.
fn reconcile(lab: &Lab, knows_policy: bool, knows_services: bool, joined: bool) -> Outcome {
    let (services, policies) = (services(), policies());
    lab.0.with(move |table| {
        let components = Components {
            policy: match knows_policy {
                true => Wanted::As(&policies),
                false => Wanted::AsItIs,
            },
            log: false,
            services: match knows_services {
                true => Wanted::As(&services.0),
                false => Wanted::AsItIs,
            },
        };
        let mut ruleset = ruleset();
        if joined {
            ruleset.node_addresses.insert("192.0.2.3".parse().unwrap());
        }
        table.reconcile_all(&ruleset, &components, false).unwrap()
    })
}

fn servers(lab: &Lab) -> Servers {
    let mut servers = Servers::new();
    for family in FAMILIES {
        for port in [8080, 8081] {
            servers = servers.add(&lab.0.neighbour, "neighbour", NEIGHBOUR.port(family, port));
        }
    }
    servers
}

/// Whether new flows of a pod are led to the Service, and judged.
fn check(lab: &Lab) {
    let dropped = || {
        let dropped = lab.0.with(|table| table.dropped().unwrap()).unwrap();
        dropped.ingress + dropped.egress
    };
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            let to = |port| SERVICE.port(family, port);
            assert_eq!(lab.name(&lab.0.pod, protocol, to(80)), "neighbour");
            let before = dropped();
            assert!(!answers(lab, to(81), || dropped() > before));
        }
    }
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
        reconcile(&lab, true, true, false);
        check(&lab);
        make_other_version(&lab, names);
        check(&lab);
        let before = lab.0.node.sh("nft -s -a list table inet tweed");
        let keeps = || lab.0.with(|table| table.keeps_earlier());

        assert_eq!(reconcile(&lab, false, false, false), NOTHING, "{names:?}");
        assert!(keeps(), "{names:?}");
        assert_eq!(lab.0.node.sh("nft -s -a list table inet tweed"), before);
        // A Node joins.
        assert_eq!(reconcile(&lab, false, false, true).changed, 1, "{names:?}");
        assert_eq!(reconcile(&lab, false, false, true), NOTHING, "{names:?}");
        let nodes = lab.0.node.sh("nft list set inet tweed node_addresses4");
        assert!(nodes.contains("192.0.2.3"), "{nodes}");
        assert!(keeps(), "{names:?}");
        check(&lab);

        reconcile(&lab, true, true, true);
        assert!(!keeps(), "{names:?}");
        let after = lab.0.node.sh("nft list table inet tweed");
        assert!(!after.contains("other_"), "{after}");
        check(&lab);
        assert_eq!(reconcile(&lab, true, true, true), NOTHING, "{names:?}");
    }
}

/// The sets of policies are the same in both versions, so policies need not wait for
/// themselves, but their rules stand in one table with those of Services.
#[test]
fn what_is_known_comes_into_force_with_what_is_not_known_yet() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    reconcile(&lab, true, true, false);
    make_other_version(&lab, &["service_targets4"]);
    assert_eq!(reconcile(&lab, true, false, false), NOTHING);
    assert!(!lab.0.with(|table| table.knows_policy()));
    check(&lab);
    reconcile(&lab, true, true, false);
    assert!(
        lab.0
            .with(|table| table.knows_policy() && table.knows_services())
    );
    check(&lab);
}

/// How the table of another version should look is not known: only the own one can be put
/// in place of one that somebody has damaged, and it serves nothing until Services are known.
#[test]
fn a_table_of_another_version_that_is_damaged_is_replaced() {
    let lab = Lab::new();
    let _servers = servers(&lab);
    let damage = "nft flush chain inet tweed from_pod";
    reconcile(&lab, true, true, false);
    make_other_version(&lab, &["service_targets4"]);
    assert_eq!(reconcile(&lab, false, false, false), NOTHING);
    lab.0.node.sh(damage);
    assert!(lab.0.with(Table::drain_notifications).unwrap());
    let is_empty = |chain: &str| {
        let chain = format!("nft list chain inet tweed {chain}");
        !lab.0.node.sh(chain).contains("drop")
    };
    assert!(is_empty("from_pod"));
    reconcile(&lab, false, false, false);
    assert!(!lab.0.with(|table| table.keeps_earlier()));
    assert!(!is_empty("from_pod"));
    reconcile(&lab, true, true, false);
    check(&lab);
}
