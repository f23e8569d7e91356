//! A table of the old iptables, as the kernel lays it out.
//!
//! Input: 4 or 6 for the family, the answer to `IPT_SO_GET_INFO`, the rules.

use tweed_core::family::Family;
use tweed_diagnosis::{Packets, Vxlan, iptables_legacy::drops_of};

use crate::ruleset::flows;

/// Bytes of `struct ipt_getinfo`.
const INFO: usize = 84;

/// At most one problem for each of the three chains of the table `filter`, and for the one of
/// `nat`, each with its cure. That the walk ends is libFuzzer's to see, by its time limit.
pub fn check(input: &[u8]) {
    let Some((family, table)) = input.split_first() else {
        return;
    };
    let family = match family {
        6 => Family::V6,
        _ => Family::V4,
    };
    let (info, entries) = table.split_at(INFO.min(table.len()));
    let packets = Packets {
        pods: [family].into(),
        direct: [family].into(),
        vxlan: Some(Vxlan { port: 8472, family }),
        flows: flows(family),
    };
    for (name, chains, cure) in [
        ("filter", 3, "-legacy -I "),
        ("nat", 1, "-legacy -t nat -I "),
    ] {
        let problems = drops_of(family, name, info, entries.to_vec(), &packets);
        assert!(problems.len() <= chains, "{problems:?}");
        for problem in problems {
            assert!(problem.cure.contains(cure), "{problem}");
        }
    }
}
