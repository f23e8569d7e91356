//! A ruleset from any bytes: each is a choice among chains, expressions and values that
//! real rules have.

use tweed_netlink::nf::attributes::Attributes;
use tweed_netlink::nf::element::{DATA, FLAGS, INTERVAL_END, ITEM, KEY, VALUE};
use tweed_netlink::nf::object::{
    CHAIN_NAME, CHAIN_POLICY, ELEMENTS, EXPRESSION_DATA, EXPRESSION_NAME, NEW_CHAIN, NEW_ELEMENTS,
    NEW_RULE, RULE_CHAIN, RULE_EXPRESSIONS, SET_NAME, TableKey,
};
use tweed_netlink::nf::verdict::Verdict;
use tweed_netlink::nf::{FAMILY_INET, Message};

/// `NFTA_CHAIN_HOOK`, `NFTA_HOOK_HOOKNUM`.
const HOOK: u16 = 4;
const HOOK_NUMBER: u16 = 1;
/// The chains at hooks, by the numbers of the hooks, then others.
const CHAINS: [&str; 8] = ["input", "forward", "output", "a", "b", "c", "d", "e"];
const HOOKS: [(&str, u32); 3] = [("input", 1), ("forward", 2), ("output", 3)];
const SETS: [&str; 3] = ["__set0", "__map1", "named"];
const EXPRESSIONS: [&str; 16] = [
    "meta",
    "ct",
    "payload",
    "fib",
    "cmp",
    "range",
    "lookup",
    "immediate",
    "bitwise",
    "counter",
    "reject",
    "queue",
    "match",
    "target",
    "byteorder",
    "other",
];
/// Values that are known of some packet, and some that are not.
const VALUES: [&[u8]; 8] = [
    b"tw------------\0\0",
    b"eth0\0",
    b"tw",
    &[17],
    &[0x21, 0x18],
    &[0, 22],
    &[64, 0, 0, 0],
    &[0, 0, 0, 0],
];

/// The chains, rules and elements that these bytes choose.
pub(super) fn ruleset(program: &[u8]) -> Vec<Message> {
    let mut bytes = program.iter().copied();
    let table = TableKey {
        family: FAMILY_INET,
        name: "filter",
    };
    let policy = bytes.next().unwrap_or_default();
    let mut messages: Vec<Message> = HOOKS
        .iter()
        .map(|(name, number)| {
            let hook = Attributes::new().number(HOOK_NUMBER, *number);
            let chain = Attributes::new().text(CHAIN_NAME, name).nested(HOOK, &hook);
            let policy = u32::from(policy >> number & 1);
            table.message(NEW_CHAIN, chain.number(CHAIN_POLICY, policy))
        })
        .collect();
    while let Some(first) = bytes.next() {
        messages.push(match first % 8 {
            0 => table.message(NEW_ELEMENTS, elements(first, &mut bytes)),
            chain => table.message(NEW_RULE, rule(usize::from(chain), &mut bytes)),
        });
    }
    messages
}

fn rule(chain: usize, bytes: &mut impl Iterator<Item = u8>) -> Attributes {
    let mut expressions = Attributes::new();
    let count = bytes.next().unwrap_or_default() % 4 + 1;
    for _ in 0..count {
        let name = EXPRESSIONS[usize::from(bytes.next().unwrap_or_default()) % EXPRESSIONS.len()];
        let data = match name {
            "match" | "target" => extension(bytes),
            "immediate" => {
                let data = verdict(bytes.next().unwrap_or_default()).write();
                Attributes::new().number(1, 0).nested(2, &data)
            }
            "lookup" => {
                let set = SETS[usize::from(bytes.next().unwrap_or_default()) % SETS.len()];
                numbered(Attributes::new().text(1, set), 2, bytes)
            }
            "cmp" | "range" | "bitwise" => {
                let attributes = numbered(Attributes::new(), 1, bytes);
                let data = Attributes::new().bytes(VALUE, value(bytes));
                let other = Attributes::new().bytes(VALUE, value(bytes));
                attributes
                    .nested(3, &data)
                    .nested(4, &other)
                    .nested(5, &data)
            }
            _ => numbered(Attributes::new(), 1, bytes),
        };
        let expression = Attributes::new().text(EXPRESSION_NAME, name);
        expressions = expressions.nested(ITEM, &expression.nested(EXPRESSION_DATA, &data));
    }
    let rule = Attributes::new().text(RULE_CHAIN, CHAINS[chain]);
    rule.nested(RULE_EXPRESSIONS, &expressions)
}

/// Small numbers as the attributes from `first` on that an expression may have.
fn numbered(
    mut attributes: Attributes,
    first: u16,
    bytes: &mut impl Iterator<Item = u8>,
) -> Attributes {
    let count = bytes.next().unwrap_or_default() % 4;
    for kind in first..first + u16::from(count) {
        let number = u32::from(bytes.next().unwrap_or_default());
        attributes = attributes.number(kind, number);
    }
    attributes
}

/// A match or a target of iptables.
fn extension(bytes: &mut impl Iterator<Item = u8>) -> Attributes {
    const NAMES: [&str; 6] = ["comment", "conntrack", "state", "udp", "addrtype", "REJECT"];
    let name = NAMES[usize::from(bytes.next().unwrap_or_default()) % NAMES.len()];
    let length = usize::from(bytes.next().unwrap_or_default());
    let structure: Vec<u8> = bytes.take(length).collect();
    Attributes::new().text(1, name).bytes(3, &structure)
}

fn value(bytes: &mut impl Iterator<Item = u8>) -> &'static [u8] {
    VALUES[usize::from(bytes.next().unwrap_or_default()) % VALUES.len()]
}

fn verdict(byte: u8) -> Verdict {
    let chain = CHAINS[usize::from(byte >> 4) % CHAINS.len()].to_owned();
    match byte % 5 {
        0 => Verdict::Accept,
        1 => Verdict::Drop,
        2 => Verdict::Return,
        3 => Verdict::Jump(chain),
        _ => Verdict::Goto(chain),
    }
}

fn elements(first: u8, bytes: &mut impl Iterator<Item = u8>) -> Attributes {
    let set = SETS[usize::from(first / 8) % SETS.len()];
    let mut list = Attributes::new();
    let count = bytes.next().unwrap_or_default() % 8;
    for _ in 0..count {
        let kind = bytes.next().unwrap_or_default();
        let key = Attributes::new().bytes(VALUE, value(bytes));
        let mut element = Attributes::new().nested(KEY, &key);
        if kind & 1 != 0 {
            element = element.nested(DATA, &verdict(bytes.next().unwrap_or_default()).write());
        }
        if kind & 2 != 0 {
            element = element.number(FLAGS, INTERVAL_END);
        }
        list = list.nested(ITEM, &element);
    }
    Attributes::new()
        .text(SET_NAME, set)
        .nested(ELEMENTS, &list)
}
