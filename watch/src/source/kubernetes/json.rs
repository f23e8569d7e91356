//! The few shapes of the API's JSON that are read: a page of a list, a line of
//! a watch, a refusal. Objects stay raw until one is wanted.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::source::manifest::{Manifest, NotNode};
use tweed_core::object::node::Node;

use super::said::Said;

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    #[serde(default)]
    pub metadata: PageMetadata,
    /// Null where there are none.
    #[serde(borrow)]
    pub items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    pub resource_version: Option<String>,
    /// What to ask for the next page with; empty or absent on the last.
    #[serde(rename = "continue")]
    pub go_on: Option<String>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// Why an object of a list is no Node.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undecodable {
    #[error("it is no manifest: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("it {0}")]
    NotNode(#[from] NotNode),
}

/// Decodes an object of a page.
pub(super) fn node(object: &RawValue) -> Result<Node, Undecodable> {
    let manifest: Manifest = serde_json::from_str(object.get())?;
    Ok(manifest.node()?)
}

/// Decodes a line of a watch; an error means that it is no event at all.
pub(super) fn line(bytes: &[u8]) -> Result<Said, serde_json::Error> {
    let Event { kind, object } = serde_json::from_slice(bytes)?;
    if let Kind::Error = kind {
        return Ok(Said::Error(serde_json::from_str(object.get())?));
    }
    let manifest: Manifest = match serde_json::from_str(object.get()) {
        Ok(manifest) => manifest,
        Err(error) => return Ok(Said::NotNode(Undecodable::from(error).to_string(), None)),
    };
    let metadata = manifest.metadata.as_ref();
    let version = (metadata.and_then(|m| m.resource_version.clone())).filter(|v| !v.is_empty());
    let decoded = match kind {
        Kind::Bookmark => return Ok(Said::Bookmark(version)),
        Kind::Deleted => (manifest.name()).map(|name| Said::Deleted(name, version.clone())),
        _ => (manifest.node()).map(|node| Said::Changed(node, version.clone())),
    };
    Ok(decoded.unwrap_or_else(|why| Said::NotNode(Undecodable::from(why).to_string(), version)))
}
