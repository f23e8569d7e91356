//! Ranges of addresses, also as numbers: what a CIDR covers, and CIDRs without exceptions.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use tweed_core::family::Family;

/// Length of the prefix of IPv4 addresses that are written as IPv6 addresses.
const MAPPED: u8 = 96;

/// Every address from `first` to `last`, both included and of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The lowest.
    pub first: IpAddr,
    /// The highest.
    pub last: IpAddr,
}

/// Addresses from the first to the last of one family, as numbers.
pub type Range = (u128, u128);

/// The highest address of a family.
pub fn highest(family: Family) -> u128 {
    match family {
        Family::V4 => u128::from(u32::MAX),
        Family::V6 => u128::MAX,
    }
}

/// An address as a number.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The number as an address of this family.
pub fn address(family: Family, number: u128) -> IpAddr {
    match family {
        // The lower 32 bits are the whole number: it was made of such an address.
        Family::V4 => Ipv4Addr::from((number & u128::from(u32::MAX)) as u32).into(),
        Family::V6 => Ipv6Addr::from(number).into(),
    }
}

/// The addresses of a range.
pub fn span(family: Family, range: Range) -> Span {
    Span {
        first: address(family, range.0),
        last: address(family, range.1),
    }
}

/// An address as Kubernetes reads it (`ParseIPSloppy` of `k8s.io/utils/net`): the numbers of
/// an IPv4 address are decimal also with leading zeros, which the API server takes.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let without_zeros = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let parts: Vec<String> = text.split('.').map(without_zeros).collect();
    Some(IpAddr::V4(parts.join(".").parse().ok()?))
}

/// A CIDR as Kubernetes reads it: bits behind the prefix count as zero, and what is
/// within `::ffff:0:0/96` is of IPv4.
pub fn parse_cidr(text: &str) -> Option<IpNetwork> {
    let (address, prefix) = text.split_once('/')?;
    let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
    let prefix: u8 = prefix.parse().ok().filter(|_| digits)?;
    let network = IpNetwork::new(parse_address(address)?, prefix).ok()?;
    match network.network() {
        IpAddr::V6(first) if prefix >= MAPPED => match first.to_ipv4_mapped() {
            Some(first) => IpNetwork::new(first.into(), prefix - MAPPED).ok(),
            None => IpNetwork::new(first.into(), prefix).ok(),
        },
        first => IpNetwork::new(first, prefix).ok(),
    }
}

/// What a CIDR covers.
pub fn range(network: &IpNetwork) -> Range {
    (number(network.network()), number(network.broadcast()))
}

/// What a CIDR covers without its exceptions, in ascending order.
pub fn without(network: &IpNetwork, except: &[IpNetwork]) -> Vec<Range> {
    let same = |one: &&IpNetwork| one.is_ipv4() == network.is_ipv4();
    let mut holes: Vec<Range> = except.iter().filter(same).map(range).collect();
    holes.sort_unstable();
    let (mut next, last) = range(network);
    let mut ranges = Vec::new();
    for (first, end) in holes {
        if first > last {
            break;
        }
        if first > next {
            ranges.push((next, first - 1));
        }
        match end.checked_add(1) {
            Some(after) => next = next.max(after),
            None => return ranges,
        }
    }
    if next <= last {
        ranges.push((next, last));
    }
    ranges
}

/// The union of networks without what is in `holes`.
pub fn spans_of<'a>(
    networks: impl IntoIterator<Item = &'a IpNetwork> + Copy,
    holes: &[IpNetwork],
) -> BTreeSet<Span> {
    let of_family = |family| {
        let is = |one: &&IpNetwork| Family::of(one.network()) == family;
        let same_family = networks.into_iter().filter(is);
        let ranges = merged(same_family.flat_map(|one| without(one, holes)).collect());
        ranges.into_iter().map(move |range| span(family, range))
    };
    Family::BOTH.into_iter().flat_map(of_family).collect()
}

/// Whether an address is in one of these spans, which do not overlap.
#[must_use]
pub fn within(spans: &BTreeSet<Span>, ip: IpAddr) -> bool {
    // The last one that begins at the address or before it: no span is higher than this.
    let highest = Span {
        first: ip,
        last: Ipv6Addr::from(u128::MAX).into(),
    };
    let mut before = spans.range(..=highest);
    before.next_back().is_some_and(|span| ip <= span.last)
}

/// Whether two networks have an address in common.
pub fn overlap(one: &IpNetwork, other: &IpNetwork) -> bool {
    one.contains(other.network()) || other.contains(one.network())
}

