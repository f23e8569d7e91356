//! How many addresses of this node's pod CIDRs are in use.

use std::path::Path;

use ipnetwork::IpNetwork;
use tweed_core::attachment::{NETWORK_NAME, NetworkName};
use tweed_core::problem::{Problem, ProblemKind};
use tweed_ipam::store::{Host, Store};

use crate::serve::metrics::RangeUse;

/// The use of each of `pod_cidrs`, counted in the stores below `data_dir`. One
/// that cannot be counted, or has no address to give, is left out.
pub(super) fn usage(host: &Host, data_dir: &Path, pod_cidrs: &[IpNetwork]) -> Vec<RangeUse> {
    let Ok(name) = NetworkName::new(NETWORK_NAME) else {
        return Vec::new();
    };
    let store = Store::open_on(host.clone(), data_dir, &name);
    let of_one = |cidr: &IpNetwork| {
        let usage = store.usage_of(*cidr)?;
        Some(RangeUse {
            range: *cidr,
            used: usage.used,
            free: usage.free,
        })
    };
    pod_cidrs.iter().filter_map(of_one).collect()
}

/// The ranges that are used up, as problems. They never make the node not
/// ready: a full node must not be emptied.
pub(super) fn full_ranges(usage: &[RangeUse]) -> Vec<Problem> {
    let full = usage.iter().filter(|usage| usage.free == 0);
    full.map(|usage| {
        Problem::new(
            ProblemKind::RangeFull,
            usage.range.to_string(),
            format!(
                "all {} addresses of this node's pod CIDR are in use",
                usage.used
            ),
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_core::problem::Effect;

    #[test]
    fn a_full_range_is_named_and_leaves_the_node_ready() {
        let usage = |range: &str, used, free| RangeUse {
            range: range.parse().unwrap(),
            used,
            free,
        };
        let ranges = [usage("10.244.1.0/24", 254, 0), usage("fd00::/64", 254, 1)];
        let problems = full_ranges(&ranges);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].object, "10.244.1.0/24");
        assert!(problems[0].message.contains("254"), "{problems:?}");
        assert_eq!(problems[0].effect, Effect::Warning);
    }
}
