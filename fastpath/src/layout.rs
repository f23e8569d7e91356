//! What programs and agent share in maps: the structures of `bpf/flow.h`.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use aya::Pod;
use ipnetwork::IpNetwork;

/// The version of these structures and of what they mean. Pinned maps of another one are not
/// taken over.
pub(crate) const LAYOUT: u32 = 3;

/// `MAX_RANGES`
pub(crate) const MAX_RANGES: usize = 8;

/// `enum { WAYS_… }`
pub(crate) const WAYS_LOCAL: u32 = 1;
pub(crate) const WAYS_VXLAN: u32 = 2;
pub(crate) const WAYS_DIRECT: u32 = 4;

/// `enum { LINK_… }`
pub(crate) const LINK_POD: u32 = 1;
pub(crate) const LINK_VXLAN: u32 = 2;
pub(crate) const LINK_UNDERLAY: u32 = 3;

/// `enum { WAY_… }`
pub(crate) const WAY_LOCAL: u32 = 1;
pub(crate) const WAY_VXLAN_OUT: u32 = 2;
pub(crate) const WAY_VXLAN_IN: u32 = 3;

/// `struct flow_key`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowKey {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub source_port: u16,
    pub destination_port: u16,
    pub link: u32,
    pub protocol: u32,
}

/// `struct flow`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowValue {
    pub epoch: u64,
    pub expires: u64,
    pub way: u32,
    pub link: u32,
    pub node: u32,
    pub mtu: u32,
    pub destination_mac: [u8; 6],
    pub source_mac: [u8; 6],
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub source_port: u16,
    pub destination_port: u16,
    pub translates: u32,
    pub unused: u32,
}

#[expect(unsafe_code, reason = "the trait says that any bytes are valid")]
// SAFETY: all fields are numbers, without padding between or after them.
unsafe impl Pod for FlowKey {}
#[expect(unsafe_code, reason = "the trait says that any bytes are valid")]
// SAFETY: all fields are numbers, without padding between or after them.
unsafe impl Pod for FlowValue {}

/// `struct settings`: its fields are written one by one while programs read them.
#[repr(C)]
pub(crate) struct Shared {
    pub epoch: AtomicU64,
    pub life: AtomicU64,
    pub lease: AtomicU64,
    pub mark: AtomicU32,
    pub mark_mask: AtomicU32,
    pub ways: AtomicU32,
    pub vni: AtomicU32,
    pub node: AtomicU32,
    pub vxlan_link: AtomicU32,
    pub port_min: AtomicU32,
    pub port_max: AtomicU32,
    pub vxlan_port: AtomicU16,
    pub range_count: AtomicU16,
    pub underlay_link: AtomicU32,
    pub ranges: [[AtomicU32; 8]; MAX_RANGES],
}

/// `struct address`: IPv4 in IPv6's form (RFC 4291, 2.5.5.2), in the order of the network.
pub(crate) fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The length of a prefix of [`address`].
pub(crate) fn prefix(network: IpNetwork) -> u32 {
    let mapped = if network.is_ipv4() { 96 } else { 0 };
    mapped + u32::from(network.prefix())
}

/// `struct range`
pub(crate) fn range(network: IpNetwork) -> [u32; 8] {
    let bits = u128::MAX.checked_shl(128 - prefix(network));
    let mask = bits.unwrap_or(0).to_be_bytes();
    let mut words = [0; 8];
    let bytes = address(network.network());
    for (word, four) in words.iter_mut().zip(bytes.chunks(4).chain(mask.chunks(4))) {
        *word = four.try_into().map_or(0, u32::from_ne_bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ipv4_is_one_of_mapped_addresses() {
        let words = range("10.244.0.0/16".parse().unwrap());
        let in_order = |bytes: [u8; 4]| u32::from_ne_bytes(bytes);
        let network = [0, 0, in_order([0, 0, 255, 255]), in_order([10, 244, 0, 0])];
        let mask = [u32::MAX, u32::MAX, u32::MAX, in_order([255, 255, 0, 0])];
        assert_eq!(words[..4], network);
        assert_eq!(words[4..], mask);
        assert_eq!(range("::/0".parse().unwrap()), [0; 8]);
    }

    #[test]
    fn the_settings_are_laid_out_as_in_c() {
        assert_eq!(size_of::<Shared>(), 320);
        assert_eq!((size_of::<FlowKey>(), size_of::<FlowValue>()), (44, 88));
        assert_eq!(std::mem::offset_of!(Shared, vxlan_port), 56);
        assert_eq!(std::mem::offset_of!(Shared, ranges), 64);
    }
}