/// The union of ranges, in ascending order; ranges that touch become one.
pub fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut all: Vec<Range> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match all.last_mut() {
            Some(before) if first == 0 || first - 1 <= before.1 => before.1 = before.1.max(last),
            _ => all.push((first, last)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(cidr: &str, except: &[&str]) -> Vec<String> {
        let except: Vec<IpNetwork> = except.iter().map(|one| parse_cidr(one).unwrap()).collect();
        let cidr = parse_cidr(cidr).unwrap();
        let family = if cidr.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        };
        let text = |range| {
            let Span { first, last } = span(family, range);
            format!("{first}-{last}")
        };
        without(&cidr, &except).into_iter().map(text).collect()
    }

    #[test]
    fn numbers_with_leading_zeros_are_decimal() {
        let parsed = |text| parse_address(text).map(|address| address.to_string());
        assert_eq!(parsed("172.30.0.041").as_deref(), Some("172.30.0.41"));
        assert_eq!(parsed("010.000.00.0").as_deref(), Some("10.0.0.0"));
        assert_eq!(parsed("2001:db8::1").as_deref(), Some("2001:db8::1"));
        for odd in [
            "",
            ".",
            "10.0.0",
            "10.0.0.",
            "10..0.1",
            "10.0.0.0256",
            "0x0a.0.0.1",
        ] {
            assert_eq!(parsed(odd), None, "{odd}");
        }
        let cidr = parse_cidr("010.0.0.0/8").unwrap();
        assert_eq!(cidr.to_string(), "10.0.0.0/8");
    }

    #[test]
    fn exceptions_leave_what_is_between_them() {
        assert_eq!(
            ranges("10.0.0.0/8", &["10.1.0.0/16", "10.0.0.0/24", "10.1.2.0/24"]),
            ["10.0.1.0-10.0.255.255", "10.2.0.0-10.255.255.255"]
        );
        assert_eq!(
            ranges(
                "0.0.0.0/0",
                &["255.255.255.255/32", "0.0.0.0/1", "9.9.9.9/32"]
            ),
            ["128.0.0.0-255.255.255.254"]
        );
        assert!(ranges("::/0", &["::/0"]).is_empty());
        assert_eq!(
            ranges("::/0", &["8000::/1"]),
            ["::-7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]
        );
        assert_eq!(
            ranges("10.0.0.0/24", &["11.0.0.0/8", "::/0"]),
            ["10.0.0.0-10.0.0.255"]
        );
    }

    #[test]
    fn bits_behind_a_prefix_count_as_zero_and_other_texts_are_no_cidr() {
        assert_eq!(parse_cidr("10.0.0.9/8").unwrap().to_string(), "10.0.0.0/8");
        for (text, cidr) in [
            ("::ffff:10.1.2.3/112", "10.1.0.0/16"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:0:0/95", "::fffe:0:0/95"),
            ("::fffe:0:0/96", "::fffe:0:0/96"),
        ] {
            assert_eq!(parse_cidr(text), cidr.parse().ok(), "{text}");
        }
        for bad in [
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "x/8",
            "::/129",
        ] {
            assert!(parse_cidr(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn an_address_is_within_a_span_of_its_family_alone() {
        let ends = [
            ("10.0.0.0", "10.0.0.255"),
            ("10.0.2.0", "10.0.2.0"),
            ("fd00::", "fd00::f"),
        ];
        let spans = BTreeSet::from(ends.map(|(first, last)| Span {
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
        }));
        for (ip, expected) in [
            ("9.255.255.255", false),
            ("10.0.0.0", true),
            ("10.0.0.255", true),
            ("10.0.1.0", false),
            ("10.0.2.0", true),
            ("10.0.2.1", false),
            ("::", false),
            ("fd00::f", true),
            ("fd00::10", false),
        ] {
            assert_eq!(within(&spans, ip.parse().unwrap()), expected, "{ip}");
        }
    }

    #[test]
    fn networks_overlap_whichever_is_the_larger() {
        let cidrs = ["10.96.0.0/12", "10.100.1.0/24", "10.112.0.0/12", "::/0"];
        let [wide, pods, beside, v6] = cidrs.map(|text| parse_cidr(text).unwrap());
        assert!(overlap(&wide, &pods) && overlap(&pods, &wide));
        assert!(!overlap(&wide, &beside) && !overlap(&wide, &v6));
    }

    #[test]
    fn overlapping_ranges_become_one() {
        assert_eq!(
            merged(vec![(5, 9), (0, 0), (1, 3), (8, 12)]),
            [(0, 3), (5, 12)]
        );
    }
}
