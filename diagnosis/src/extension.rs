//! Matches and targets of iptables (`-m`, `-j`), which the old tables and nf_tables both
//! have as a name and a structure of the kernel's (`linux/netfilter/xt_*.h`, machines of
//! 64 bits).

use crate::probe::{Probe, Vxlan};
use crate::walk::Step;

/// What the target `name` does with a packet; none if it only does something else, such
/// as to log it.
pub(crate) fn verdict<Chain>(name: &str) -> Option<Step<Chain>> {
    match name {
        "REJECT" => Some(Step::Drop),
        "MASQUERADE" | "SNAT" | "NETMAP" => Some(Step::Rewrite),
        // A program decides, and may accept all.
        "NFQUEUE" => Some(Step::Accept),
        _ => None,
    }
}

/// Whether `probe` meets the match `name` with this structure; none if unknown.
pub(crate) fn meets(name: &str, structure: &[u8], probe: Probe) -> Option<bool> {
    match (name, probe) {
        ("comment", _) => Some(true),
        ("conntrack", _) => conntrack(structure, probe),
        ("state", _) => Some(number(structure, 0)? & state_bit(name, probe) != 0),
        ("udp", Probe::VxlanIn(vxlan) | Probe::VxlanOut(vxlan)) => udp(structure, vxlan),
        ("multiport", Probe::VxlanIn(vxlan) | Probe::VxlanOut(vxlan)) => {
            multiport(structure, vxlan)
        }
        ("addrtype", _) => addrtype(structure, probe),
        _ => None,
    }
}

/// The bit of the probe's state in `struct xt_state_info` and
/// `struct xt_conntrack_mtinfo3`, which differ in that of an untracked packet.
fn state_bit(name: &str, probe: Probe) -> u16 {
    match (probe, name) {
        // `XT_STATE_BIT(IP_CT_ESTABLISHED)`
        (Probe::ToPod, _) => 1 << 1,
        // `XT_STATE_BIT(IP_CT_NEW)`
        (Probe::FromPod | Probe::FromPeer | Probe::PodToPod(_), _) => 1 << 3,
        // `XT_STATE_UNTRACKED`
        (Probe::VxlanIn(_) | Probe::VxlanOut(_), "state") => 1 << 6,
        // `XT_CONNTRACK_STATE_UNTRACKED`
        (Probe::VxlanIn(_) | Probe::VxlanOut(_), _) => 1 << 8,
    }
}

/// `struct xt_conntrack_mtinfo3`: the state is known, and of what else it may ask for,
/// such as an address, that a packet without an entry does not meet it. The direction is
/// that of the packet which opens the flow, or of an answer to a pod.
fn conntrack(structure: &[u8], probe: Probe) -> Option<bool> {
    const MATCH_FLAGS: usize = 146;
    const INVERT_FLAGS: usize = 148;
    const STATES: usize = 150;
    /// `XT_CONNTRACK_STATE`
    const STATE: u16 = 1;
    /// `XT_CONNTRACK_DIRECTION`: the original one, or inverted that of replies.
    const DIRECTION: u16 = 1 << 12;
    /// `XT_CONNTRACK_STATE_ALIAS`: how `-m state` was written.
    const ALIAS: u16 = 1 << 13;
    let asked = number(structure, MATCH_FLAGS)? & !ALIAS;
    let inverted = number(structure, INVERT_FLAGS)?;
    let is_inverted = inverted & STATE != 0;
    let is_reply = probe == Probe::ToPod;
    let has_state = number(structure, STATES)? & state_bit("conntrack", probe) != 0;
    match probe {
        _ if asked & STATE != 0 && has_state == is_inverted => Some(false),
        Probe::FromPod | Probe::ToPod | Probe::FromPeer | Probe::PodToPod(_)
            if asked & DIRECTION != 0 && is_reply != (inverted & DIRECTION != 0) =>
        {
            Some(false)
        }
        Probe::FromPod | Probe::FromPeer | Probe::PodToPod(_) => {
            (asked & !(STATE | DIRECTION) == 0).then_some(true)
        }
        // Meant for open flows.
        Probe::ToPod => Some(true),
        Probe::VxlanIn(_) | Probe::VxlanOut(_) => Some(asked & STATE != 0),
    }
}

/// `struct xt_udp`. The port that a packet comes from is not known.
fn udp(structure: &[u8], vxlan: Vxlan) -> Option<bool> {
    const INVERTED: usize = 8;
    const DESTINATION: u8 = 2;
    let field = |place| number(structure, place);
    let range = field(4)?..=field(6)?;
    let is_inverted = structure.get(INVERTED)? & DESTINATION != 0;
    if range.contains(&vxlan.port) == is_inverted {
        return Some(false);
    }
    let is_from_any = (field(0)?, field(2)?) == (0, u16::MAX);
    is_from_any.then_some(true)
}

/// `struct xt_multiport_v1`, if it asks for the port that a packet goes to.
fn multiport(structure: &[u8], vxlan: Vxlan) -> Option<bool> {
    /// `XT_MULTIPORT_DESTINATION`
    const DESTINATION: u8 = 1;
    const PORTS: usize = 2;
    const MAX: usize = 15;
    /// For each port, whether it is the first of a range, and the next one the last.
    const BEGINS: usize = PORTS + 2 * MAX;
    const INVERTED: usize = BEGINS + MAX;
    if *structure.first()? != DESTINATION {
        return None;
    }
    let mut numbers = 0..usize::from(*structure.get(1)?).min(MAX);
    let port = |index: usize| number(structure, PORTS + 2 * index);
    let mut contains = false;
    while let Some(index) = numbers.next() {
        let first = port(index)?;
        let last = match *structure.get(BEGINS + index)? {
            0 => first,
            _ => port(numbers.next()?)?,
        };
        contains |= (first..=last).contains(&vxlan.port);
    }
    Some(contains != (*structure.get(INVERTED)? != 0))
}

/// `struct xt_addrtype_info_v1`, for a destination that is this node's, or for pods' addresses.
fn addrtype(structure: &[u8], probe: Probe) -> Option<bool> {
    /// `XT_ADDRTYPE_UNICAST` and `XT_ADDRTYPE_LOCAL`
    const UNICAST: u16 = 1 << 1;
    const LOCAL: u16 = 1 << 2;
    const INVERT_SOURCE: u16 = 1;
    const INVERT_DESTINATION: u16 = 2;
    let (source, destination) = match probe {
        Probe::VxlanIn(_) => (None, LOCAL),
        Probe::PodToPod(_) => (Some(UNICAST), UNICAST),
        _ => return None,
    };
    let flags = number(structure, 4)?;
    if flags & !(INVERT_SOURCE | INVERT_DESTINATION) != 0 {
        return None;
    }
    let meets = |asked: u16, kind: Option<u16>, inverted: u16| match asked {
        0 => Some(true),
        _ => Some((asked & kind? != 0) != (flags & inverted != 0)),
    };
    let source = meets(number(structure, 0)?, source, INVERT_SOURCE);
    match meets(number(structure, 2)?, Some(destination), INVERT_DESTINATION)? {
        true => source,
        false => Some(false),
    }
}

fn number(structure: &[u8], at: usize) -> Option<u16> {
    let number = structure.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(number))
}
