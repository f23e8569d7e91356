//! A Namespace as its source describes it.

use std::collections::BTreeMap;

use super::{Object, ObjectKey};

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

    fn key(&self) -> ObjectKey {
        ObjectKey::from(self.name.as_str())
    }
}
