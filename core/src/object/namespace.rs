//! A Namespace.

use super::selector::Labels;

/// A Namespace, with only the fields that tweed uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Namespace {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    pub labels: Labels,
    /// Whether it is being deleted (`metadata.deletionTimestamp`): what is in it goes, in whatever
    /// order, and nothing new can come.
    pub terminating: bool,
}

impl Namespace {
    /// The label that the API server gives every Namespace: its name.
    pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";
}

object!(Namespace, "Namespaces");
