//! The packets that announce an address: pure.

use std::net::{Ipv4Addr, Ipv6Addr};

use tweed_core::mac::Mac;

/// All machines on the link.
pub(super) const BROADCAST: Mac = Mac([0xff; 6]);
/// The MAC of [`ALL_NODES`] (RFC 2464, section 7).
pub(super) const ALL_NODES_MAC: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);
/// All IPv6 machines on the link (RFC 4291, section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

const ETHERNET: u16 = 1;
const PROTOCOL_IPV4: u16 = 0x0800;
const ARP_REQUEST: u16 = 1;

const VERSION_6: u8 = 6 << 4;
const ICMPV6: u8 = 58;
/// Machines take no neighbour discovery with less: it would come from elsewhere.
const HOP_LIMIT: u8 = 255;
const ADVERTISEMENT: u8 = 136;
const IS_ROUTER: u8 = 0x80;
const OVERRIDE: u8 = 0x20;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
/// In units of eight bytes.
const OPTION_LENGTH: u8 = 1;

/// An ARP announcement (RFC 5227, section 2.3): a request for the own address, which
/// nobody answers.
pub(super) fn arp(ip: Ipv4Addr, mac: Mac) -> Vec<u8> {
    let mut packet = Vec::new();
    packet.extend(ETHERNET.to_be_bytes());
    packet.extend(PROTOCOL_IPV4.to_be_bytes());
    // Lengths of the addresses of both.
    packet.extend([6, 4]);
    packet.extend(ARP_REQUEST.to_be_bytes());
    packet.extend(mac.0);
    packet.extend(ip.octets());
    packet.extend([0; 6]);
    packet.extend(ip.octets());
    packet
}

/// An unsolicited neighbour advertisement (RFC 4861, section 7.2.6) that overrides
/// what others know. `is_router` says whether the machine forwards, as the kernel's own
/// advertisements do: one that does not say so would end a router's being one.
pub(super) fn advertisement(ip: Ipv6Addr, mac: Mac, is_router: bool) -> Vec<u8> {
    let flags = OVERRIDE | if is_router { IS_ROUTER } else { 0 };
    let mut message = vec![ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
    message.extend(ip.octets());
    message.extend([TARGET_LINK_LAYER_ADDRESS, OPTION_LENGTH]);
    message.extend(mac.0);
    let sum = checksum(ip, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());

    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let mut packet = vec![VERSION_6, 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([ICMPV6, HOP_LIMIT]);
    packet.extend(ip.octets());
    packet.extend(ALL_NODES.octets());
    packet.extend(message);
    packet
}

/// The checksum of `message`, an ICMPv6 message of even length from `source` to
/// [`ALL_NODES`] (RFC 4443, section 2.3).
fn checksum(source: Ipv6Addr, message: &[u8]) -> u16 {
    let addresses = [source.octets(), ALL_NODES.octets()].concat();
    let words = addresses.chunks_exact(2).chain(message.chunks_exact(2));
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let mut sum = sum + u32::try_from(message.len()).unwrap_or(0) + u32::from(ICMPV6);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);

    #[test]
    fn an_announcement_asks_for_the_own_address() {
        let ip = [192, 0, 2, 7];
        let mut expected = vec![0, 1, 8, 0, 6, 4, 0, 1];
        expected.extend([&MAC.0[..], &ip, &[0; 6], &ip].concat());
        assert_eq!(arp(ip.into(), MAC), expected);
    }

    /// The sum over the pseudo header and the message with its checksum is all ones.
    #[test]
    fn an_advertisement_has_a_checksum_that_its_receivers_accept() {
        let ip: Ipv6Addr = "2001:db8::7".parse().unwrap();
        for is_router in [false, true] {
            let packet = advertisement(ip, MAC, is_router);
            let (header, message) = packet.split_at(40);
            assert_eq!(header[..8], [0x60, 0, 0, 0, 0, 32, 58, 255]);
            assert_eq!(message[4], if is_router { 0xa0 } else { 0x20 });
            assert_eq!(message[8..24], ip.octets());
            assert_eq!(message[24..], [2, 1, 2, 0, 0, 0, 0, 7]);
            assert_eq!(checksum(ip, message), 0);
        }
    }
}
