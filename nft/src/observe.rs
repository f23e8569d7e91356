//! What the kernel holds of a table, read by netlink: a digest of everything that
//! the skeleton decides, and the elements of sets and maps.
//!
//! The digest takes only attributes that mean something (names, hooks,
//! expressions, comments), by their numbers: handles, counters and what later
//! kernels add do not change it. Chains are asked for by name, because the
//! kernel can dump only those of all tables together; that there are no others
//! is known from the table's use count.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use tweed_core::text::hex;
use tweed_netlink::Error;
use tweed_netlink::nf::attributes::{each, find, text};
use tweed_netlink::nf::object::{
    ELEMENTS, EXPRESSION_DATA, EXPRESSION_NAME, RULE_CHAIN, RULE_EXPRESSIONS, RULE_USERDATA,
    SET_NAME, TableKey,
};
use tweed_netlink::nf::{Message, Socket};

use crate::codec::{self, Decoded};
use crate::element::{Change, Contents, Data, Elements, Key};
use crate::table::{KeptBy, Set, Skeleton};

/// Name, flags, use count, comment, owner.
const TABLE_ATTRIBUTES: &[u16] = &[1, 2, 3, 6, 7];
/// Name, hook, policy, type, flags, comment.
const CHAIN_ATTRIBUTES: &[u16] = &[3, 4, 5, 7, 10, 12];
/// The name of the set: `NFTA_LOOKUP_SET` of `linux/netfilter/nf_tables.h`.
const LOOKUP_SET: u16 = 1;
/// Name, flags, types and lengths of key and data, policy, description,
/// timeout, interval, comment, type of objects, expressions.
const SET_ATTRIBUTES: &[u16] = &[2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 17, 18];

/// The table as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observation {
    /// SHA-256 over everything but the elements, as hex digits.
    pub(super) digest: String,
    /// A digest of each set and map by itself, without its elements.
    pub(super) sets: BTreeMap<String, String>,
    /// Whether a set has elements that tweed never writes.
    pub(super) has_foreign: bool,
    /// What makes the sets and maps of the keeper hold what is desired.
    pub(super) needed: Vec<Change>,
}

/// Looks at the table of this skeleton, and compares what its sets and maps hold with what is
/// desired. None if there is no table.
pub(super) fn observe(
    socket: &mut Socket,
    skeleton: &Skeleton,
    desired: &Contents,
) -> Result<Option<Observation>, Error> {
    let key = skeleton.table;
    let Some(table) = key.get(socket)? else {
        return Ok(None);
    };
    let chains = skeleton.chains.iter().map(|chain| &*chain.name);
    let (mut digest, sets) = objects(socket, key, &table, chains)?;
    let sets = digests(&sets);
    let mut needed = Vec::new();
    let mut has_foreign = false;
    // One set after the other: with thousands of Nodes all elements at once take mebibytes.
    for set in kept(skeleton) {
        let decoded = decoded(socket, key, set)?;
        if !decoded.foreign.is_empty() {
            digest.field(0, &decoded.foreign);
            has_foreign = true;
        }
        if let Some(desired) = desired.get(&set.name) {
            needed.extend(Change::between(&set.name, &decoded.elements, desired));
        }
    }
    Ok(Some(Observation {
        digest: digest.finish(),
        sets,
        has_foreign,
        needed,
    }))
}

/// What the sets and maps of the keeper hold.
pub(super) fn contents(socket: &mut Socket, skeleton: &Skeleton) -> Result<Contents, Error> {
    let read = |set: &Set| {
        let decoded = decoded(socket, skeleton.table, set)?;
        Ok((set.name.clone(), decoded.elements))
    };
    kept(skeleton).map(read).collect()
}

/// The sets of which the keeper has a copy.
fn kept(skeleton: &Skeleton) -> impl Iterator<Item = &Set> {
    let sets = skeleton.sets.iter();
    sets.filter(|set| set.kept_by == KeptBy::Keeper)
}

/// The digest of the table as [`observe`] takes it with a skeleton that has these chains, if
/// all elements are such as tweed writes. None if there is no table.
pub(super) fn digest<'a>(
    socket: &mut Socket,
    key: TableKey<'_>,
    chains: impl Iterator<Item = &'a str>,
) -> Result<Option<String>, Error> {
    let Some(table) = key.get(socket)? else {
        return Ok(None);
    };
    Ok(Some(objects(socket, key, &table, chains)?.0.finish()))
}

