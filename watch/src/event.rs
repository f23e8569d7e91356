//! What a list and a watch of an API server have around objects, whatever their
//! encoding.

use serde::Deserialize;

use tweed_core::object::ObjectKey;

use crate::kind::{InvalidObject, Kind, valid_name};

/// An event of a watch, with the resource version that it leads to.
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// The object was added or changed.
    Apply(K, Option<String>),
    /// The object of this key was deleted.
    Delete(ObjectKey, Option<String>),
    /// No object has changed.
    Bookmark(Option<String>),
    /// The object cannot be decoded; the watch goes on.
    Invalid(InvalidObject, Option<String>),
    /// The server ends the watch.
    Error(Status),
}

/// The server's answer if a request fails (`meta/v1.Status`).
#[derive(prost::Message, Deserialize)]
#[serde(default)]
pub struct Status {
    /// What is wrong.
    #[prost(string, tag = "3")]
    pub message: String,
    /// The code of HTTP for it.
    #[prost(int32, tag = "6")]
    pub code: i32,
}

/// The types of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// An object of any kind.
#[derive(prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct Head {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
}

/// The part of an object's metadata that events need (`meta/v1.ObjectMeta`).
#[derive(prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, optional, tag = "6")]
    resource_version: Option<String>,
}

/// The metadata of a list (`meta/v1.ListMeta`).
#[derive(prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    #[prost(string, tag = "2")]
    pub resource_version: String,
    /// The token of the next page; empty on the last.
    #[prost(string, tag = "3")]
    #[serde(rename = "continue")]
    pub continue_token: String,
}

impl<K: Kind> WatchEvent<K> {
    /// The event of type `of`, unless it is an error, on the object that begins
    /// with `head`.
    pub(crate) fn new(
        of: EventType,
        head: Head,
        decode: impl FnOnce() -> Result<K, InvalidObject>,
    ) -> Self {
        let metadata = head.metadata.unwrap_or_default();
        let version = metadata
            .resource_version
            .filter(|version| !version.is_empty());
        let decoded = match of {
            EventType::Bookmark => return Self::Bookmark(version),
            EventType::Deleted => valid_name(K::NAME, metadata.name)
                .map(|name| {
                    let namespace = metadata.namespace;
                    Self::Delete(ObjectKey { namespace, name }, version.clone())
                })
                .map_err(InvalidObject::from),
            _ => decode().map(|object| Self::Apply(object, version.clone())),
        };
        decoded.unwrap_or_else(|why| Self::Invalid(why, version))
    }
}
