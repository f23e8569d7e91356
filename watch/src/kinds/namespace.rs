//! Decoding of Namespaces.

use serde::Deserialize;
use serde_json::Value;

use tweed_core::object::namespace::Namespace;

use super::{given, lossy, optional_text, text};
use crate::kind::{InvalidName, Kind, valid_name};

/// A Namespace as protobuf.
#[derive(prost::Message)]
pub struct NamespaceMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<MetadataMessage>,
}

#[derive(prost::Message)]
struct MetadataMessage {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(message, repeated, tag = "11")]
    labels: Vec<LabelMessage>,
}

/// An entry of a `map<string, string>`.
#[derive(prost::Message)]
struct LabelMessage {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// A Namespace as JSON or YAML.
#[derive(Deserialize)]
pub struct NamespaceManifest {
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    name: Option<Value>,
    labels: Option<Value>,
}

impl Kind for Namespace {
    const NAME: &'static str = "Namespace";
    const PATH: &'static str = "/api/v1/namespaces";
    type Message = NamespaceMessage;
    type Manifest = NamespaceManifest;

    fn from_message(message: NamespaceMessage) -> Result<Self, InvalidName> {
        let metadata = message.metadata.unwrap_or_default();
        let labels = metadata.labels.into_iter();
        Ok(Self {
            name: valid_name(Self::NAME, lossy(metadata.name))?,
            labels: labels.map(|l| (lossy(l.key), lossy(l.value))).collect(),
        })
    }

    fn from_manifest(manifest: NamespaceManifest) -> Result<Self, InvalidName> {
        let metadata = manifest.metadata.unwrap_or_default();
        let labels = match given(metadata.labels) {
            Some(Value::Object(labels)) => labels,
            _ => serde_json::Map::new(),
        };
        Ok(Self {
            name: valid_name(Self::NAME, optional_text(metadata.name))?,
            labels: labels.into_iter().map(|(k, v)| (k, text(v))).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn labels(value: Value) -> BTreeMap<String, String> {
        let manifest = json!({"metadata": {"name": "a", "labels": value}});
        let manifest = serde_json::from_value(manifest).unwrap();
        Namespace::from_manifest(manifest).unwrap().labels
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
