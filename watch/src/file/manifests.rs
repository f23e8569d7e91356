//! The objects of one kind in a file of manifests, in YAML or JSON.

use std::{collections::BTreeSet, fmt, marker::PhantomData};

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};

use tweed_core::object::{ObjectKey, node::Node};
use tweed_core::text::{one_line, printable};

use crate::kind::{InvalidName, Kind};
use crate::kinds::is_known;

/// What is wrong inside a file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It is no text.
    #[error("it is not UTF-8")]
    NotText,
    /// It is neither YAML nor JSON.
    #[error("{0}")]
    Syntax(String),
    /// The object of this number does not say what it is.
    #[error("object {0} has no kind")]
    NoKind(usize),
    /// The object of this number has no valid name.
    #[error("object {0} {1}")]
    Invalid(usize, InvalidName),
    /// It has not the Node of this name, so it is not known whether it is whole.
    #[error("it has no Node {0}: it is not whole, or of another cluster")]
    NoOwnNode(String),
    /// Two objects have one key.
    #[error("there are two {kinds} of the name {key}")]
    Duplicate {
        /// Their kind in the plural.
        kinds: &'static str,
        /// Their key.
        key: ObjectKey,
    },
}

/// All objects of the kind `K`: those of the documents, and those of Lists in
/// them. Objects of other kinds are skipped. A kind that this crate does not know is
/// warned of, by the source of the Nodes: every such file has one.
///
/// # Errors
/// What is wrong: then none of them counts.
pub fn parse<K: Kind>(bytes: &[u8]) -> Result<Vec<K>, Broken> {
    let found = find::<K>(bytes)?;
    if K::NAME == Node::NAME && !found.unknown_kinds.is_empty() {
        let kinds: Vec<String> = found.unknown_kinds.into_iter().collect();
        tracing::warn!(
            kinds = kinds.join(", "),
            "skipped objects of kinds that are not used"
        );
    }
    Ok(found.objects)
}

/// Whether a file has the Node of this name.
///
/// # Errors
/// What is wrong with the file.
pub fn has_node(bytes: &[u8], name: &str) -> Result<bool, Broken> {
    let found = find::<Node>(bytes)?;
    Ok(found.objects.iter().any(|node| node.name == name))
}

fn find<K: Kind>(bytes: &[u8]) -> Result<Found<K>, Broken> {
    let text = std::str::from_utf8(bytes).map_err(|_| Broken::NotText)?;
    let mut found = Found::default();
    for document in documents(text)?.into_iter().flatten() {
        found.add(document)?;
    }
    Ok(found)
}

fn documents<M>(text: &str) -> Result<Vec<Option<Document<M>>>, Broken>
where
    M: for<'de> Deserialize<'de>,
{
    // The parser of JSON is the faster one. Text that only looks like JSON is
    // left to the parser of YAML, which reads JSON too.
    if text.trim_start().starts_with('{') {
        let parsed: Result<Vec<_>, _> = serde_json::Deserializer::from_str(text)
            .into_iter()
            .collect();
        if let Ok(documents) = parsed {
            return Ok(documents);
        }
    }
    // Enough for valid manifests of the largest file. Anchors and aliases, which
    // few manifests have, get little; the rest (depth, merge keys) is limited by
    // default.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 16 << 20,
            max_nodes: 16 << 20,
            max_documents: 1 << 20,
            max_recorded_anchor_events: 50_000,
            max_recorded_anchor_bytes: 4 << 20,
        },
        with_snippet: false,
        // `n` and `on` are names and values of labels, not booleans.
        strict_booleans: true,
    };
    // The parser's message can quote the file.
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| Broken::Syntax(one_line(&error.to_string())))
}

struct Found<K> {
    /// Number of objects so far, of any kind.
    count: usize,
    keys: BTreeSet<ObjectKey>,
    objects: Vec<K>,
    /// The kinds of the objects that no source uses.
    unknown_kinds: BTreeSet<String>,
}

impl<K> Default for Found<K> {
    fn default() -> Self {
        Self {
            count: 0,
            keys: BTreeSet::new(),
            objects: Vec::new(),
            unknown_kinds: BTreeSet::new(),
        }
    }
}

impl<K: Kind> Found<K> {
    fn add(&mut self, document: Document<K::Fields>) -> Result<(), Broken> {
        self.count += 1;
        let number = self.count;
        let kind = document.kind.ok_or(Broken::NoKind(number))?;
        let version = document.api_version.as_deref();
        let is_own_version = version.is_none_or(|version| version == K::api_version());
        let is_own_list = is_own_version && kind.strip_suffix("List") == Some(K::NAME);
        if is_own_list || kind == "List" {
            for mut item in document.items.unwrap_or_default() {
                // The items of a NodeList need not name their kind.
                if item.kind.is_none() && is_own_list {
                    item.kind = Some(K::NAME.to_owned());
                }
                self.add(item)?;
            }
        } else if is_own_version && kind == K::NAME {
            let object =
                K::from_fields(document.fields).map_err(|why| Broken::Invalid(number, why))?;
            let key = object.key();
            if !self.keys.insert(key.clone()) {
                let kinds = K::KINDS;
                return Err(Broken::Duplicate { kinds, key });
            }
            self.objects.push(object);
        } else if !is_known(&kind, version) {
            let kind = match version {
                Some(version) => printable(&format!("{version} {kind}")),
                None => printable(&kind),
            };
            self.unknown_kinds.insert(kind);
        }
        Ok(())
    }
}

/// A document of the file or an item of a List: `kind`, `apiVersion` and `items`, and the
/// other fields as `M` reads them.
///
/// `#[serde(flatten)]` would do the same, but it stores all fields first, also
/// those that `M` skips: a hostile file could use any amount of memory.
struct Document<M> {
    kind: Option<String>,
    /// Several products have a kind `NetworkPolicy`, each in a group of its own.
    api_version: Option<String>,
    items: Option<Vec<Document<M>>>,
    fields: M,
}

impl<'de, M: Deserialize<'de>> Deserialize<'de> for Document<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(DocumentVisitor(PhantomData))
    }
}

struct DocumentVisitor<M>(PhantomData<M>);

impl<'de, M: Deserialize<'de>> Visitor<'de> for DocumentVisitor<M> {
    type Value = Document<M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a manifest")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Document<M>, A::Error> {
        let mut others = OtherFields {
            map,
            kind: None,
            api_version: None,
            items: None,
        };
        let fields = M::deserialize(MapAccessDeserializer::new(&mut others))?;
        Ok(Document {
            kind: others.kind,
            api_version: others.api_version,
            items: others.items,
            fields,
        })
    }
}

/// The fields of a document without those that [`Document`] names, which are kept.
struct OtherFields<A, M> {
    map: A,
    kind: Option<String>,
    api_version: Option<String>,
    items: Option<Vec<Document<M>>>,
}

impl<'de, A: MapAccess<'de>, M: Deserialize<'de>> MapAccess<'de> for OtherFields<A, M> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            match key.as_str() {
                "kind" => self.kind = self.map.next_value()?,
                "apiVersion" => self.api_version = self.map.next_value()?,
                "items" => self.items = self.map.next_value()?,
                _ => return seed.deserialize(key.into_deserializer()).map(Some),
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests;
