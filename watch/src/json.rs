//! The JSON around objects: a page of a list and a line of a watch. Objects
//! stay raw until one of them is decoded.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::event::{EventType, Head, WatchEvent};
use crate::kind::{InvalidObject, Kind};

/// A page of a list.
#[derive(Deserialize)]
pub(crate) struct Page<'a> {
    #[serde(default)]
    pub metadata: PageMetadata,
    /// Null if there are none.
    #[serde(borrow)]
    pub items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageMetadata {
    pub resource_version: Option<String>,
    /// The token of the next page; empty or absent on the last.
    #[serde(rename = "continue")]
    pub continue_token: Option<String>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    of: EventType,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Default, Deserialize)]
struct Object {
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: Option<String>,
    name: Option<Value>,
    resource_version: Option<String>,
}

/// Decodes an object of a page.
pub(crate) fn object<K: Kind>(object: &RawValue) -> Result<K, InvalidObject> {
    let manifest: K::Manifest = serde_json::from_str(object.get())?;
    Ok(K::from_manifest(manifest)?)
}

/// Decodes a line of a watch. An error means that it is no event.
pub(crate) fn event<K: Kind>(line: &[u8]) -> Result<WatchEvent<K>, serde_json::Error> {
    let Line { of, object } = serde_json::from_slice(line)?;
    if of == EventType::Error {
        return Ok(WatchEvent::Error(serde_json::from_str(object.get())?));
    }
    Ok(WatchEvent::new(of, head(object), || self::object(object)))
}

fn head(object: &RawValue) -> Head {
    let object: Object = serde_json::from_str(object.get()).unwrap_or_default();
    let metadata = object.metadata.unwrap_or_default();
    Head {
        namespace: metadata.namespace.unwrap_or_default(),
        name: match metadata.name {
            None => String::new(),
            Some(Value::String(name)) => name,
            Some(other) => other.to_string(),
        },
        version: metadata.resource_version,
    }
}
