//! Kinds of objects that can be watched.

use serde::de::DeserializeOwned;

use tweed_core::{object::Object, text::printable};

/// A kind of objects: where its collection is, and how one object is decoded.
///
/// Only the fields that are used are decoded; all others are skipped without
/// being stored. A value that may be wrong is decoded as text, for the
/// consumer to refuse: only an object without a valid name is invalid.
pub trait Kind: Object {
    /// The kind as manifests name it: `Node`.
    const NAME: &'static str;
    /// Path of the collection of all objects, in all namespaces.
    const PATH: &'static str;
    /// Whether a server may lack the collection: its kind comes from a CRD. It is then
    /// known to be empty.
    const OPTIONAL: bool = false;
    /// The used fields, as they are decoded from protobuf, JSON and YAML alike.
    type Fields: prost::Message + Default + DeserializeOwned;

    /// The object with these fields.
    ///
    /// # Errors
    /// The object has no valid name.
    fn from_fields(fields: Self::Fields) -> Result<Self, InvalidName>;

    /// Group and version as manifests name them: `networking.k8s.io/v1`.
    fn api_version() -> &'static str {
        let (path, _) = Self::PATH.rsplit_once('/').unwrap_or_default();
        let group_version = path.trim_start_matches("/apis/");
        group_version.trim_start_matches("/api/")
    }

    /// The resource as RBAC names it: `networkpolicies.networking.k8s.io`.
    fn resource() -> String {
        let (_, plural) = Self::PATH.rsplit_once('/').unwrap_or_default();
        match Self::api_version().split_once('/') {
            Some((group, _)) => format!("{plural}.{group}"),
            None => plural.to_owned(),
        }
    }
}

/// An object's name or namespace is missing or not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(String);

/// Why an object of a list or a watch cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum InvalidObject {
    /// In protobuf.
    #[error("it is no message: {0}")]
    Message(#[from] prost::DecodeError),
    /// In JSON.
    #[error("it is no manifest: {0}")]
    Manifest(#[from] serde_json::Error),
    /// It cannot be told from others.
    #[error("it {0}")]
    Name(#[from] InvalidName),
}

/// `name`, if an object of `kind` can have it.
pub(crate) fn valid_name(kind: &'static str, name: String) -> Result<String, InvalidName> {
    allowed(name, |name| {
        format!("has the name {name}, which no {kind} can have")
    })
}

/// `name`, if Kubernetes allows it; `refused` says what is wrong with one, in a form that can
/// be printed.
pub(crate) fn allowed(
    name: String,
    refused: impl FnOnce(&str) -> String,
) -> Result<String, InvalidName> {
    // RFC 1123 subdomains, without the rules on where '-' and '.' may stand:
    // it only matters that a name fits into a log line.
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    if name.is_empty() {
        Err(InvalidName("has no metadata.name".to_owned()))
    } else if name.len() <= 253 && name.bytes().all(is_allowed) {
        Ok(name)
    } else {
        Err(InvalidName(refused(&printable(&name))))
    }
}
