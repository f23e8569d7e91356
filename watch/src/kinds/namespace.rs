//! Decoding of Namespaces.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use tweed_core::object::namespace::Namespace;

use super::{bytes, lossy, text};
use crate::kind::{InvalidName, Kind, valid_name};

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn labels(value: Value) -> BTreeMap<String, String> {
        let fields = json!({"metadata": {"name": "a", "labels": value}});
        let fields = serde_json::from_value(fields).unwrap();
        Namespace::from_fields(fields).unwrap().labels
    }

    #[test]
    fn labels_are_sorted_and_a_value_of_the_wrong_type_becomes_text() {
        let expected = [("a", ""), ("b", "7"), ("c", "x")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let found = labels(json!({"c": "x", "b": 7, "a": ""}));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_namespace_can_have_no_labels() {
        for none in [json!(null), json!({}), json!("no map")] {
            assert!(labels(none.clone()).is_empty(), "{none}");
        }
    }
}
