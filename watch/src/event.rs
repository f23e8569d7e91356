//! Events of a watch at an API server, whatever their encoding.

use serde::Deserialize;

use tweed_core::object::ObjectKey;

use crate::kind::{InvalidObject, Kind, valid_name};

/// An event of a watch, with the resource version that it leads to.
#[derive(Debug)]
pub(crate) enum WatchEvent<K> {
    Apply(K, Option<String>),
    Delete(ObjectKey, Option<String>),
    Bookmark(Option<String>),
    /// The object cannot be decoded; the watch goes on.
    Invalid(InvalidObject, Option<String>),
    /// The server ends the watch.
    Error(Status),
}

/// The server's answer if a request fails (`meta/v1.Status`).
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub code: u16,
    pub message: String,
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

/// The part of an object's metadata that events need, as far as it can be read.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub namespace: String,
    pub name: String,
    pub version: Option<String>,
}

impl<K: Kind> WatchEvent<K> {
    /// The event of type `of`, unless it is an error, on the object with this
    /// `head`.
    pub(crate) fn new(
        of: EventType,
        head: Head,
        decode: impl FnOnce() -> Result<K, InvalidObject>,
    ) -> Self {
        let version = head.version.filter(|version| !version.is_empty());
        let decoded = match of {
            EventType::Bookmark => return Self::Bookmark(version),
            EventType::Deleted => valid_name(K::NAME, head.name)
                .map(|name| {
                    let namespace = head.namespace;
                    Self::Delete(ObjectKey { namespace, name }, version.clone())
                })
                .map_err(InvalidObject::from),
            _ => decode().map(|object| Self::Apply(object, version.clone())),
        };
        decoded.unwrap_or_else(|why| Self::Invalid(why, version))
    }
}
