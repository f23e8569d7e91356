//! Somebody changes the table at the moment at which it is put back.

use std::fs;

use tweed_nft::{Error, Outcome};

use crate::node::{NOTHING, Node, cluster};
use crate::script::write_script;
use crate::services::changes::service;
use crate::services::lab::{Lab, POD};
use crate::tables::Tables;

/// Somebody who breaks the table right after each time that it is put back.
#[test]
fn a_table_that_is_broken_all_the_time_is_never_taken_for_whole() {
    let whole = {
        let node = Node::new();
        node.reconcile(&cluster(3));
        node.listing()
    };
    let rules = "nft flush chain inet tweed to_overlay";
    let elements = "nft flush set inet tweed cluster_cidrs4";
    for (vandal, knows_it) in [
        (rules, true),
        (rules, false),
        (elements, true),
        (elements, false),
    ] {
        let node = Node::new();
        if knows_it {
            node.reconcile(&cluster(3));
            node.host.sh(rules);
        }
        let broken = node.reconcile_beside(vandal);
        if knows_it && vandal == elements {
            // The sets were not made again, and what they hold was looked at afterwards.
            assert!(broken.is_ok(), "{vandal}: {broken:?}");
            assert_eq!(node.listing(), whole);
        } else {
            assert!(
                matches!(broken, Err(Error::Interrupted(..))),
                "{vandal}, knows it: {knows_it}: {broken:?}"
            );
            assert_ne!(node.listing(), whole);
        }
        // The vandal has gone.
        node.restart();
        node.reconcile(&cluster(3));
        assert_eq!(node.listing(), whole, "{vandal}, knows it: {knows_it}");
        assert_eq!(node.reconcile(&cluster(3)), NOTHING);
    }
}

/// Rules were changed, and elements while these were put back: no notification tells of
/// the elements again, as the table was looked at after them.
#[test]
fn elements_that_go_while_the_rules_are_put_back_come_back_with_them() {
    let node = Node::new();
    node.reconcile(&cluster(3));
    let whole = node.listing();
    node.host.sh("nft flush chain inet tweed to_overlay");
    let once = "mkdir $(dirname $0)/done && nft flush set inet tweed cluster_cidrs4 || true";
    assert!(node.reconcile_beside(once).is_ok());
    assert_eq!(node.listing(), whole);
}

/// A rule was damaged, and while it is put back somebody empties a set of Services: no
/// notification tells of that again, as the table was looked at after it.
#[test]
fn elements_of_services_that_go_while_the_rules_are_put_back_come_back_with_them() {
    let lab = Lab::new();
    let plan = service(&[POD]);
    let armed = lab.0.run_dir.path().join("armed");
    let program = lab.0.run_dir.path().join("nft-and-a-vandal");
    let vandal = "nft flush set inet tweed-services service_cluster_ips4";
    let armed_once = format!("rm {} 2>&1 && {vandal}", armed.display());
    let script = format!("#!/bin/sh\nnft \"$@\" && {{ {armed_once} || true; }}\n");
    write_script(&program, &script);
    lab.0.restart_with(&program);
    lab.reconcile(&plan);
    let listing = || lab.0.node.sh("nft -s list table inet tweed-services");
    let whole = listing();
    lab.0
        .node
        .sh("nft flush chain inet tweed-services service_send");
    fs::write(&armed, "").unwrap();
    lab.look(&plan, true);
    assert!(!armed.exists());
    assert_eq!(listing(), whole);
}

impl Node {
    /// A reconcile for three nodes by another agent, with a program `nft` after which
    /// `vandal` comes each time.
    fn reconcile_beside(&self, vandal: &str) -> Result<Outcome, Error> {
        let program = self.run_dir.path().join("nft-and-a-vandal");
        let script = format!("#!/bin/sh\nnft \"$@\" && {{ {vandal}; }}\n");
        write_script(&program, &script);
        let run_dir = self.run_dir.path().to_owned();
        self.host.run(move || {
            let mut table = Tables::open(&run_dir, &program, false).unwrap();
            table.reconcile(&cluster(3), false)
        })
    }
}
