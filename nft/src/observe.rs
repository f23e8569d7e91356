//! What the kernel holds of the table, read by netlink: a digest of everything
//! that the skeleton decides, and the sets' elements.
//!
//! The digest takes only attributes that mean something (names, hooks,
//! expressions, comments), by their numbers: handles, counters and what later
//! kernels add do not change it. Chains are asked for by name, because the
//! kernel can dump only those of all tables together; that there are no others
//! is known from the table's use count.

use sha2::{Digest, Sha256};

use crate::elements::{self, LIST_ELEMENTS};
use crate::error::Error;
use crate::sets::{Contents, FAMILIES, SETS};
use crate::skeleton::TABLE;
use crate::socket::{Object, Query, Requests};
use crate::wire::{self, Attributes};

/// The table's name in netlink messages.
pub(super) const NAME: &str = "tweed";

const GET_TABLE: u8 = 1;
const GET_CHAIN: u8 = 4;
const GET_RULE: u8 = 7;
const GET_SET: u8 = 10;
const GET_ELEMENTS: u8 = 13;

/// The table's name is the first attribute of every kind of object:
/// `NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE`, `NFTA_RULE_TABLE`, …
pub(super) const TABLE_NAME: u16 = 1;
/// `NFTA_CHAIN_NAME`.
pub(super) const CHAIN_NAME: u16 = 3;
/// `NFTA_SET_NAME` and `NFTA_SET_ELEM_LIST_SET`.
const SET_NAME: u16 = 2;
/// `NFTA_RULE_CHAIN`.
pub(super) const RULE_CHAIN: u16 = 2;
/// `NFTA_RULE_EXPRESSIONS`.
pub(super) const RULE_EXPRESSIONS: u16 = 4;
/// `NFTA_RULE_USERDATA`: the comment.
const RULE_USERDATA: u16 = 7;
/// `NFTA_EXPR_NAME`.
pub(super) const EXPRESSION_NAME: u16 = 1;
/// `NFTA_EXPR_DATA`.
pub(super) const EXPRESSION_DATA: u16 = 2;

/// Name, flags, use count, comment, owner.
const TABLE_ATTRIBUTES: &[u16] = &[1, 2, 3, 6, 7];
/// Name, hook, policy, type, flags, comment.
const CHAIN_ATTRIBUTES: &[u16] = &[3, 4, 5, 7, 10, 12];
/// Name, flags, types and lengths of key and data, policy, description,
/// timeout, interval, comment, type of objects, expressions.
const SET_ATTRIBUTES: &[u16] = &[2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 17, 18];

/// The table as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observation {
    /// SHA-256 over everything but the elements, as hex digits.
    pub(super) digest: String,
    /// What the sets hold.
    pub(super) contents: Contents,
}

/// The table alone; none if there is none.
pub(super) fn table(requests: &mut Requests) -> Result<Option<Object>, Error> {
    requests.get(&query(GET_TABLE, Attributes::new(), TABLE))
}

/// Looks at the table; `chains` are the names that the skeleton gives. None if
/// there is no table.
pub(super) fn observe(
    requests: &mut Requests,
    chains: impl Iterator<Item = &'static str>,
) -> Result<Option<Observation>, Error> {
    let Some(table) = table(requests)? else {
        return Ok(None);
    };
    let mut digest = Canonical::default();
    digest.object(&table.attributes, TABLE_ATTRIBUTES);
    for name in chains {
        let key = Attributes::new().text(CHAIN_NAME, name);
        match requests.get(&query(GET_CHAIN, key, name))? {
            Some(chain) => digest.object(&chain.attributes, CHAIN_ATTRIBUTES),
            None => digest.field(0, b"no such chain"),
        }
    }
    for rule in requests.dump(&query(
        GET_RULE,
        Attributes::new(),
        "the rules of inet tweed",
    ))? {
        digest.rule(&rule.attributes);
    }
    let mut sets = requests.dump(&query(GET_SET, Attributes::new(), "the sets of inet tweed"))?;
    sets.sort_by(|a, b| {
        wire::attribute(&a.attributes, SET_NAME).cmp(&wire::attribute(&b.attributes, SET_NAME))
    });
    for set in &sets {
        digest.object(&set.attributes, SET_ATTRIBUTES);
    }
    let mut contents = Contents::new();
    for kind in &SETS {
        for family in FAMILIES {
            let name = kind.of(family);
            let key = Attributes::new().text(SET_NAME, &name);
            let dump = requests.dump(&query(GET_ELEMENTS, key, &name))?;
            let lists = dump
                .iter()
                .filter_map(|part| wire::attribute(&part.attributes, LIST_ELEMENTS));
            let decoded = elements::decode(lists, kind.interval);
            if !decoded.strange.is_empty() {
                digest.field(0, &decoded.strange);
            }
            contents.insert(name, decoded.elements);
        }
    }
    Ok(Some(Observation {
        digest: digest.finish(),
        contents,
    }))
}

/// How many transactions the namespace's nf_tables has seen, modulo 2³².
pub(super) fn generation(requests: &mut Requests) -> Result<Option<u32>, Error> {
    const GET_GENERATION: u8 = 16;
    /// `NFTA_GEN_ID`.
    const ID: u16 = 1;
    let query = Query {
        message: GET_GENERATION,
        family: wire::FAMILY_ANY,
        attributes: Attributes::new(),
        object: "the ruleset's generation",
    };
    let answer = requests.get(&query)?;
    Ok(answer.and_then(|answer| wire::attribute(&answer.attributes, ID).and_then(wire::number)))
}

fn query<'a>(message: u8, key: Attributes, object: &'a str) -> Query<'a> {
    Query {
        message,
        family: wire::FAMILY_INET,
        attributes: key.text(TABLE_NAME, NAME),
        object,
    }
}

/// Bytes that are equal if and only if the objects are: each field with its
/// number and its length before it.
#[derive(Default)]
struct Canonical(Sha256);

impl Canonical {
    fn field(&mut self, kind: u16, payload: &[u8]) {
        self.0.update(kind.to_be_bytes());
        self.0.update(payload.len().to_be_bytes());
        self.0.update(payload);
    }

    fn object(&mut self, attributes: &[u8], wanted: &[u16]) {
        for (kind, payload) in wire::attributes(attributes).unwrap_or_default() {
            if wanted.contains(&kind) {
                self.field(kind, payload);
            }
        }
        self.field(u16::MAX, &[]);
    }

    fn rule(&mut self, attributes: &[u8]) {
        self.object(attributes, &[RULE_CHAIN, RULE_USERDATA]);
        let expressions = wire::attribute(attributes, RULE_EXPRESSIONS).unwrap_or_default();
        for (_, expression) in wire::attributes(expressions).unwrap_or_default() {
            // A counter's data is what it has counted.
            let counter = wire::attribute(expression, EXPRESSION_NAME).and_then(wire::text)
                == Some("counter");
            let wanted: &[u16] = if counter {
                &[EXPRESSION_NAME]
            } else {
                &[EXPRESSION_NAME, EXPRESSION_DATA]
            };
            self.object(expression, wanted);
        }
        self.field(u16::MAX, &[]);
    }

    fn finish(self) -> String {
        self.0
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}
