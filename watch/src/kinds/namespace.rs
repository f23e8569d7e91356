//! Decoding of Namespaces.

use tweed_core::object::namespace::Namespace;

use super::metadata::Metadata;
use crate::kind::{InvalidName, Kind};

message! {
    /// The used fields of a Namespace.
    pub struct NamespaceFields {
        metadata: one(Metadata) = 1,
    }
}

impl Kind for Namespace {
    const NAME: &'static str = "Namespace";
    const PATH: &'static str = "/api/v1/namespaces";
    type Fields = NamespaceFields;

    fn from_fields(fields: NamespaceFields) -> Result<Self, InvalidName> {
        let mut metadata = fields.metadata.unwrap_or_default();
        Ok(Self {
            name: metadata.name(Self::NAME)?,
            labels: metadata.labels(),
            terminating: metadata.is_deleted(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use tweed_core::object::selector::Labels;

    use super::*;

    fn labels_of(value: Value) -> Labels {
        let fields = json!({"metadata": {"name": "a", "labels": value}});
        let fields = serde_json::from_value(fields).unwrap();
        Namespace::from_fields(fields).unwrap().labels
    }

    #[test]
    fn labels_are_sorted_and_a_value_of_the_wrong_type_becomes_text() {
        let expected = [("a", ""), ("b", "7"), ("c", "x")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let found = labels_of(json!({"c": "x", "b": 7, "a": ""}));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_namespace_that_is_being_deleted_says_when_that_began() {
        for (time, expected) in [
            (json!(null), false),
            (json!("2026-11-29T00:00:00Z"), true),
            (json!("some time"), true),
        ] {
            let fields = json!({"metadata": {"name": "a", "deletionTimestamp": time}});
            let fields = serde_json::from_value(fields).unwrap();
            let namespace = Namespace::from_fields(fields).unwrap();
            assert_eq!(namespace.terminating, expected, "{time}");
        }
    }

    #[test]
    fn a_namespace_can_have_no_labels() {
        for none in [json!(null), json!({}), json!("no map")] {
            assert!(labels_of(none.clone()).is_empty(), "{none}");
        }
    }
}
