//! The program `nft` fails in any way while the table is damaged: the error names the
//! table or the program, nothing of others is touched, and the next reconcile repairs all.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tweed_nft::Error;

use crate::node::{NOTHING, Node, cluster};
use crate::script::write_script;
use crate::tables::Tables;

/// What a shell does in place of `nft`, and what the error says.
const FAILURES: [(&str, &str); 7] = [
    (
        "echo 'Error: Could not process rule: Device or resource busy' >&2; exit 1",
        "Device or resource busy",
    ),
    (
        "echo 'netlink: Error: cache initialization failed: Operation not permitted' >&2; exit 1",
        "Operation not permitted",
    ),
    (
        "echo 'Error: Could not process rule: Cannot allocate memory' >&2; exit 3",
        "Cannot allocate memory",
    ),
    ("exit 4", "exit status: 4"),
    ("kill -KILL $$", "signal: 9"),
    // It has not even read the rules.
    ("exec <&-; exit 5", "exit status: 5"),
    // It says that it has loaded the table.
    ("exit 0", "inet tweed changed 3 times"),
];

/// A program in place of `nft`, which does one of [`FAILURES`].
struct Fake {
    folder: TempDir,
}

impl Fake {
    fn new(does: &str) -> Self {
        let fake = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        write_script(&fake.path(), &format!("#!/bin/sh\n{does}\n"));
        fake
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("nft")
    }
}

/// The error of a reconcile by this program.
fn error_of(node: &Node, nft: &Path) -> Error {
    let (run_dir, nft) = (node.run_dir.path().to_owned(), nft.to_owned());
    node.host.run(move || {
        let mut table = Tables::open(&run_dir, &nft, false).unwrap();
        table.reconcile(&cluster(3), false).unwrap_err()
    })
}

#[test]
fn a_program_that_fails_in_any_way_is_an_error_and_the_next_reconcile_repairs_all() {
    let node = Node::new();
    let ruleset = cluster(3);
    node.reconcile(&ruleset);
    let whole = node.listing();
    node.host.sh("nft add table inet foreign
         nft 'add chain inet foreign c { type filter hook forward priority 0; }'");
    let foreign = node.host.sh("nft -a list table inet foreign");
    for (does, says) in FAILURES {
        for damage in [
            "nft delete table inet tweed",
            "nft flush chain inet tweed prerouting_raw",
        ] {
            node.host.sh(damage);
            let damaged = node.host.sh("nft -s list ruleset");
            let fake = Fake::new(does);
            let text = error_of(&node, &fake.path()).to_string();
            assert!(text.contains(says), "{does}: {text}");
            assert!(text.contains("inet tweed"), "{does}: {text}");
            assert_eq!(node.host.sh("nft -s list ruleset"), damaged, "{does}");
            node.restart();
            node.reconcile(&ruleset);
            assert_eq!(node.listing(), whole, "{does}");
            assert_eq!(node.reconcile(&ruleset), NOTHING, "{does}");
        }
    }
    let after = node.host.sh("nft -a list table inet foreign");
    assert_eq!(after, foreign);
}

#[test]
fn a_program_that_may_not_be_run_is_named() {
    let node = Node::new();
    let fake = Fake::new("exit 0");
    fs::set_permissions(fake.path(), Permissions::from_mode(0o644)).unwrap();
    let text = error_of(&node, &fake.path()).to_string();
    let path = fake.path().display().to_string();
    assert!(text.contains(&path) && text.contains("denied"), "{text}");
    node.reconcile(&cluster(3));
}
