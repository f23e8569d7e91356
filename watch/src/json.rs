//! The JSON around objects: a page of a list and a line of a watch. Objects
//! stay raw until one of them is decoded.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::{EventType, ListMetadata, WatchEvent};
use crate::kind::{InvalidObject, Kind};

/// A page of a list.
#[derive(Deserialize)]
pub(crate) struct Page<'a> {
    #[serde(default)]
    pub metadata: ListMetadata,
    /// Null if there are none.
    #[serde(borrow)]
    pub items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    of: EventType,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Decodes an object of a page.
pub(crate) fn object<K: Kind>(object: &RawValue) -> Result<K, InvalidObject> {
    Ok(K::from_fields(serde_json::from_str(object.get())?)?)
}

/// Decodes a line of a watch. An error means that it is no event.
pub(crate) fn event<K: Kind>(line: &[u8]) -> Result<WatchEvent<K>, serde_json::Error> {
    let Line { of, object } = serde_json::from_slice(line)?;
    if of == EventType::Error {
        return Ok(WatchEvent::Error(serde_json::from_str(object.get())?));
    }
    // Unreadable metadata makes no event unreadable: the object is invalid.
    let head = serde_json::from_str(object.get()).unwrap_or_default();
    Ok(WatchEvent::new(of, head, || self::object(object)))
}
