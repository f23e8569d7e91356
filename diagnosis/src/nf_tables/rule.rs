//! What one rule does with a packet of which little is known. Pure; [`super::packet`]
//! says what is known.
//!
//! It knows comparisons and sets of what is known of the packet, verdicts, translations of
//! the source, jumps, and conditions on conntrack's view of the flow. Any other condition may be met or not:
//! what comes of it depends on the packet ([`Probe::may_be_meant`]).

use super::packet::{Value, load};
use super::registers::Registers;
use super::set::Elements;
use crate::extension;
use crate::probe::{Probe, State};
use crate::walk::{Outcome, Rule, Step};
use tweed_netlink::nf::attributes::{each, find, number, text};
use tweed_netlink::nf::object::{EXPRESSION_DATA, EXPRESSION_NAME};
use tweed_netlink::nf::verdict::Verdict;

/// The register of verdicts: `NFT_REG_VERDICT`.
const VERDICT: u32 = 0;
/// A rule on its way through its expressions.
struct Judge<'a, S> {
    probe: &'a Probe,
    /// Reads the sets of its table.
    sets: &'a mut S,
    registers: Registers,
    /// Whether it asks for anything of conntrack's that is not known.
    asks_flow: bool,
    certain: bool,
    /// What it does; several where a map decides.
    steps: Vec<Step<String>>,
}

/// What the rule with these expressions does with the probe, if it meets or may meet
/// the rule: with a map of verdicts one rule for each.
///
/// `sets` gives the elements of a set; none if it has some of a kind that is not known.
pub(super) fn judge<E>(
    expressions: &[u8],
    probe: &Probe,
    sets: &mut impl FnMut(&str) -> Result<Option<Elements>, E>,
) -> Result<Vec<Rule<String>>, E> {
    let mut rule = Judge {
        probe,
        sets,
        registers: Registers::default(),
        asks_flow: false,
        certain: true,
        steps: Vec::new(),
    };
    for (_, expression) in each(expressions) {
        let name = find(expression, EXPRESSION_NAME).and_then(text);
        let data = find(expression, EXPRESSION_DATA).unwrap_or_default();
        if !rule.follow(name.unwrap_or_default(), data)? {
            return Ok(Vec::new());
        }
    }
    Ok(rule.ended())
}

