//! A table without its elements, as data and as the text that `nft -f` reads. Pure.
//!
//! The table's comment carries a version: a format number and a hash of the text.
//! Equal versions mean equal rules.

use sha2::{Digest, Sha256};
use tweed_netlink::nf::object::TableKey;

use crate::element::{Contents, Data, Key};
use crate::value::Type;

/// What a map gives for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataType {
    /// A verdict.
    Verdict,
    /// A value, or several that are concatenated.
    Values(Vec<Type>),
}

/// A set, or a map if it has data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// The fields of a key; with more than one it is concatenated.
    pub key: Vec<Type>,
    /// What a map gives for a key.
    pub data: Option<DataType>,
    /// Whether fields are ranges of values rather than single ones.
    pub interval: bool,
}

/// Where a chain is entered by packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// `filter`, `nat`, `route`.
    pub kind: &'static str,
    /// `prerouting`, `forward`, …
    pub hook: &'static str,
    /// Its place among the chains at the same hook, lowest first.
    pub priority: i32,
}

/// A chain and its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: &'static str,
    /// None for a chain that is entered only from other chains.
    pub hook: Option<Hook>,
    /// Its rules as text, in their order.
    pub rules: Vec<String>,
}

/// A table without its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skeleton {
    /// Family and name.
    pub table: TableKey<'static>,
    /// Format and hash: `1-9f86d081884c`.
    pub version: String,
    /// The sets and maps.
    pub sets: Vec<Set>,
    /// The chains.
    pub chains: Vec<Chain>,
}

impl Skeleton {
    /// A table of these sets and chains. `format` is the version of its meaning: it
    /// changes when the same text means something else, such as a set that is filled
    /// differently, or when the observation takes its digest otherwise.
    #[must_use]
    pub fn new(table: TableKey<'static>, format: u32, sets: Vec<Set>, chains: Vec<Chain>) -> Self {
        let mut skeleton = Self {
            table,
            version: String::new(),
            sets,
            chains,
        };
        let text = skeleton.body(&Contents::new());
        let digest = Sha256::digest(text);
        let hash: String = digest.iter().take(6).map(hex).collect();
        skeleton.version = format!("{format}-{hash}");
        skeleton
    }

    /// What `nft -f` reads: the table with these elements in place of whatever
    /// table of that name there is, in one transaction. The first line makes
    /// the second one work where there is no table.
    #[must_use]
    pub fn script(&self, contents: &Contents) -> String {
        let table = self.table;
        format!(
            "table {table}\ndelete table {table}\n{}",
            self.body(contents)
        )
    }

    fn body(&self, contents: &Contents) -> String {
        let Self { table, version, .. } = self;
        let mut text = format!("table {table} {{\n\tcomment \"{} {version}\"\n", table.name);
        for set in &self.sets {
            text += &set.text(contents);
        }
        for chain in &self.chains {
            text += &format!("\n\tchain {} {{\n", chain.name);
            if let Some(Hook {
                kind,
                hook,
                priority,
            }) = chain.hook
            {
                text +=
                    &format!("\t\ttype {kind} hook {hook} priority {priority}; policy accept;\n");
            }
            for rule in &chain.rules {
                text += &format!("\t\t{rule}\n");
            }
            text += "\t}\n";
        }
        text + "}\n"
    }
}

impl Set {
    fn text(&self, contents: &Contents) -> String {
        let keyword = if self.data.is_some() { "map" } else { "set" };
        let types = self.types();
        let mut text = format!("\n\t{keyword} {} {{\n\t\t{types}\n", self.name);
        if self.interval {
            text += "\t\tflags interval\n";
        }
        let elements = contents.get(&self.name).into_iter().flatten();
        let elements: Vec<String> = elements.map(element).collect();
        if !elements.is_empty() {
            text += &format!("\t\telements = {{ {} }}\n", elements.join(", "));
        }
        text + "\t}\n"
    }

    /// The types of key and data, always by expressions of them (`typeof`): Debian 12's
    /// nft 1.0.6 crashes over a set with `type` that nft 1.1 has made, whether it is to
    /// list, replace or delete its table.
    fn types(&self) -> String {
        let words = |types: &[Type]| {
            let expressions: Vec<_> = types.iter().map(|kind| kind.expression()).collect();
            expressions.join(" . ")
        };
        let data = match &self.data {
            None => String::new(),
            Some(DataType::Verdict) => " : verdict".to_owned(),
            Some(DataType::Values(types)) => format!(" : {}", words(types)),
        };
        format!("typeof {}{data}", words(&self.key))
    }
}

/// A byte as two hex digits.
pub(super) fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}

fn element((key, data): (&Key, &Option<Box<Data>>)) -> String {
    match data {
        None => key.to_string(),
        Some(data) => format!("{key} : {data}"),
    }
}
