//! The rules of an old table, as the kernel lays them out (`struct ipt_entry` in
//! `linux/netfilter_ipv4/ip_tables.h`, `ip6t_entry`, `xt_entry_target`, on
//! machines of 64 bits), and what they do with packets of pods or of the overlay.
//!
//! From pod to pod all that a rule says of addresses, links and TCP is compared.
//!
//! Of what pods send or get only rules that certainly match all of it count: those
//! without a condition, and those with the link's name alone (`tw+`). For the answers
//! to pods a rule whose only condition is the state of the flow counts as well: it is
//! meant for them, and a false alarm must be avoided.

use std::convert::Infallible;
use std::iter;
use std::net::IpAddr;

use crate::extension;
use crate::probe::{Probe, is_no_uplink};
use crate::ranges::octets;
use crate::walk::{Chains, Rule, Step, Walk};

/// Where things are in an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Names of the links in and out, 16 bytes each, then their masks.
    links: usize,
    /// The protocol.
    protocol: usize,
    /// Flags of the rule, then of what is inverted.
    flags: usize,
    /// The flag of a jump that does not come back.
    goto: u8,
    /// The flag of a condition that is not looked at: fragments, type of service.
    other: u8,
    /// The end of what is compared with a packet's header.
    header: usize,
    /// Offset of the target, and behind it of the next entry.
    target: usize,
    /// The first match, or the target where there is none.
    matches: usize,
}

pub(super) const IPV4: Layout = Layout {
    links: 16,
    protocol: 80,
    flags: 82,
    goto: 2,
    other: 1,
    header: 84,
    target: 88,
    matches: 112,
};

pub(super) const IPV6: Layout = Layout {
    links: 64,
    protocol: 128,
    flags: 131,
    goto: 4,
    other: 2,
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
/// `IPT_INV_VIA_IN` and `IPT_INV_VIA_OUT`: the names of the links are inverted.
const NOT_IN: u8 = 0x01;
const NOT_OUT: u8 = 0x02;
/// `IPT_INV_SRCIP`, `IPT_INV_DSTIP` and `XT_INV_PROTO`.
const NOT_SOURCE: u8 = 0x08;
const NOT_DESTINATION: u8 = 0x10;
const NOT_PROTOCOL: u8 = 0x40;
const TCP: u16 = 6;
/// The beginning of the names of pod links and of `tweed.1`.
const PREFIX: &[u8] = b"tw";

/// A table's rules.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) layout: Layout,
    pub(super) entries: Vec<u8>,
}

/// A chain at a hook, by the offsets of its first rule and of its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BaseChain {
    pub(super) first: usize,
    pub(super) policy: usize,
}

impl Table {
    /// Whether these packets are dropped in this chain, or translated.
    pub(super) fn drops(&self, chain: BaseChain, probe: Probe) -> bool {
        let policy = self.target(chain.policy).and_then(|(target, _)| {
            let verdict = number(&self.entries, target + OWN)?;
            Some(verdict.cast_signed())
        });
        let Ok(fates) = Walk::new(Packet { table: self, probe }).enter(&chain.first);
        probe.is_harmed(fates, policy == Some(DROP))
    }

    /// Whether there is a chain of this name.
    pub(super) fn has_chain(&self, name: &str) -> bool {
        self.names().any(|chain| chain == name.as_bytes())
    }

    /// The names of all chains that are not iptables' own.
    pub(super) fn chains(&self) -> Vec<String> {
        let names = self
            .names()
            .map(|name| String::from_utf8_lossy(name).into_owned());
        // The last entry of a table has this name.
        names.filter(|name| name != "ERROR").collect()
    }

