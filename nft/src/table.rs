//! A table without its elements, as data and as the text that `nft -f` reads. Pure.
//!
//! The table's comment carries a version: a format number and a hash of the text.
//! Equal versions mean equal rules.

use std::borrow::Cow;
use std::collections::BTreeSet;

use sha2::{Digest, Sha256};
use tweed_core::text::hex;
use tweed_netlink::nf::object::TableKey;

use crate::element::{Contents, Data, Element, Key};
use crate::provider::Provider;
use crate::value::Type;

/// What a map gives for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataType {
    /// A verdict.
    Verdict,
    /// A value, or several that are concatenated.
    Values(Vec<Type>),
}

/// Who keeps the elements of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptBy {
    /// The table's [`Keeper`](crate::keeper::Keeper), which has a copy of what they should be.
    Keeper,
    /// A [`Provider`](crate::provider::Provider) says what they should be, and there is no
    /// copy: for sets with very many elements. Those of a table are written, and known to be
    /// as they should, together.
    Provider,
    /// The rules: packets add elements, which end by themselves after a time. Nobody else
    /// writes or reads them.
    Packets {
        /// How many there can be at most; the kernel wants to be told.
        size: u32,
    },
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
    /// Who keeps its elements.
    pub kept_by: KeptBy,
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

impl Hook {
    /// The number of the hook (`linux/netfilter.h`, `enum nf_inet_hooks`); that of no hook if it
    /// has another name.
    #[must_use]
    pub fn number(self) -> u32 {
        let names = ["prerouting", "input", "forward", "output", "postrouting"];
        (0..)
            .zip(names)
            .find(|(_, name)| *name == self.hook)
            .map_or(u32::MAX, |(number, _)| number)
    }
}

/// A chain and its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: Cow<'static, str>,
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
    /// The counters that rules name.
    pub counters: Vec<&'static str>,
    /// The chains.
    pub chains: Vec<Chain>,
}

impl Skeleton {
    /// A table of these sets and chains. `format` is the version of its meaning: it
    /// changes when the same text means something else, such as a set that is filled
    /// differently, or when the observation takes its digest otherwise.
    pub fn new(
        table: TableKey<'static>,
        format: u32,
        sets: Vec<Set>,
        counters: Vec<&'static str>,
        chains: Vec<Chain>,
    ) -> Self {
        let mut skeleton = Self {
            table,
            version: String::new(),
            sets,
            counters,
            chains,
        };
        let text = skeleton.body(&Contents::new(), None, &BTreeSet::new());
        skeleton.version = format!("{format}-{}", hash(&text));
        skeleton
    }

    /// What `nft -f` reads: the table with these elements in place of whatever
    /// table of that name there is, in one transaction. The first line makes
    /// the second one work where there is no table.
    ///
    /// The sets that are provided get what `provider` says, or nothing without one.
    pub fn script(&self, contents: &Contents, provider: Option<&dyn Provider>) -> String {
        let table = self.table;
        format!(
            "table {table}\ndelete table {table}\n{}",
            self.body(contents, provider, &BTreeSet::new())
        )
    }

    /// What `nft -f` reads, one text after the other, where there is no such table: the sets
    /// with these elements, and then the rules. In one transaction the kernel would show the
    /// elements of sets of ranges only some time after the rules.
    pub(super) fn scripts_from_nothing(
        &self,
        contents: &Contents,
        provider: Option<&dyn Provider>,
    ) -> [String; 2] {
        let bare = |chain: &Chain| Chain {
            rules: Vec::new(),
            ..chain.clone()
        };
        let bare = Self {
            chains: self.chains.iter().map(bare).collect(),
            ..self.clone()
        };
        let rules: String = self.chains.iter().map(Chain::text).collect();
        [
            bare.body(contents, provider, &BTreeSet::new()),
            format!("table {} {{{rules}}}\n", self.table),
        ]
    }

    /// What `nft -f` reads to replace the rules of all chains but those that `present` keeps,
    /// and keep its sets with their elements, in one transaction. All other sets begin with
    /// these elements.
    pub(super) fn script_around(
        &self,
        present: &Present,
        contents: &Contents,
        provider: Option<&dyn Provider>,
    ) -> String {
        let table = self.table;
        let mut text = String::new();
        let kept = &present.kept_chains;
        for chain in present.chains.iter().filter(|chain| !kept.contains(*chain)) {
            text += &format!("flush chain {table} {chain}\n");
        }
        // A chain cannot be deleted while an element leads to it. Older kernels release what
        // the elements of a deleted map lead to only at the end of the transaction.
        for Stale { name, .. } in present.stale_sets.iter().filter(|set| set.has_verdicts) {
            text += &format!("flush map {table} {name}\n");
        }
        for Stale { name, is_map, .. } in &present.stale_sets {
            let keyword = if *is_map { "map" } else { "set" };
            text += &format!("delete {keyword} {table} {name}\n");
        }
        for chain in &present.stale_chains {
            text += &format!("delete chain {table} {chain}\n");
        }
        for counter in &present.stale_counters {
            text += &format!("delete counter {table} {counter}\n");
        }
        let mut contents = contents.clone();
        contents.retain(|set, _| !present.sets.contains(set));
        let missing = provider.map(|provider| Missing { present, provider });
        let provider = missing.as_ref().map(|missing| missing as &dyn Provider);
        text + &self.body(&contents, provider, &present.kept_chains)
    }

