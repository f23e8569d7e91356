//! Ranges of pods, and addresses that stand for them. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

/// What both ranges have in common, which is one of them.
pub(crate) fn narrower(one: IpNetwork, other: IpNetwork) -> Option<IpNetwork> {
    let (wide, narrow) = if one.prefix() <= other.prefix() {
        (one, other)
    } else {
        (other, one)
    };
    wide.contains(narrow.network()).then_some(narrow)
}

/// An address in a range, and in `scope` where that is inside of it, which a pod may have:
/// neither the first, the second, nor the last one, where there are others.
pub(crate) fn inside(range: IpNetwork, scope: Option<IpNetwork>) -> IpAddr {
    let narrowed = scope.and_then(|scope| narrower(range, scope));
    let both = narrowed.unwrap_or(range);
    match both.broadcast() {
        IpAddr::V4(last) if both.prefix() < 31 => Ipv4Addr::from(u32::from(last) - 1).into(),
        IpAddr::V6(last) if both.prefix() < 127 => Ipv6Addr::from(u128::from(last) - 1).into(),
        _ => both.network(),
    }
}

/// The widest of `ranges` with this address, for commands; or the address alone.
pub(crate) fn widest(ranges: &BTreeSet<IpNetwork>, address: IpAddr) -> IpNetwork {
    let holding = ranges.iter().filter(|range| range.contains(address));
    let range = holding.min_by_key(|range| range.prefix()).copied();
    range.unwrap_or_else(|| IpNetwork::from(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_stands_for_a_range_is_one_that_a_pod_may_have() {
        let network = |text: &str| text.parse::<IpNetwork>().unwrap();
        for (range, scope, address) in [
            ("10.244.2.0/24", None, "10.244.2.254"),
            ("10.244.2.0/24", Some("10.0.0.0/8"), "10.244.2.254"),
            ("10.244.2.0/24", Some("10.244.2.64/26"), "10.244.2.126"),
            ("10.244.2.0/24", Some("10.244.2.7/32"), "10.244.2.7"),
            ("10.244.2.8/31", None, "10.244.2.8"),
            (
                "fd00:0:0:2::/64",
                Some("fd00:0:0:2::8/127"),
                "fd00:0:0:2::8",
            ),
            ("fd00:0:0:2::/120", None, "fd00:0:0:2::fe"),
        ] {
            let inside = inside(network(range), scope.map(network));
            assert_eq!(inside, address.parse::<IpAddr>().unwrap());
        }
    }
}
