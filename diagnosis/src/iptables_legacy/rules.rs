//! The rules of an old table, as the kernel lays them out (`struct ipt_entry` in
//! `linux/netfilter_ipv4/ip_tables.h`, `ip6t_entry`, `xt_entry_target`, on
//! machines of 64 bits), and what they do with packets of pods or of the overlay.
//!
//! What a rule says of addresses, links and protocol is compared with what is known of the
//! packet ([`crate::probe::Probe`]). Of what pods send or get only rules count that certainly
//! match all of it: those without a condition, and those with the link's name alone (`tw+`).
//! For the answers to pods a rule whose only condition is the state of the flow counts as
//! well: it is meant for them, and a false alarm must be avoided.

use std::convert::Infallible;
use std::iter;
use std::net::IpAddr;

use crate::extension;
use crate::probe::{FlowLink, Probe, is_no_uplink};
use crate::walk::{Outcome, Rule, Step, Walk};
use tweed_core::family::octets;

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
    target: 88,
    matches: 112,
};

pub(super) const IPV6: Layout = Layout {
    links: 64,
    protocol: 128,
    flags: 131,
    goto: 4,
    other: 2,
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
    pub(super) fn drops(&self, chain: BaseChain, probe: &Probe) -> bool {
        let policy = self.target(chain.policy).and_then(|(target, _)| {
            let verdict = number(&self.entries, target + OWN)?;
            Some(verdict.cast_signed())
        });
        let read = |chain: &usize| Ok::<_, Infallible>(self.rules(*chain, probe));
        let Ok(outcomes) = Walk::new(read).enter(&chain.first);
        probe.is_harmed(&outcomes, policy == Some(DROP))
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
                DROP => Some(Step::End(Outcome::Dropped)),
                ACCEPT => Some(Step::End(Outcome::Accepted)),
                RETURN => Some(Step::End(Outcome::Returned)),
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
    fn meets(&self, at: usize, target: usize, probe: &Probe) -> Option<bool> {
        let mut next = at + self.layout.matches;
        let matches = iter::from_fn(|| {
            (next < target).then(|| {
                let size = short(&self.entries, next).filter(|size| *size > 0);
                // One that cannot be read is the last, and not known.
                let end = size.map_or(target, |size| next + usize::from(size));
                let name = self.kind(next).and_then(|name| str::from_utf8(name).ok());
                let structure = self.entries.get(next + OWN..end);
                next = end;
                extension::meets(name?, structure?, probe)
            })
        });
        extension::all(iter::once(self.meets_head(at, probe)).chain(matches))
    }

    /// Whether the packet meets what the rule says without matches: addresses, links
    /// and protocol.
    fn meets_head(&self, at: usize, probe: &Probe) -> Option<bool> {
        let Layout {
            links,
            protocol,
            flags,
            other,
            ..
        } = self.layout;
        let link = |nth: usize, link: FlowLink| {
            let field = |nth: usize| self.entries.get(at + links + nth * NAME..)?.get(..NAME);
            let mask = field(nth + 2)?.iter();
            let pattern = field(nth)?.get(..mask.take_while(|byte| **byte != 0).count())?;
            match link.name() {
                _ if pattern.is_empty() => Some(true),
                Some(name) => Some(name.starts_with(pattern)),
                None if link == FlowLink::Uplink && is_no_uplink(pattern) => Some(false),
                None => None,
            }
        };
        let number = short(&self.entries, at + protocol)?;
        let is_protocol = match number {
            0 => Some(true),
            number => probe.protocol.map(|protocol| u16::from(protocol) == number),
        };
        let (source, destination) = probe.addresses.unzip();
        let inverted = *self.entries.get(at + flags + 1)?;
        let met = [
            (self.holds(at, 0, source), NOT_SOURCE),
            (self.holds(at, 1, destination), NOT_DESTINATION),
            (link(0, probe.incoming), NOT_IN),
            (link(1, probe.outgoing), NOT_OUT),
            (is_protocol, NOT_PROTOCOL),
        ]
        .map(|(met, flag)| Some(met? != (inverted & flag != 0)));
        let has_other = self.entries.get(at + flags)? & other != 0;
        extension::all(met.into_iter().chain([(!has_other).then_some(true)]))
    }

    /// Whether the rule's first range of addresses, the one of sources, or its second one holds
    /// `address`; none if that depends on the address, which is not known.
    fn holds(&self, at: usize, nth: usize, address: Option<IpAddr>) -> Option<bool> {
        // Two ranges and two masks are before the names of the links.
        let length = self.layout.links / 4;
        let field = |nth: usize| self.entries.get(at + nth * length..)?.get(..length);
        let (range, mask) = (field(nth)?, field(nth + 2)?);
        if mask.iter().all(|byte| *byte == 0) {
            return Some(true);
        }
        let octets = octets(address?);
        let mut bits = octets.iter().zip(range).zip(mask);
        Some(bits.all(|((byte, range), mask)| byte & mask == *range))
    }

    /// The rules that a packet meets or, where they may be meant for it, may meet: from
    /// that at this offset to the end of its chain, or to the first rule that
    /// certainly ends the packet's way.
    fn rules(&self, chain: usize, probe: &Probe) -> Vec<Rule<usize>> {
        let mut rules = Vec::new();
        let mut at = chain;
        loop {
            let entry = self.target(at);
            let target = entry.and_then(|(target, _)| self.kind(target));
            let (Some((target, next)), Some(kind)) = (entry, target) else {
                // The rules cannot be followed.
                rules.push(Rule {
                    step: Step::End(Outcome::Accepted),
                    certain: false,
                });
                return rules;
            };
            // The end of all chains, or the beginning of the next one.
            if kind == b"ERROR" {
                return rules;
            }
            let met = self.meets(at, target, probe);
            let certain = met == Some(true);
            let counts = certain || met.is_none() && probe.may_be_meant;
            if counts && let Some(step) = self.step(at, target, next) {
                let ends = certain && !matches!(step, Step::Jump(_));
                rules.push(Rule { step, certain });
                if ends {
                    return rules;
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