impl<E, S: FnMut(&str) -> Result<Option<Elements>, E>> Judge<'_, S> {
    fn ended(self) -> Vec<Rule<String>> {
        // What is asked of a flow that was open before is not meant for one that opens one; but
        // what others have marked a flow for may be not to translate it.
        let is_for_flow = !self.asks_flow || self.probe.is_of_pods();
        let counts = self.certain || (self.probe.may_be_meant && is_for_flow);
        // What a rule asks of the flow besides its state and direction may be met or not.
        let certain = self.certain && !self.asks_flow;
        let steps = self.steps.into_iter().filter(|_| counts);
        steps.map(|step| Rule { step, certain }).collect()
    }

    /// Whether the packet may get past this expression.
    fn follow(&mut self, name: &str, data: &[u8]) -> Result<bool, E> {
        const DESTINATION: u16 = 1;
        let met = match name {
            "meta" | "ct" | "payload" | "fib" | "rt" | "socket" | "hash" | "numgen" | "exthdr"
            | "osf" | "tunnel" | "xfrm" => {
                // Without a destination it changes the packet or its entry.
                let Some(register) = find(data, DESTINATION).and_then(number) else {
                    return Ok(true);
                };
                let Some(value) = load(name, data, self.probe) else {
                    return Ok(false);
                };
                self.asks_flow |= matches!(value, Value::Flow);
                self.registers.set(register, value);
                Some(true)
            }
            "bitwise" | "byteorder" => {
                self.convert(name, data);
                Some(true)
            }
            "cmp" => self.compare(data),
            "range" => self.is_in_range(data),
            "lookup" => return self.look_up(data),
            "match" => extension_of(data)
                .and_then(|(name, structure)| extension::meets(name, structure, self.probe)),
            "target" => {
                let name = extension_of(data).map(|(name, _)| name);
                self.steps.extend(name.and_then(extension::verdict));
                Some(true)
            }
            "reject" => {
                self.steps = vec![Step::End(Outcome::Dropped)];
                Some(true)
            }
            "immediate" => {
                self.immediate(data);
                Some(true)
            }
            "masq" | "nat" => {
                self.steps = vec![Step::End(Outcome::Rewritten)];
                Some(true)
            }
            // As the target NFQUEUE.
            "queue" => {
                self.steps = vec![Step::End(Outcome::Accepted)];
                Some(true)
            }
            "counter" | "log" | "last" | "notrack" | "dup" => Some(true),
            "objref" => passes_object(data).then_some(true),
            _ => None,
        };
        self.certain &= met.is_some();
        Ok(met != Some(false))
    }

    fn register(&self, data: &[u8], kind: u16) -> Value {
        let register = find(data, kind).and_then(number);
        register.map_or(Value::Unknown, |register| self.registers.get(register))
    }

    /// Bits that are masked out, or bytes that are put into another order.
    fn convert(&mut self, name: &str, data: &[u8]) {
        const SOURCE: u16 = 1;
        const DESTINATION: u16 = 2;
        let value = match self.register(data, SOURCE) {
            Value::Flow => Value::Flow,
            Value::Known(bytes) if name == "bitwise" => match masked(data, &bytes) {
                Some(bytes) => Value::Known(bytes),
                None => Value::Unknown,
            },
            _ => Value::Unknown,
        };
        if let Some(register) = find(data, DESTINATION).and_then(number) {
            self.registers.set(register, value);
        }
    }

    /// Whether a `cmp` holds; none if unknown. A name with a wildcard is compared up
    /// to the wildcard.
    fn compare(&self, data: &[u8]) -> Option<bool> {
        const SOURCE: u16 = 1;
        const OPERATOR: u16 = 2;
        const DATA: u16 = 3;
        const EQUAL: u32 = 0;
        const NOT_EQUAL: u32 = 1;
        let value = constant(data, DATA)?;
        let operator = find(data, OPERATOR).and_then(number)?;
        match self.register(data, SOURCE) {
            Value::Known(known) => {
                let order = known.get(..value.len())?.cmp(value);
                match operator {
                    EQUAL => Some(order.is_eq()),
                    NOT_EQUAL => Some(order.is_ne()),
                    // NFT_CMP_LT, _LTE, _GT, _GTE
                    2 => Some(order.is_lt()),
                    3 => Some(order.is_le()),
                    4 => Some(order.is_gt()),
                    5 => Some(order.is_ge()),
                    _ => None,
                }
            }
            Value::Not(is_not) if is_not(value) => match operator {
                EQUAL => Some(false),
                NOT_EQUAL => Some(true),
                _ => None,
            },
            Value::Partly(bytes) => {
                let mut pairs = bytes.iter().zip(value);
                let differs = pairs.any(|(byte, value)| byte.is_some_and(|byte| byte != *value));
                match operator {
                    EQUAL if differs => Some(false),
                    NOT_EQUAL if differs => Some(true),
                    _ => None,
                }
            }
            Value::Flow if self.probe.state == State::Established => Some(true),
            _ => None,
        }
    }

    /// `NFTA_RANGE_…`.
    fn is_in_range(&self, data: &[u8]) -> Option<bool> {
        const SOURCE: u16 = 1;
        const OPERATOR: u16 = 2;
        const FROM: u16 = 3;
        const TO: u16 = 4;
        const OUTSIDE: u32 = 1;
        let Value::Known(known) = self.register(data, SOURCE) else {
            return None;
        };
        let (from, to) = (constant(data, FROM)?, constant(data, TO)?);
        let is_inside = from <= known.as_slice() && known.as_slice() <= to;
        let wants_outside = find(data, OPERATOR).and_then(number)? == OUTSIDE;
        (known.len() == from.len()).then_some(is_inside != wants_outside)
    }

    /// `NFTA_LOOKUP_…`: a set that the value is or is not in, or a map.
    fn look_up(&mut self, data: &[u8]) -> Result<bool, E> {
        const SET: u16 = 1;
        const SOURCE: u16 = 2;
        const DESTINATION: u16 = 3;
        const FLAGS: u16 = 5;
        const INVERTED: u32 = 1;
        let value = self.register(data, SOURCE);
        let destination = find(data, DESTINATION).and_then(number);
        let is_flow = matches!(value, Value::Flow);
        let name = find(data, SET).and_then(text).unwrap_or_default();
        // A set with a name changes by itself, which would have to be watched.
        let elements = if name.starts_with("__") && !is_flow {
            (self.sets)(name)?
        } else {
            None
        };
        let Some(elements) = elements else {
            // What is asked of an open flow is meant for the answers to pods.
            self.certain &= is_flow && self.probe.state == State::Established;
            match destination {
                Some(VERDICT) => self.steps = vec![Step::End(Outcome::Accepted)],
                Some(register) => {
                    self.registers.set(register, Value::Unknown);
                }
                None => {}
            }
            return Ok(true);
        };
        // Several values one behind the other, where keys are longer than one.
        let source = find(data, SOURCE).and_then(number);
        let joined = source.and_then(|source| self.registers.joined(source, elements.length()?));
        let value = joined.unwrap_or(value);
        if destination == Some(VERDICT) {
            let possible = elements.possible(&value);
            let steps = possible.filter_map(|one| one.verdict.clone().map(step));
            self.steps = steps.collect();
            self.certain &= elements.decide(&value);
            return Ok(!self.steps.is_empty());
        }
        if let Some(register) = destination {
            self.registers.set(register, Value::Unknown);
        }
        // Only of a set it may be asked that the value is not in it.
        let inverted = find(data, FLAGS).and_then(number) == Some(INVERTED);
        let contained = elements.contains(&value);
        self.certain &= contained.is_some();
        Ok(contained.is_none_or(|contained| contained != inverted))
    }

    /// `NFTA_IMMEDIATE_…`: a verdict, or a value.
    fn immediate(&mut self, data: &[u8]) {
        const DESTINATION: u16 = 1;
        const DATA: u16 = 2;
        match find(data, DESTINATION).and_then(number) {
            Some(VERDICT) => {
                let verdict = find(data, DATA).and_then(Verdict::read);
                self.steps = verdict.map(step).into_iter().collect();
            }
            Some(register) => {
                let value = constant(data, DATA)
                    .map_or(Value::Unknown, |bytes| Value::Known(bytes.to_vec()));
                self.registers.set(register, value);
            }
            None => {}
        }
    }
}

