//! Sockets of nfnetlink are kept: when one is closed the kernel holds the lock of its rules
//! for a grace period, some 10 ms, and an ADD that is to be judged waits for it.

use std::thread::sleep;
use std::time::Duration;

use crate::lab::Host;
use crate::looks::Component;
use crate::node::NOTHING;
use crate::policy::lab::Lab;
use crate::policy::repair::full;
use crate::policy::revocation::allowing;

/// The sockets of nfnetlink in the host's namespace, by their inodes.
fn nfnetlink_sockets(host: &Host) -> String {
    // The protocol 12 is NETLINK_NETFILTER, the last column the inode.
    host.sh("awk '$2 == 12 { print $NF }' /proc/net/netlink | sort")
}

#[test]
fn marks_are_cleared_again_without_closing_a_socket() {
    let lab = Lab::new();
    let desired = allowing(&lab, &[80]);
    lab.reconcile(&desired);
    let changes = || {
        for _ in 0..60 {
            lab.follow(&desired, &desired, true);
        }
        nfnetlink_sockets(&lab.node.host)
    };
    let sockets = changes();
    assert_eq!(changes(), sockets);
}

#[test]
fn sets_are_looked_at_again_without_closing_a_socket() {
    let lab = Lab::new();
    let desired = full(&lab);
    lab.reconcile(&desired);
    let looks = || {
        for _ in 0..50 {
            assert_eq!(lab.make_as(&desired, true), NOTHING);
            sleep(Duration::from_millis(1));
        }
        nfnetlink_sockets(&lab.node.host)
    };
    let before = nfnetlink_sockets(&lab.node.host);
    let sockets = looks();
    assert_ne!(sockets, before, "none is kept");
    assert_eq!(looks(), sockets);
}