/// Takes the digest of everything but elements, and gives the sets too.
fn objects<'a>(
    socket: &mut Socket,
    key: TableKey<'_>,
    table: &Message,
    chains: impl Iterator<Item = &'a str>,
) -> Result<(Canonical, Vec<Message>), Error> {
    let mut digest = Canonical::default();
    digest.object(table.attributes.as_bytes(), TABLE_ATTRIBUTES);
    for chain in chains {
        match key.chain(socket, chain)? {
            Some(chain) => digest.object(chain.attributes.as_bytes(), CHAIN_ATTRIBUTES),
            None => digest.field(0, b"no such chain"),
        }
    }
    for rule in key.rules(socket, None)? {
        digest.rule(&rule);
    }
    let (mut sets, unnamed): (Vec<Message>, Vec<Message>) = (key.sets(socket)?.into_iter())
        .partition(|set| !set.text(SET_NAME).is_some_and(is_numbered));
    sets.sort_by(|a, b| a.attribute(SET_NAME).cmp(&b.attribute(SET_NAME)));
    for set in &sets {
        digest.object(set.attributes.as_bytes(), SET_ATTRIBUTES);
    }
    let mut unnamed: Vec<String> = unnamed.iter().map(of_unnamed).collect();
    unnamed.sort();
    for set in unnamed {
        digest.field(0, set.as_bytes());
    }
    Ok((digest, sets))
}

/// Whether the kernel has made the name of a set without one, out of a number that differs
/// with the order in which rules were made.
fn is_numbered(name: &str) -> bool {
    name.starts_with("__")
}

fn of_unnamed(set: &Message) -> String {
    let mut digest = Canonical::default();
    digest.object(set.attributes.as_bytes(), &SET_ATTRIBUTES[1..]);
    digest.finish()
}

/// A digest of each of these sets by itself, by name.
pub(super) fn digests(sets: &[Message]) -> BTreeMap<String, String> {
    let digest = |set: &Message| {
        let name = set.text(SET_NAME)?.to_owned();
        let mut digest = Canonical::default();
        digest.object(set.attributes.as_bytes(), SET_ATTRIBUTES);
        Some((name, digest.finish()))
    };
    sets.iter().filter_map(digest).collect()
}

/// Reads the elements of one set.
fn decoded(socket: &mut Socket, table: TableKey<'_>, set: &Set) -> Result<Decoded, Error> {
    let dump = table.elements(socket, &set.name)?;
    let lists = dump.iter().filter_map(|part| part.attribute(ELEMENTS));
    Ok(codec::decode(set, lists))
}

/// The elements of one set. None if some are not such as tweed writes: then only
/// a new set helps.
pub(super) fn elements(
    socket: &mut Socket,
    table: TableKey<'_>,
    set: &Set,
) -> Result<Option<Elements>, Error> {
    let decoded = decoded(socket, table, set)?;
    Ok(decoded.foreign.is_empty().then_some(decoded.elements))
}

/// Reads one element of a set without intervals, with a map's data; none if there is no
/// such element or no such set.
pub(super) fn element(
    socket: &mut Socket,
    table: TableKey<'_>,
    set: &Set,
    key: &Key,
) -> Result<Option<Option<Box<Data>>>, Error> {
    let answer = table.element(socket, &set.name, &codec::wanted(set, key))?;
    let list = answer.as_ref().and_then(|part| part.attribute(ELEMENTS));
    let mut decoded = codec::decode(set, list.into_iter());
    Ok(decoded.elements.remove(key))
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
        for (kind, payload) in each(attributes) {
            if wanted.contains(&kind) {
                self.field(kind, payload);
            }
        }
        self.field(u16::MAX, &[]);
    }

    fn rule(&mut self, rule: &Message) {
        self.object(rule.attributes.as_bytes(), &[RULE_CHAIN, RULE_USERDATA]);
        let expressions = rule.attribute(RULE_EXPRESSIONS).unwrap_or_default();
        for (_, expression) in each(expressions) {
            let name = find(expression, EXPRESSION_NAME).and_then(text);
            let wanted: &[u16] = match name {
                // A counter's data is what it has counted, that of a lookup is taken below.
                Some("counter" | "lookup") => &[EXPRESSION_NAME],
                _ => &[EXPRESSION_NAME, EXPRESSION_DATA],
            };
            self.object(expression, wanted);
            if name == Some("lookup") {
                self.lookup(find(expression, EXPRESSION_DATA).unwrap_or_default());
            }
        }
        self.field(u16::MAX, &[]);
    }

    fn lookup(&mut self, data: &[u8]) {
        for (kind, payload) in each(data) {
            match (kind, text(payload)) {
                (LOOKUP_SET, Some(name)) if is_numbered(name) => self.field(kind, b"unnamed"),
                _ => self.field(kind, payload),
            }
        }
        self.field(u16::MAX, &[]);
    }

    fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}
