//! The rules of an old table, as the kernel lays them out (`struct ipt_entry` in
//! `linux/netfilter_ipv4/ip_tables.h`, `ip6t_entry`, `xt_entry_target`, on
//! machines of 64 bits), and what they do with a pod's packets.
//!
//! Only rules that certainly match all of them count: those without a condition,
//! and those with the link's name alone (`tw+`). For the answers to pods a rule
//! whose only condition is the state of the flow counts as well: it is meant for
//! them, and a false alarm must be avoided.

use crate::probe::Probe;

/// Where things are in an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Names of the links in and out, 16 bytes each, then their masks.
    links: usize,
    /// The end of what is compared with a packet's header.
    header: usize,
    /// Offset of the target, and behind it of the next entry.
    target: usize,
    /// The first match, or the target where there is none.
    matches: usize,
}

pub(super) const IPV4: Layout = Layout {
    links: 16,
    header: 84,
    target: 88,
    matches: 112,
};

pub(super) const IPV6: Layout = Layout {
    links: 64,
    header: 136,
    target: 140,
    matches: 168,
};

const NAME: usize = 16;
/// Of a match or a target: its size, its name, then what is its own.
const KIND: usize = 2;
const KIND_LENGTH: usize = 29;
const OWN: usize = 32;
/// Verdicts of a standard target; what is not negative is a jump.
const DROP: i32 = -1;
const ACCEPT: i32 = -2;
const RETURN: i32 = -5;
/// The beginning of the names of pod links and of `tweed.1`.
const PREFIX: &[u8] = b"tw";
/// Maximum depth of jumps that are followed.
const DEEPEST: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Accepted,
    Dropped,
    /// Back to where the chain was entered from.
    Returned,
}

/// A table's rules.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) layout: Layout,
    pub(super) entries: Vec<u8>,
    /// Offset of the first rule at the hook forward.
    pub(super) first: usize,
}

impl Table {
    /// Whether these packets are dropped at the hook forward. The policy is the
    /// last rule of the chain.
    pub(super) fn drops(&self, probe: Probe) -> bool {
        self.walk(self.first, probe, 0) == Some(Fate::Dropped)
    }

    /// Whether there is a chain of this name: each begins with a target that has the
    /// name.
    pub(super) fn has_chain(&self, name: &str) -> bool {
        let mut at = 0;
        while let Some((target, next)) = self.entry(at) {
            let has_name =
                || text(&self.entries, target + OWN, KIND_LENGTH) == Some(name.as_bytes());
            if self.kind(target) == Some(b"ERROR") && has_name() {
                return true;
            }
            at = next;
        }
        false
    }

    /// None if the rules cannot be followed.
    fn walk(&self, mut at: usize, probe: Probe, depth: usize) -> Option<Fate> {
        loop {
            let (target, next) = self.entry(at)?;
            if self.matches(at, target, probe) {
                match self.kind(target)? {
                    b"" => match number(&self.entries, target + OWN)?.cast_signed() {
                        DROP => return Some(Fate::Dropped),
                        ACCEPT => return Some(Fate::Accepted),
                        RETURN => return Some(Fate::Returned),
                        jump => {
                            let to = usize::try_from(jump).ok()?;
                            // To the next rule: a rule without a target.
                            if to != next {
                                let deeper = Some(depth + 1).filter(|deep| *deep <= DEEPEST)?;
                                match self.walk(to, probe, deeper)? {
                                    Fate::Returned => {}
                                    fate => return Some(fate),
                                }
                            }
                        }
                    },
                    b"REJECT" => return Some(Fate::Dropped),
                    // The end of all chains.
                    b"ERROR" => return Some(Fate::Returned),
                    _ => {}
                }
            }
            at = next;
        }
    }

    /// Offsets of an entry's target and of the next entry.
    fn entry(&self, at: usize) -> Option<(usize, usize)> {
        let offset = |place| short(&self.entries, at + self.layout.target + place).map(usize::from);
        let (target, next) = (offset(0)?, offset(2)?);
        (next > 0).then_some((at + target, at + next))
    }

    fn kind(&self, of: usize) -> Option<&[u8]> {
        text(&self.entries, of + KIND, KIND_LENGTH)
    }

    /// Whether the rule at `at` certainly matches all of these packets.
    fn matches(&self, at: usize, target: usize, probe: Probe) -> bool {
        let Layout {
            links,
            header,
            matches,
            ..
        } = self.layout;
        let bytes = |from: usize, to: usize| self.entries.get(at + from..at + to);
        let is_free = |part: Option<&[u8]>| part.is_some_and(|p| p.iter().all(|byte| *byte == 0));
        let pattern = |nth: usize| {
            let name = bytes(links + nth * NAME, links + (nth + 1) * NAME);
            let mask = bytes(links + (nth + 2) * NAME, links + (nth + 3) * NAME);
            let length = mask.map(|mask| mask.iter().take_while(|byte| **byte != 0).count());
            name.zip(length)
                .and_then(|(name, length)| name.get(..length))
        };
        let (ours, other) = match probe {
            Probe::FromPod => (pattern(0), pattern(1)),
            Probe::ToPod => (pattern(1), pattern(0)),
        };
        ours.is_some_and(|pattern| PREFIX.starts_with(pattern))
            && other.is_some_and(<[u8]>::is_empty)
            && is_free(bytes(0, links))
            && is_free(bytes(links + 4 * NAME, header))
            && (target == at + matches
                || probe == Probe::ToPod && self.asks_for_state_alone(at + matches, target))
    }

    fn asks_for_state_alone(&self, first: usize, target: usize) -> bool {
        let is_whole = short(&self.entries, first).map(usize::from) == Some(target - first);
        is_whole && matches!(self.kind(first), Some(b"conntrack" | b"state"))
    }
}

/// The number at `at`, in this machine's order.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let number = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(number))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let number = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(number))
}

/// A text that ends with a zero, of at most `length` bytes.
fn text(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    let field = bytes.get(at..at + length)?;
    let end = field.iter().position(|byte| *byte == 0);
    field.get(..end.unwrap_or(length))
}
