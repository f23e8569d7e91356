//! Limits of an MTU, and what a tunnel takes of it, in bytes.
//!
//! The limits differ on purpose: the plugin accepts in a network config whatever
//! the kernel accepts ([`KERNEL_MIN`]), as anybody may write one, for links without
//! a full IP stack too; the agent, which decides on the MTU of a whole cluster,
//! accepts nothing in which the protocol does not work ([`IPV4_MIN`],
//! [`IPV6_MIN`]). An IPv6 pod needs [`IPV6_MIN`] in either case: on a smaller link
//! the kernel has no IPv6.

use std::net::IpAddr;

/// The smallest MTU that the kernel accepts for a veth link (`ETH_MIN_MTU`).
pub const KERNEL_MIN: u32 = 68;
/// The largest MTU that the kernel accepts for a veth link (`ETH_MAX_MTU`).
pub const KERNEL_MAX: u32 = 65535;
/// The packet that every IPv4 host must accept (RFC 791).
pub const IPV4_MIN: u32 = 576;
/// The smallest MTU of a link that carries IPv6 (RFC 8200, section 5).
pub const IPV6_MIN: u32 = 1280;

/// What VXLAN adds to a packet besides the outer IP header: UDP, VXLAN, inner
/// Ethernet (RFC 7348, section 5).
const VXLAN_WITHOUT_IP: u32 = 8 + 8 + 14;
/// What VXLAN over IPv4 takes of the underlay's MTU.
pub const VXLAN_OVER_IPV4: u32 = 20 + VXLAN_WITHOUT_IP;
/// What VXLAN over IPv6 takes of the underlay's MTU.
pub const VXLAN_OVER_IPV6: u32 = 40 + VXLAN_WITHOUT_IP;

/// What VXLAN takes of the MTU of an underlay with this address.
pub fn vxlan_overhead(underlay: IpAddr) -> u32 {
    if underlay.is_ipv4() {
        VXLAN_OVER_IPV4
    } else {
        VXLAN_OVER_IPV6
    }
}

/// The MTU of the host's end of a pod's link, of which `added` is what ADD gave it: that of the
/// pod's end, where somebody has lowered it (the plugin `tuning`). A veth drops what is longer
/// than its other end takes and tells nobody (`__dev_forward_skb` in `net/core/dev.c`), but the
/// node tells a sender what its own end takes.
pub fn of_host_end(added: u32, pod_end: u32, has_ipv6: bool) -> u32 {
    // The kernel takes IPv6 off a link that is shorter.
    let least = if has_ipv6 { IPV6_MIN } else { 0 };
    added.min(pod_end.max(least))
}
