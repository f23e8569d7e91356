//! Which objects of a kind are watched.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::kind::Kind;

/// The objects of a kind that a watcher asks for. The server selects them: others cost
/// neither side anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Scope {
    /// All of them.
    #[default]
    All,
    /// Those of this namespace, of a kind that has namespaces.
    Namespace(String),
    /// The Pods on the Node of this name.
    Node(String),
}

impl Scope {
    /// Path of the collection.
    pub(crate) fn path<K: Kind>(&self) -> String {
        let Self::Namespace(namespace) = self else {
            return K::PATH.to_owned();
        };
        let (group_version, plural) = K::PATH.rsplit_once('/').unwrap_or_default();
        let escaped = utf8_percent_encode(namespace, NON_ALPHANUMERIC).to_string();
        // A name has no others that are escaped.
        let namespace = escaped.replace("%2D", "-").replace("%2E", ".");
        format!("{group_version}/namespaces/{namespace}/{plural}")
    }

    /// Selector of the objects of the collection.
    pub(crate) fn field_selector(&self) -> Option<String> {
        match self {
            Self::Node(name) => Some(format!("spec.nodeName={name}")),
            Self::All | Self::Namespace(_) => None,
        }
    }
}
