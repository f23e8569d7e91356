//! Which pod CIDRs and addresses a Node may claim at all: the first half of "A
//! Node is data from somebody else" (docs/agent.md). The second half, which of
//! them conflict with other Nodes' claims, is [`crate::overlay::claims`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use super::refusal::Why;

/// Reserved ranges, which neither pods nor nodes can use: first address, prefix
/// length, name. IPv4's 240.0.0.0/4 is not one of them: some clusters use it for
/// pods.
const SPECIAL: [(IpAddr, u8, &str); 9] = [
    (v4([0, 0, 0, 0]), 8, "the unspecified addresses"),
    (v4([127, 0, 0, 0]), 8, "the loopback addresses"),
    (v4([169, 254, 0, 0]), 16, "the link-local addresses"),
    (v4([224, 0, 0, 0]), 4, "the multicast addresses"),
    (v4([255; 4]), 32, "the broadcast address"),
    (v6([0; 8]), 127, "the unspecified and the loopback address"),
    (
        v6([0, 0, 0, 0, 0, 0xffff, 0, 0]),
        96,
        "the IPv4-mapped addresses",
    ),
    (
        v6([0xfe80, 0, 0, 0, 0, 0, 0, 0]),
        10,
        "the link-local addresses",
    ),
    (
        v6([0xff00, 0, 0, 0, 0, 0, 0, 0]),
        8,
        "the multicast addresses",
    ),
];

/// Longest prefixes of a pod CIDR that leave room for one pod beside the VXLAN
/// device's address, and in IPv4 beside the network and broadcast address.
const LONGEST_V4: u8 = 30;
const LONGEST_V6: u8 = 126;

const fn v4([a, b, c, d]: [u8; 4]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

/// Reads a pod CIDR: `<network address>/<prefix length>`.
///
/// # Errors
/// The rule that `text` breaks.
pub fn pod_cidr(text: &str) -> Result<IpNetwork, Why> {
    let (address, prefix) = text.split_once('/').ok_or(Why::NotCidr)?;
    let address: IpAddr = address.parse().map_err(|_| Why::NotCidr)?;
    // The parser of u8 accepts a plus sign.
    if !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Why::NotCidr);
    }
    let prefix: u8 = prefix.parse().map_err(|_| Why::NotCidr)?;
    let cidr = IpNetwork::new(address, prefix).map_err(|_| Why::NotCidr)?;
    if prefix == 0 {
        return Err(Why::Special("every address there is"));
    }
    if let Some(what) = special(address, prefix) {
        return Err(Why::Special(what));
    }
    if cidr.network() != address {
        return Err(Why::HostBits(cidr.network()));
    }
    let longest = if cidr.is_ipv4() {
        LONGEST_V4
    } else {
        LONGEST_V6
    };
    if prefix > longest {
        return Err(Why::NoRoom);
    }
    Ok(cidr)
}

/// Reads a Node's address.
///
/// # Errors
/// The rule that `text` breaks.
pub fn address(text: &str) -> Result<IpAddr, Why> {
    let address = text.parse().map_err(|_| Why::NotAddress)?;
    unicast(address)?;
    Ok(address)
}

/// Refuses an address in a reserved range.
///
/// # Errors
/// The reserved range that `address` is in.
fn unicast(address: IpAddr) -> Result<(), Why> {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    special(address, bits).map_or(Ok(()), |what| Err(Why::Special(what)))
}

/// Whether all of `network` is in a reserved range: no Node has any address of it.
pub fn is_reserved(network: IpNetwork) -> bool {
    (SPECIAL.iter())
        .any(|(first, bits, _)| network.prefix() >= *bits && agree(*first, network.ip(), *bits))
}

/// The reserved range that shares addresses with `<address>/<prefix>`.
fn special(address: IpAddr, prefix: u8) -> Option<&'static str> {
    (SPECIAL.iter())
        .find(|(first, bits, _)| agree(*first, address, prefix.min(*bits)))
        .map(|(_, _, what)| *what)
}

/// Whether two addresses have the same first `bits`.
fn agree(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    let bits = u32::from(bits);
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= bits,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_pod_cidrs_are_taken_as_they_are() {
        for text in [
            "10.244.1.0/24",
            "100.64.0.0/10",
            "240.1.0.0/16",
            "10.0.0.4/30",
            "fd00:10:244:1::/64",
            "2001:db8::/126",
        ] {
            assert_eq!(pod_cidr(text).map(|cidr| cidr.to_string()), Ok(text.into()));
        }
    }

    #[test]
    fn a_network_is_reserved_only_as_a_whole() {
        for (network, reserved) in [
            ("fe80::1234/64", true),
            ("fe80::1/128", true),
            ("169.254.7.9/16", true),
            ("127.0.0.1/8", true),
            ("fe80::/9", false),
            ("0.0.0.0/0", false),
            ("192.0.2.1/24", false),
            ("2001:db8::1/64", false),
        ] {
            assert_eq!(is_reserved(network.parse().unwrap()), reserved, "{network}");
        }
    }

    #[test]
    fn text_that_is_no_cidr_is_refused() {
        for text in [
            "",
            "/",
            "10.244.1.0",
            "10.244.1.0/",
            "10.244.1.0/33",
            "10.244.1.0/+24",
            "10.244.1.0/-1",
            "10.244.1.0/255.255.255.0",
            "10.244.1.0/24/24",
            " 10.244.1.0/24",
            "10.244.01.0/24",
            "fd00::/129",
            "fd00::%eth0/64",
            "node-1",
        ] {
            assert_eq!(pod_cidr(text), Err(Why::NotCidr), "{text:?}");
        }
    }

    #[test]
    fn a_range_that_is_nobodys_is_refused() {
        for text in [
            "0.0.0.0/0",
            "0.0.0.0/1",
            "0.1.0.0/16",
            "127.0.0.0/24",
            "169.254.7.0/24",
            "128.0.0.0/1",
            "224.1.0.0/16",
            "255.255.255.0/24",
            "::/0",
            "::/64",
            "::ffff:10.244.1.0/120",
            "fe80:1::/64",
            "ff02::/64",
            "f000::/4",
        ] {
            assert!(matches!(pod_cidr(text), Err(Why::Special(_))), "{text:?}");
        }
    }

    #[test]
    fn host_bits_and_ranges_without_room_are_refused() {
        assert_eq!(
            pod_cidr("10.244.1.7/24"),
            Err(Why::HostBits([10, 244, 1, 0].into()))
        );
        for text in [
            "10.244.1.0/31",
            "10.244.1.0/32",
            "fd00::/127",
            "fd00::1/128",
        ] {
            assert_eq!(pod_cidr(text), Err(Why::NoRoom), "{text:?}");
        }
    }

    #[test]
    fn addresses_that_are_no_machines_are_refused() {
        for text in ["192.0.2.7", "240.0.0.1", "2001:db8::7", "fd00::1"] {
            assert!(address(text).is_ok(), "{text:?}");
        }
        for text in ["", "node-1", "192.0.2.7/24", "192.0.2", "fe80::1%eth0"] {
            assert_eq!(address(text), Err(Why::NotAddress), "{text:?}");
        }
        for text in [
            "0.0.0.0",
            "127.0.0.1",
            "169.254.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:192.0.2.7",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(matches!(address(text), Err(Why::Special(_))), "{text:?}");
        }
    }
}