    /// The table without the chains in `kept`.
    fn body(
        &self,
        contents: &Contents,
        provider: Option<&dyn Provider>,
        kept: &BTreeSet<String>,
    ) -> String {
        let Self { table, version, .. } = self;
        let mut text = format!("table {table} {{\n\tcomment \"{} {version}\"\n", table.name);
        for set in &self.sets {
            text += &set.text(contents, provider);
        }
        for counter in &self.counters {
            text += &format!("\n\tcounter {counter} {{\n\t}}\n");
        }
        for chain in self
            .chains
            .iter()
            .filter(|chain| !kept.contains(&*chain.name))
        {
            text += &chain.text();
        }
        text + "}\n"
    }
}

/// What there is of a table whose sets are to be kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Present {
    /// Sets and maps that are as the skeleton declares them.
    pub(super) sets: BTreeSet<String>,
    /// Sets and maps that the skeleton does not have, or whose elements are all replaced.
    pub(super) stale_sets: Vec<Stale>,
    /// All chains.
    pub(super) chains: Vec<String>,
    /// Chains whose rules are as the skeleton has them.
    pub(super) kept_chains: BTreeSet<String>,
    /// Chains that the skeleton does not have, or has at another place.
    pub(super) stale_chains: Vec<String>,
    /// Counters that the skeleton does not have.
    pub(super) stale_counters: Vec<String>,
}

/// A set or map that is deleted, and made again if the skeleton has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stale {
    /// Its name.
    pub(super) name: String,
    /// Whether it is a map.
    pub(super) is_map: bool,
    /// Whether its elements lead to chains.
    pub(super) has_verdicts: bool,
}

/// Provides the elements of the sets that are not there yet.
struct Missing<'a> {
    present: &'a Present,
    provider: &'a dyn Provider,
}

impl Provider for Missing<'_> {
    fn elements<'a>(&'a self, set: &str) -> Box<dyn Iterator<Item = Element> + 'a> {
        if self.present.sets.contains(set) {
            Box::new(std::iter::empty())
        } else {
            self.provider.elements(set)
        }
    }
}

impl Chain {
    /// A hash of its text.
    pub(super) fn version(&self) -> String {
        hash(&self.text())
    }

    fn text(&self) -> String {
        let mut text = format!("\n\tchain {} {{\n", self.name);
        if let Some(Hook {
            kind,
            hook,
            priority,
        }) = self.hook
        {
            text += &format!("\t\ttype {kind} hook {hook} priority {priority}; policy accept;\n");
        }
        for rule in &self.rules {
            text += &format!("\t\t{rule}\n");
        }
        text + "\t}\n"
    }
}

impl Set {
    /// Whether a provider says what it should hold.
    pub fn is_provided(&self) -> bool {
        self.kept_by == KeptBy::Provider
    }

    /// A hash of its declaration.
    pub(super) fn version(&self) -> String {
        hash(&self.text(&Contents::new(), None))
    }

    fn text(&self, contents: &Contents, provider: Option<&dyn Provider>) -> String {
        let keyword = if self.data.is_some() { "map" } else { "set" };
        let types = self.types();
        let mut text = format!("\n\t{keyword} {} {{\n\t\t{types}\n", self.name);
        if self.interval {
            text += "\t\tflags interval\n";
        }
        if let KeptBy::Packets { size } = self.kept_by {
            text += &format!("\t\tsize {size}\n\t\tflags dynamic,timeout\n");
        }
        let elements: Vec<String> = match provider.filter(|_| self.is_provided()) {
            Some(provider) => {
                let provided = provider.elements(&self.name);
                provided.map(|(key, data)| element((&key, &data))).collect()
            }
            None => {
                let elements = contents.get(&self.name).into_iter().flatten();
                elements.map(element).collect()
            }
        };
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

/// The first digits of a text's SHA-256.
fn hash(text: &str) -> String {
    hex(&Sha256::digest(text)[..6])
}

fn element((key, data): (&Key, &Option<Box<Data>>)) -> String {
    match data {
        None => key.to_string(),
        Some(data) => format!("{key} : {data}"),
    }
}