    /// Each such chain begins with a target that has its name.
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        iter::from_fn(move || {
            let (target, next) = self.target(at)?;
            at = next;
            Some(target)
        })
        .filter(|target| self.kind(*target) == Some(b"ERROR"))
        .filter_map(|target| text(&self.entries, target + OWN, KIND_LENGTH))
    }

    /// Offsets of an entry's target and of the next entry.
    fn target(&self, at: usize) -> Option<(usize, usize)> {
        let offset = |place| short(&self.entries, at + self.layout.target + place).map(usize::from);
        let (target, next) = (offset(0)?, offset(2)?);
        (next > 0).then_some((at + target, at + next))
    }

    fn kind(&self, of: usize) -> Option<&[u8]> {
        text(&self.entries, of + KIND, KIND_LENGTH)
    }

    /// What the rule at `at` does; none for a rule that only does something else, such
    /// as to count.
    fn step(&self, at: usize, target: usize, next: usize) -> Option<Step<usize>> {
        match self.kind(target)? {
            b"" => match number(&self.entries, target + OWN)?.cast_signed() {
                DROP => Some(Step::Drop),
                ACCEPT => Some(Step::Accept),
                RETURN => Some(Step::Return),
                jump => {
                    let to = usize::try_from(jump).ok()?;
                    let flags = self.entries.get(at + self.layout.flags)?;
                    // To the next rule: a rule without a target.
                    (to != next).then_some(match flags & self.layout.goto {
                        0 => Step::Jump(to),
                        _ => Step::Goto(to),
                    })
                }
            },
            name => extension::verdict(str::from_utf8(name).ok()?),
        }
    }

    /// Whether the packet meets the rule at `at`; none if unknown.
    fn meets(&self, at: usize, target: usize, probe: Probe) -> Option<bool> {
        let mut met = self.meets_head(at, probe);
        let mut next = at + self.layout.matches;
        while next < target && met != Some(false) {
            let size = short(&self.entries, next).filter(|size| *size > 0)?;
            let end = next + usize::from(size);
            let name = self.kind(next).and_then(|name| str::from_utf8(name).ok());
            let structure = self.entries.get(next + OWN..end)?;
            met = match extension::meets(name?, structure, probe) {
                Some(true) => met,
                // One that is not met decides, whatever is not known besides.
                other => other,
            };
            next = end;
        }
        met
    }

    /// Whether the rule's first range of addresses, the one of sources, or its second one holds
    /// `address`.
    fn holds(&self, at: usize, nth: usize, address: IpAddr) -> Option<bool> {
        let octets = octets(address);
        let field = |nth: usize| {
            let start = at + nth * octets.len();
            self.entries.get(start..start + octets.len())
        };
        let mut bits = octets.iter().zip(field(nth)?).zip(field(nth + 2)?);
        Some(bits.all(|((byte, range), mask)| byte & mask == *range))
    }

    /// Whether the packet meets what the rule says without matches: addresses, links
    /// and protocol.
    fn meets_head(&self, at: usize, probe: Probe) -> Option<bool> {
        let Layout {
            links,
            protocol,
            flags,
            goto,
            other: other_flag,
            header,
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
        let (incoming, outgoing) = (pattern(0)?, pattern(1)?);
        let head = self.entries.get(at + links + 4 * NAME..at + header)?;
        let only_goto = |(place, byte): (usize, &u8)| {
            let is_flags = place == flags - links - 4 * NAME;
            *byte & !(if is_flags { goto } else { 0 }) == 0
        };
        // But for the names of the links.
        let is_plain = is_free(bytes(0, links)) && head.iter().enumerate().all(only_goto);
        let inverted = *self.entries.get(at + flags + 1)?;
        match probe {
            Probe::PodToPod(flow) => {
                let number = short(&self.entries, at + protocol)?;
                let meets = [
                    (self.holds(at, 0, flow.source)?, NOT_SOURCE),
                    (self.holds(at, 1, flow.destination)?, NOT_DESTINATION),
                    (flow.incoming.name().starts_with(incoming), NOT_IN),
                    (flow.outgoing.name().starts_with(outgoing), NOT_OUT),
                    (number == 0 || number == TCP, NOT_PROTOCOL),
                ];
                let is_met = |(met, flag): (bool, u8)| met != (inverted & flag != 0);
                let is_known = self.entries.get(at + flags)? & other_flag == 0;
                match meets.into_iter().all(is_met) {
                    true => is_known.then_some(true),
                    false => Some(false),
                }
            }
            Probe::FromPod => {
                let is_certain = PREFIX.starts_with(incoming) && outgoing.is_empty() && is_plain;
                is_certain.then_some(true)
            }
            Probe::ToPod => {
                let is_certain = PREFIX.starts_with(outgoing) && incoming.is_empty() && is_plain;
                is_certain.then_some(true)
            }
            Probe::FromPeer => {
                let may_be_pod = PREFIX.starts_with(outgoing) || outgoing.starts_with(PREFIX);
                let is_other = (is_no_uplink(incoming) && inverted & NOT_IN == 0)
                    || (!may_be_pod && inverted & NOT_OUT == 0);
                let is_certain = PREFIX.starts_with(outgoing) && incoming.is_empty() && is_plain;
                if is_other {
                    Some(false)
                } else {
                    is_certain.then_some(true)
                }
            }
            Probe::VxlanIn(_) | Probe::VxlanOut(_) => {
                const UDP: u16 = 17;
                let (uplink, link_flag) = match probe {
                    Probe::VxlanOut(_) => (outgoing, NOT_OUT),
                    _ => (incoming, NOT_IN),
                };
                let number = short(&self.entries, at + protocol)?;
                let is_udp = number == UDP;
                if number != 0 && is_udp == (inverted & NOT_PROTOCOL != 0) {
                    return Some(false);
                }
                if is_no_uplink(uplink) && inverted & link_flag == 0 {
                    return Some(false);
                }
                let is_free = uplink.is_empty() && is_free(bytes(0, links));
                let is_known = is_free && self.entries.get(at + flags)? & other_flag == 0;
                is_known.then_some(true)
            }
        }
    }
}

/// One packet in a table.
struct Packet<'a> {
    table: &'a Table,
    probe: Probe,
}

impl Chains for Packet<'_> {
    type Name = usize;
    type Error = Infallible;

    /// From the rule at this offset to the end of its chain, or to the first rule that
    /// certainly ends the packet's way.
    fn rules(&mut self, chain: &usize) -> Result<Vec<Rule<usize>>, Infallible> {
        let mut rules = Vec::new();
        let mut at = *chain;
        loop {
            let entry = self.table.target(at);
            let target = entry.and_then(|(target, _)| self.table.kind(target));
            let (Some((target, next)), Some(kind)) = (entry, target) else {
                // The rules cannot be followed.
                rules.push(Rule {
                    step: Step::Accept,
                    certain: false,
                });
                return Ok(rules);
            };
            // The end of all chains, or the beginning of the next one.
            if kind == b"ERROR" {
                return Ok(rules);
            }
            let met = self.table.meets(at, target, self.probe);
            let certain = met == Some(true);
            let counts = certain || met.is_none() && self.probe.may_be_meant();
            if counts && let Some(step) = self.table.step(at, target, next) {
                let ends = certain && !matches!(step, Step::Jump(_));
                rules.push(Rule { step, certain });
                if ends {
                    return Ok(rules);
                }
            }
            at = next;
        }
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
