//! Somebody changes the table at the moment at which it is put back.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::thread;

use nix::sys::socket::{MsgFlags, recv};
use tweed_nft::inet_tweed::TABLE;
use tweed_nft::{Error, Outcome, Reconciler, Table};
use tweed_planner::overlay::desired::Ruleset;

use crate::looks::Component as _;
use crate::node::{NOTHING, Node, cluster};
use crate::script::write_script;
use crate::services::changes::service;
use crate::services::lab::{Lab, POD};
use crate::wires::{ruleset, sources};

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

/// Rules are replaced around the sets of Services, and somebody empties one of these after
/// the last notification was read and before the rules are loaded.
#[test]
fn elements_that_go_before_the_rules_around_them_are_replaced_come_back() {
    let lab = Lab::new();
    let plan = service(&[POD]);
    lab.reconcile(&plan);
    let listing = || {
        lab.0
            .node
            .sh("nft -s list set inet tweed service_cluster_ips4")
    };
    let whole = listing();
    for turn in 0..4 {
        // A prefix length that no other pod CIDR has brings rules.
        let inner = format!("10.244.2.0/{}", 25 + turn % 2);
        let other = Ruleset {
            vxlan_sources: sources("192.0.2.2", &[&inner]),
            ..ruleset()
        };
        // What is read then is about another table.
        lab.0
            .node
            .sh("nft 'add table inet others; delete table inet others'");
        let monitor = (lab.0).with(|table| table.as_fd().try_clone_to_owned().unwrap());
        let vandal = lab.0.node.run(move || {
            let nowhere = Path::new("/nonexistent");
            let mut vandal = Reconciler::open(TABLE, Path::new("nft"), nowhere).unwrap();
            thread::spawn(move || {
                let peek = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
                while recv(monitor.as_raw_fd(), &mut [0], peek).is_ok() {
                    thread::yield_now();
                }
                let set = "service_cluster_ips4".to_owned();
                vandal.write_known(&[], &[], &[set]).unwrap();
            })
        });
        lab.make(&other, &plan, false);
        vandal.join().unwrap();
        lab.make(&other, &plan, false);
        assert_eq!(listing(), whole);
    }
}

/// A rule was damaged, of which no notification told, and while it is put back somebody empties
/// a set of Services: no notification tells of that again, as the table was looked at after it.
#[test]
fn elements_of_services_that_go_while_the_rules_are_put_back_come_back_with_them() {
    let lab = Lab::new();
    let plan = service(&[POD]);
    let armed = lab.0.run_dir.path().join("armed");
    let program = lab.0.run_dir.path().join("nft-and-a-vandal");
    let vandal = "nft flush set inet tweed service_cluster_ips4";
    let armed_once = format!("rm {} 2>&1 && {vandal}", armed.display());
    let script = format!("#!/bin/sh\nnft \"$@\" && {{ {armed_once} || true; }}\n");
    write_script(&program, &script);
    lab.0.restart_with(&program);
    lab.reconcile(&plan);
    let listing = || lab.0.node.sh("nft -s list table inet tweed");
    let whole = listing();
    lab.change_unheard("flush chain inet tweed to_overlay");
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
            let mut table = Table::open(&run_dir, &program).unwrap();
            table.reconcile(&cluster(3), None, false)
        })
    }
}
