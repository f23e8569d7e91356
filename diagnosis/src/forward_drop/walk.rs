//! What another program's chain does with a pod's packet: a walk over its rules with
//! an imaginary packet of which only one link is known. Pure.
//!
//! It knows comparisons of link names and groups, verdicts, jumps, and
//! conditions on conntrack's view of the flow. A rule with any other condition
//! may match or not: its verdict does not count.

use crate::probe::Probe;
use tweed_core::ownership::LINK_GROUP;
use tweed_netlink::nf::attributes::{each, find, number, text};
use tweed_netlink::nf::object::{EXPRESSION_DATA, EXPRESSION_NAME};
use tweed_netlink::nf::verdict::Verdict;

/// The name of some pod's link. No real one has it: rules for a single pod must
/// not count.
const POD_LINK: &[u8; 16] = b"tw------------\0\0";
/// Maximum number of chains to walk through, against endless work on a huge ruleset.
const MAX_CHAINS: usize = 256;

/// What a chain does with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Certainly accepted.
    Accepted,
    /// Certainly dropped or rejected, unless a rule that could not be judged
    /// accepts it.
    Dropped,
    /// Leaves at the end of the chain.
    Through,
}

/// A walk through the chains of one table.
pub(super) struct Walk<F> {
    probe: Probe,
    /// The rules of a chain, as the payloads of their expressions.
    rules: F,
    /// Chains that the packet passed through so far.
    pub(super) entered: Vec<String>,
}

impl<E, F: FnMut(&str) -> Result<Vec<Vec<u8>>, E>> Walk<F> {
    /// A walk of `probe`; `rules` gives the expressions of a chain's rules.
    pub(super) fn new(probe: Probe, rules: F) -> Self {
        Self {
            probe,
            rules,
            entered: Vec::new(),
        }
    }

    /// Walks through `chain`.
    pub(super) fn enter(&mut self, chain: &str) -> Result<Fate, E> {
        if self.entered.len() >= MAX_CHAINS {
            return Ok(Fate::Through);
        }
        self.entered.push(chain.to_owned());
        for expressions in (self.rules)(chain)? {
            match judge(&expressions, self.probe) {
                Some(Verdict::Accept) => return Ok(Fate::Accepted),
                Some(Verdict::Drop) => return Ok(Fate::Dropped),
                Some(Verdict::Return) => return Ok(Fate::Through),
                Some(Verdict::Goto(next)) => return self.enter(&next),
                Some(Verdict::Jump(next)) => match self.enter(&next)? {
                    Fate::Through => {}
                    fate => return Ok(fate),
                },
                None => {}
            }
        }
        Ok(Fate::Through)
    }
}

/// What a register holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Known(Vec<u8>),
    /// Something of conntrack's.
    Flow,
    Unknown,
}

/// The verdict of one rule on the probe; none if it has none, or it is not certain.
fn judge(expressions: &[u8], probe: Probe) -> Option<Verdict> {
    let mut register = Value::Unknown;
    let mut verdict = None;
    for (_, expression) in each(expressions) {
        let name = find(expression, EXPRESSION_NAME).and_then(text);
        let data = find(expression, EXPRESSION_DATA).unwrap_or_default();
        match name.unwrap_or_default() {
            "meta" => register = meta(data, probe),
            "ct" => register = Value::Flow,
            // Masks out bits of what is there.
            "bitwise" if register == Value::Flow => {}
            "cmp" => match compare(data, &register) {
                Some(true) => {}
                None if register == Value::Flow && probe == Probe::ToPod => {}
                Some(false) | None => return None,
            },
            "lookup" if register == Value::Flow && probe == Probe::ToPod => {
                if is_verdict_map(data) {
                    verdict = Some(Verdict::Accept);
                }
            }
            "match" => match extension(data) {
                Some("comment") => {}
                Some("conntrack" | "state") if probe == Probe::ToPod => {}
                _ => return None,
            },
            "counter" | "log" => {}
            "immediate" => verdict = immediate(data),
            "reject" => verdict = Some(Verdict::Drop),
            "target" if extension(data) == Some("REJECT") => verdict = Some(Verdict::Drop),
            "target" => {}
            _ => return None,
        }
        // An open flow is not what a drop by conntrack's state is about.
        if verdict == Some(Verdict::Drop) && register == Value::Flow {
            return None;
        }
    }
    verdict
}

/// `NFTA_META_KEY` and the keys of `enum nft_meta_keys` that a pod's link
/// decides.
fn meta(data: &[u8], probe: Probe) -> Value {
    const KEY: u16 = 2;
    const IIFNAME: u32 = 6;
    const OIFNAME: u32 = 7;
    const IIFGROUP: u32 = 21;
    const OIFGROUP: u32 = 22;
    match (find(data, KEY).and_then(number), probe) {
        (Some(IIFNAME), Probe::FromPod) | (Some(OIFNAME), Probe::ToPod) => {
            Value::Known(POD_LINK.to_vec())
        }
        (Some(IIFGROUP), Probe::FromPod) | (Some(OIFGROUP), Probe::ToPod) => {
            Value::Known(LINK_GROUP.to_ne_bytes().to_vec())
        }
        _ => Value::Unknown,
    }
}

/// Whether a `cmp` holds: `NFTA_CMP_OP`, `NFTA_CMP_DATA`. None if unknown. A
/// name with a wildcard is compared up to the wildcard.
fn compare(data: &[u8], register: &Value) -> Option<bool> {
    const OPERATOR: u16 = 2;
    const DATA: u16 = 3;
    const VALUE: u16 = 1;
    const EQUAL: u32 = 0;
    const NOT_EQUAL: u32 = 1;
    let Value::Known(known) = register else {
        return None;
    };
    let value = find(find(data, DATA)?, VALUE)?;
    let equal = known.get(..value.len())? == value;
    match find(data, OPERATOR).and_then(number)? {
        EQUAL => Some(equal),
        NOT_EQUAL => Some(!equal),
        _ => None,
    }
}

/// Whether a `lookup` gives a verdict: `NFTA_LOOKUP_DREG` is there and names
/// the verdict's register.
fn is_verdict_map(data: &[u8]) -> bool {
    const DESTINATION: u16 = 3;
    find(data, DESTINATION).and_then(number) == Some(0)
}

/// Name of an extension of iptables: `NFTA_MATCH_NAME`, `NFTA_TARGET_NAME`.
fn extension(data: &[u8]) -> Option<&str> {
    const NAME: u16 = 1;
    find(data, NAME).and_then(text)
}

/// The verdict of an `immediate`: `NFTA_IMMEDIATE_DATA`.
fn immediate(data: &[u8]) -> Option<Verdict> {
    const DATA: u16 = 2;
    find(data, DATA).and_then(Verdict::read)
}