fn step(verdict: Verdict) -> Step<String> {
    match verdict {
        Verdict::Accept => Step::End(Outcome::Accepted),
        Verdict::Drop => Step::End(Outcome::Dropped),
        Verdict::Return => Step::End(Outcome::Returned),
        Verdict::Jump(chain) => Step::Jump(chain),
        Verdict::Goto(chain) => Step::Goto(chain),
    }
}

/// Whether every packet gets past an object with a name, `NFTA_OBJREF_…`. A quota or a
/// limit lets some past, a `synproxy` only TCP, and an expectation only packets that open
/// a flow; in a map there may be no object for the packet.
fn passes_object(data: &[u8]) -> bool {
    const TYPE: u16 = 1;
    // NFT_OBJECT_COUNTER, _CT_HELPER, _TUNNEL, _CT_TIMEOUT, _SECMARK
    const PASSING: [u32; 5] = [1, 3, 6, 7, 8];
    let kind = find(data, TYPE).and_then(number);
    kind.is_some_and(|kind| PASSING.contains(&kind))
}

/// What `NFTA_BITWISE_MASK` and `_XOR` make of a value; none if it is another operation.
fn masked(data: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    const MASK: u16 = 4;
    const XOR: u16 = 5;
    const OPERATION: u16 = 6;
    let is_plain = find(data, OPERATION)
        .and_then(number)
        .is_none_or(|kind| kind == 0);
    let (mask, xor) = (constant(data, MASK)?, constant(data, XOR)?);
    let is_whole = is_plain && mask.len() == bytes.len() && xor.len() == bytes.len();
    let bits = bytes.iter().zip(mask).zip(xor);
    is_whole.then(|| {
        bits.map(|((byte, mask), xor)| (byte & mask) ^ xor)
            .collect()
    })
}

/// `NFTA_DATA_VALUE` within an attribute.
fn constant(data: &[u8], kind: u16) -> Option<&[u8]> {
    const VALUE: u16 = 1;
    find(find(data, kind)?, VALUE)
}

/// Name and structure of an extension of iptables: `NFTA_MATCH_…`, `NFTA_TARGET_…`.
fn extension_of(data: &[u8]) -> Option<(&str, &[u8])> {
    const NAME: u16 = 1;
    const STRUCTURE: u16 = 3;
    let name = find(data, NAME).and_then(text)?;
    Some((name, find(data, STRUCTURE).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tweed_netlink::nf::attributes::Attributes;

    use super::*;

    /// What a rule of this expression alone does with a packet from a pod.
    fn judged(name: &str, data: &Attributes) -> Vec<Rule<String>> {
        let expression = Attributes::new()
            .text(EXPRESSION_NAME, name)
            .nested(EXPRESSION_DATA, data);
        let expressions = Attributes::new().nested(1, &expression);
        let mut no_sets = |_: &str| Ok::<_, Infallible>(None);
        let Ok(rules) = judge(expressions.as_bytes(), &Probe::default(), &mut no_sets);
        rules
    }

    /// Not every kernel that the tests run on has the expression `queue`.
    #[test]
    fn a_program_that_decides_may_accept_all() {
        let accepts = [Rule {
            step: Step::End(Outcome::Accepted),
            certain: true,
        }];
        assert_eq!(judged("queue", &Attributes::new()), accepts);
        let target = |name| Attributes::new().text(1, name);
        assert_eq!(judged("target", &target("NFQUEUE")), accepts);
        assert_eq!(judged("target", &target("LOG")), []);
    }
}
