//! The second kind of the tests: Namespaces, with their labels.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use tweed_core::object::Object;

use crate::kind::{InvalidName, Kind, valid_name};
use crate::kinds::{bytes, lossy, text};

/// A Namespace, with only the fields that selectors of namespaces need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Namespace {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`, sorted by key.
    pub labels: BTreeMap<String, String>,
}

impl Object for Namespace {
    const KINDS: &'static str = "Namespaces";

    fn name(&self) -> &str {
        &self.name
    }
}

/// The used fields of a Namespace.
#[derive(prost::Message, Deserialize)]
pub struct NamespaceFields {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
}

#[derive(prost::Message, Deserialize)]
#[serde(default)]
struct Metadata {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "bytes")]
    name: Vec<u8>,
    #[prost(message, repeated, tag = "11")]
    #[serde(deserialize_with = "labels")]
    labels: Vec<Label>,
}

/// An entry of a `map<string, string>`.
#[derive(prost::Message)]
struct Label {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

impl Kind for Namespace {
    const NAME: &'static str = "Namespace";
    const PATH: &'static str = "/api/v1/namespaces";
    type Fields = NamespaceFields;

    fn from_fields(fields: NamespaceFields) -> Result<Self, InvalidName> {
        let metadata = fields.metadata.unwrap_or_default();
        let labels = metadata.labels.into_iter();
        Ok(Self {
            name: valid_name(Self::NAME, lossy(metadata.name))?,
            labels: labels.map(|l| (lossy(l.key), lossy(l.value))).collect(),
        })
    }
}

fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Label>, D::Error> {
    let Value::Object(labels) = Value::deserialize(deserializer)? else {
        return Ok(Vec::new());
    };
    let labels = labels.into_iter().map(|(key, value)| Label {
        key: key.into_bytes(),
        value: text(value),
    });
    Ok(labels.collect())
}

fn labels_of(value: Value) -> BTreeMap<String, String> {
    let fields = json!({"metadata": {"name": "a", "labels": value}});
    let fields = serde_json::from_value(fields).unwrap();
    Namespace::from_fields(fields).unwrap().labels
}

#[test]
fn labels_are_sorted_and_a_value_of_the_wrong_type_becomes_text() {
    let expected = [("a", ""), ("b", "7"), ("c", "x")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let found = labels_of(json!({"c": "x", "b": 7, "a": ""}));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_namespace_can_have_no_labels() {
    for none in [json!(null), json!({}), json!("no map")] {
        assert!(labels_of(none.clone()).is_empty(), "{none}");
    }
}
