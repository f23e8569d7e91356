//! Matches and targets of iptables (`-m`, `-j`), which the old tables and nf_tables both
//! have as a name and a structure of the kernel's (`linux/netfilter/xt_*.h`, machines of
//! 64 bits).

use crate::probe::{Probe, State};
use crate::walk::{Outcome, Step};

/// What the target `name` does with a packet; none if it only does something else, such
/// as to log it.
pub(crate) fn verdict<Chain>(name: &str) -> Option<Step<Chain>> {
    match name {
        "REJECT" => Some(Step::End(Outcome::Dropped)),
        "MASQUERADE" | "SNAT" | "NETMAP" => Some(Step::End(Outcome::Rewritten)),
        // A program decides, and may accept all.
        "NFQUEUE" => Some(Step::End(Outcome::Accepted)),
        _ => None,
    }
}

/// Whether a packet meets the match `name` with this structure; none if unknown.
pub(crate) fn meets(name: &str, structure: &[u8], probe: &Probe) -> Option<bool> {
    match name {
        "comment" => Some(true),
        "conntrack" => conntrack(structure, probe.state),
        "state" => Some(number(structure, 0)? & probe.state as u16 != 0),
        "udp" => udp(structure, probe.port?),
        "multiport" => multiport(structure, probe.port?),
        "addrtype" => addrtype(structure, probe.types),
        _ => None,
    }
}

/// `struct xt_conntrack_mtinfo3`: the state is known, and of what else it may ask for,
/// such as an address, that a packet without an entry does not meet it. The direction is
/// that of the packet which opens the flow, or of an answer to a pod.
fn conntrack(structure: &[u8], state: State) -> Option<bool> {
    const MATCH_FLAGS: usize = 146;
    const INVERT_FLAGS: usize = 148;
    const STATES: usize = 150;
    /// `XT_CONNTRACK_STATE`
    const STATE: u16 = 1;
    /// `XT_CONNTRACK_DIRECTION`: the original one, or inverted that of replies.
    const DIRECTION: u16 = 1 << 12;
    /// `XT_CONNTRACK_STATE_ALIAS`: how `-m state` was written.
    const ALIAS: u16 = 1 << 13;
    /// `XT_CONNTRACK_STATE_UNTRACKED`; the bits of other states are as for `-m state`.
    const UNTRACKED: u16 = 1 << 8;
    let asked = number(structure, MATCH_FLAGS)? & !ALIAS;
    let inverted = number(structure, INVERT_FLAGS)?;
    let bit = match state {
        State::Untracked => UNTRACKED,
        state => state as u16,
    };
    let has_state = number(structure, STATES)? & bit != 0;
    if asked & STATE != 0 && has_state == (inverted & STATE != 0) {
        return Some(false);
    }
    let is_reply = state == State::Established;
    let is_other_direction = asked & DIRECTION != 0 && is_reply != (inverted & DIRECTION != 0);
    match state {
        State::Untracked => Some(asked & STATE != 0),
        _ if is_other_direction => Some(false),
        State::New => (asked & !(STATE | DIRECTION) == 0).then_some(true),
        // Meant for open flows.
        State::Established => Some(true),
    }
}

/// `struct xt_udp`. The port that a packet comes from is not known.
fn udp(structure: &[u8], goes_to: u16) -> Option<bool> {
    const INVERTED: usize = 8;
    const DESTINATION: u8 = 2;
    let field = |place| number(structure, place);
    let range = field(4)?..=field(6)?;
    let is_inverted = structure.get(INVERTED)? & DESTINATION != 0;
    if range.contains(&goes_to) == is_inverted {
        return Some(false);
    }
    let is_from_any = (field(0)?, field(2)?) == (0, u16::MAX);
    is_from_any.then_some(true)
}

/// `struct xt_multiport_v1`, if it asks for the port that a packet goes to.
fn multiport(structure: &[u8], goes_to: u16) -> Option<bool> {
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
        contains |= (first..=last).contains(&goes_to);
    }
    Some(contains != (*structure.get(INVERTED)? != 0))
}

/// `struct xt_addrtype_info_v1`, by the types of source and destination, as far as they are
/// known.
fn addrtype(structure: &[u8], types: (Option<u32>, Option<u32>)) -> Option<bool> {
    const INVERT_SOURCE: u16 = 1;
    const INVERT_DESTINATION: u16 = 2;
    let flags = number(structure, 4)?;
    if flags & !(INVERT_SOURCE | INVERT_DESTINATION) != 0 {
        return None;
    }
    // `XT_ADDRTYPE_…` are the bits of `RTN_…`.
    let meets = |asked: u16, kind: Option<u32>, inverted: u16| match asked {
        0 => Some(true),
        _ => Some((asked & (1 << kind?) != 0) != (flags & inverted != 0)),
    };
    all([
        meets(number(structure, 0)?, types.0, INVERT_SOURCE),
        meets(number(structure, 2)?, types.1, INVERT_DESTINATION),
    ])
}

/// Whether all conditions are met. One that is not decides, whatever is not known besides.
pub(crate) fn all(conditions: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut all = Some(true);
    for met in conditions {
        match met {
            Some(true) => {}
            Some(false) => return Some(false),
            None => all = None,
        }
    }
    all
}

fn number(structure: &[u8], at: usize) -> Option<u16> {
    let number = structure.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(number))
}
