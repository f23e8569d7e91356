//! The sysctls of conntrack with `--services on`: pure.
//!
//! | sysctl | value | why |
//! |---|---|---|
//! | `nf_conntrack_max` | at least 32,768 for each CPU, and 131,072 | each flow to a Service is an entry, and so is each flow that is forwarded |
//! | `nf_conntrack_buckets` | at least a quarter of it | more entries in a bucket make each packet's lookup slow |
//! | `nf_conntrack_tcp_timeout_established` | a day | the kernel's is five: what is left of connections whose ends are gone fills the table |
//! | `nf_conntrack_tcp_timeout_close_wait` | an hour | the kernel's minute is too short for servers that go on sending to a client that has closed its side |
//!
//! These are the values of kube-proxy. It also lowers limits that somebody has raised;
//! here they stay. The limits are for all network namespaces together, and only the
//! machine's own, the first one, can set them: on a node that is a container itself they
//! are the machine's.
//!
//! The values that were there before are not kept for the uninstallation. kube-proxy sets
//! them only when it starts: one that takes over would lose them.

use super::desired::{Rule, Sysctl};

const PREFIX: &str = "net/netfilter/nf_conntrack_";
/// Number of entries for each CPU, and the least number of them.
const PER_CPU: i32 = 32_768;
const MIN: i32 = 131_072;
/// Number of entries for each bucket.
const PER_BUCKET: i32 = 4;
/// In seconds.
const ESTABLISHED: i32 = 24 * 60 * 60;
const CLOSE_WAIT: i32 = 60 * 60;

/// Those of a machine with so many CPUs.
pub(super) fn limits(cpus: i32) -> Vec<Sysctl> {
    let max = PER_CPU.saturating_mul(cpus).max(MIN);
    let all = [
        ("max", max, Rule::AtLeast),
        ("buckets", max / PER_BUCKET, Rule::AtLeast),
        ("tcp_timeout_established", ESTABLISHED, Rule::Exactly),
        ("tcp_timeout_close_wait", CLOSE_WAIT, Rule::Exactly),
    ];
    all.into_iter()
        .map(|(name, value, rule)| Sysctl {
            path: format!("{PREFIX}{name}"),
            value,
            rule,
            remembered: false,
        })
        .collect()
}

/// Whether a sysctl is one of these.
pub(super) fn has(sysctl: &Sysctl) -> bool {
    sysctl.path.starts_with(PREFIX)
}

/// The number of CPUs in a list as the kernel writes it: `0-3,6`. None if it is no such
/// list.
pub(super) fn count(list: &str) -> Option<i32> {
    let number = |text: &str| text.parse::<i32>().ok().filter(|number| *number >= 0);
    let counts = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (number(first)?, number(last)?);
        last.checked_sub(first)?
            .checked_add(1)
            .filter(|count| *count > 0)
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_grow_with_the_machine_and_have_a_minimum() {
        let values = |cpus| -> Vec<String> {
            let sysctls = limits(cpus).into_iter();
            sysctls
                .map(|one| format!("{}={}", one.name(), one.value))
                .collect()
        };
        let small = values(4);
        assert_eq!(small, values(1));
        assert_eq!(
            small,
            [
                "net.netfilter.nf_conntrack_max=131072",
                "net.netfilter.nf_conntrack_buckets=32768",
                "net.netfilter.nf_conntrack_tcp_timeout_established=86400",
                "net.netfilter.nf_conntrack_tcp_timeout_close_wait=3600",
            ]
        );
        assert_eq!(values(64)[0], "net.netfilter.nf_conntrack_max=2097152");
        assert_eq!(values(64)[1], "net.netfilter.nf_conntrack_buckets=524288");
        assert_eq!(limits(i32::MAX)[0].value, i32::MAX);
    }

    #[test]
    fn cpus_are_counted_as_the_kernel_lists_them() {
        for (list, expected) in [
            ("0\n", Some(1)),
            ("0-3", Some(4)),
            ("0-3,6,8-9\n", Some(7)),
            ("", None),
            ("3-0", None),
            ("0-x", None),
            ("-1", None),
        ] {
            assert_eq!(count(list), expected, "{list:?}");
        }
    }
}
