//! Matches of iptables (`-m`), which the old tables and nf_tables both have as a name
//! and a structure of the kernel's (`linux/netfilter/xt_*.h`, machines of 64 bits).

use crate::probe::{Probe, Vxlan};

/// Whether `probe` meets the match `name` with this structure; none if unknown.
pub(crate) fn meets(name: &str, structure: &[u8], probe: Probe) -> Option<bool> {
    match (name, probe) {
        ("comment", _) => Some(true),
        // Meant for open flows.
        ("conntrack" | "state", Probe::ToPod) => Some(true),
        ("conntrack", Probe::VxlanIn(_) | Probe::VxlanOut(_)) => conntrack(structure),
        ("state", Probe::VxlanIn(_) | Probe::VxlanOut(_)) => {
            /// `XT_STATE_UNTRACKED`
            const UNTRACKED: u16 = 1 << 6;
            Some(number(structure, 0)? & UNTRACKED != 0)
        }
        ("udp", Probe::VxlanIn(vxlan) | Probe::VxlanOut(vxlan)) => udp(structure, vxlan),
        ("addrtype", Probe::VxlanIn(_)) => addrtype(structure),
        _ => None,
    }
}

/// `struct xt_conntrack_mtinfo3`, for a packet without an entry: nothing but the state
/// can be met.
fn conntrack(structure: &[u8]) -> Option<bool> {
    const MATCH_FLAGS: usize = 146;
    const INVERT_FLAGS: usize = 148;
    const STATES: usize = 150;
    /// `XT_CONNTRACK_STATE`
    const STATE: u16 = 1;
    /// `XT_CONNTRACK_STATE_UNTRACKED`
    const UNTRACKED: u16 = 1 << 8;
    if number(structure, MATCH_FLAGS)? & STATE == 0 {
        return Some(false);
    }
    let is_inverted = number(structure, INVERT_FLAGS)? & STATE != 0;
    Some((number(structure, STATES)? & UNTRACKED != 0) != is_inverted)
}

/// `struct xt_udp`. The port that a packet comes from is not known.
fn udp(structure: &[u8], vxlan: Vxlan) -> Option<bool> {
    const INVERTED: usize = 8;
    const DESTINATION: u8 = 2;
    let field = |place| number(structure, place);
    let range = field(4)?..=field(6)?;
    let is_inverted = structure.get(INVERTED)? & DESTINATION != 0;
    match range.contains(&vxlan.port) != is_inverted {
        true if (field(0)?, field(2)?) == (0, u16::MAX) => Some(true),
        true => None,
        false => Some(false),
    }
}

/// `struct xt_addrtype_info_v1`, for a destination that is this node's.
fn addrtype(structure: &[u8]) -> Option<bool> {
    /// `XT_ADDRTYPE_LOCAL`
    const LOCAL: u16 = 1 << 2;
    const INVERT_DESTINATION: u16 = 2;
    let (source, destination) = (number(structure, 0)?, number(structure, 2)?);
    let flags = number(structure, 4)?;
    if source != 0 || flags & !INVERT_DESTINATION != 0 {
        return None;
    }
    Some((destination & LOCAL != 0) != (flags & INVERT_DESTINATION != 0))
}

fn number(structure: &[u8], at: usize) -> Option<u16> {
    let number = structure.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(number))
}
