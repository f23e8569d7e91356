//! What an API server says in a watch, whatever its encoding.

use serde::Deserialize;

use tweed_core::object::node::Node;

/// What an event of a watch says, with the version that it brings about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Changed(Node, Option<String>),
    Deleted(String, Option<String>),
    Bookmark(Option<String>),
    /// An object that is none, and why.
    NotNode(String, Option<String>),
    Error(Status),
}

/// The API's answer when it has no other.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub code: u16,
    pub message: String,
}
