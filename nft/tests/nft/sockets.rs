//! Sockets of nfnetlink are kept: when one is closed the kernel holds the lock of its rules
//! for a grace period, some 10 ms, and an ADD that is to be enforced waits for it.

use std::collections::BTreeSet;
use std::fs;

use crate::lab::Host;
use crate::policy::lab::Lab;
use crate::policy::revocation::allowing;

/// The sockets of nfnetlink in the host's namespace, by their inodes.
fn nfnetlink_sockets(host: &Host) -> BTreeSet<String> {
    let sockets = host.run(|| fs::read_to_string("/proc/thread-self/net/netlink").unwrap());
    let columns = sockets.lines().map(|line| line.split_whitespace());
    // The second column is the protocol, of which 12 is NETLINK_NETFILTER, the last one the
    // inode.
    let of_netfilter = columns.filter(|columns| columns.clone().nth(1) == Some("12"));
    of_netfilter
        .filter_map(|columns| columns.last().map(str::to_owned))
        .collect()
}

#[test]
fn marks_are_cleared_again_without_closing_a_socket() {
    let lab = Lab::new();
    let desired = allowing(&lab, &[80]);
    lab.reconcile(&desired);
    // All that are there after any of the changes: a walk goes on beside several of them.
    let during_changes = || {
        let after_each = (0..60).map(|_| {
            lab.follow(&desired, &desired, true);
            nfnetlink_sockets(&lab.node.host)
        });
        after_each.flatten().collect::<BTreeSet<_>>()
    };
    let sockets = during_changes();
    assert_eq!(during_changes(), sockets);
}
