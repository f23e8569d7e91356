//! Watched objects and the events of a watch.
//!
//! The events are those of kube-runtime's watcher, with three more: that the
//! source cannot be read, that it can be read again, and that the server does not
//! have the kind. A watcher produces them, a store consumes them; neither depends on
//! the other.

use std::fmt;

/// Makes a type an [`Object`] of these kinds.
macro_rules! object {
    ($type:ty, $kinds:literal $(, $namespace:ident)?) => {
        impl $crate::object::Object for $type {
            const KINDS: &'static str = $kinds;

            fn name(&self) -> &str {
                &self.name
            }
            $(
                fn $namespace(&self) -> &str {
                    &self.$namespace
                }
            )?
        }
    };
}

pub mod cluster_network_policy;
pub mod endpoint_slice;
pub mod namespace;
pub mod network_policy;
pub mod node;
pub mod node_labels;
pub mod pod;
pub mod selector;
pub mod service;
pub mod service_cidr;

/// Name of an object, unique among those of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ObjectKey {
    /// `metadata.name`. It is compared first: most keys differ in it, and the
    /// comparison of two empty namespaces can be hundreds of times as expensive
    /// (a masked load from a dangling pointer).
    pub name: String,
    /// `metadata.namespace`; empty for kinds without namespaces.
    pub namespace: String,
}

impl<N: Into<String>> From<N> for ObjectKey {
    /// The key of an object whose kind has no namespaces.
    fn from(name: N) -> Self {
        Self {
            name: name.into(),
            namespace: String::new(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// An object of the API, with only the fields that tweed uses.
pub trait Object: Clone + PartialEq + fmt::Debug + Send + 'static {
    /// The kind in the plural, for logs and messages: `Nodes`.
    const KINDS: &'static str;

    /// `metadata.name`.
    fn name(&self) -> &str;

    /// `metadata.namespace`; empty for kinds without namespaces.
    fn namespace(&self) -> &str {
        ""
    }

    /// Namespace and name of the object.
    fn key(&self) -> ObjectKey {
        ObjectKey {
            name: self.name().to_owned(),
            namespace: self.namespace().to_owned(),
        }
    }
}

/// An event of a source of objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<T> {
    /// A complete list begins. Objects received since an earlier `Init` that had
    /// no `InitDone` must be discarded.
    Init,
    /// An object of the list.
    InitApply(T),
    /// The list is complete: objects that are known and not in it were deleted.
    InitDone,
    /// An object was added or changed.
    Apply(T),
    /// The object with this key was deleted.
    Delete(ObjectKey),
    /// The list that has just ended is empty because the server does not have the
    /// kind; the text says what it has instead. True until the next list begins.
    Absent(String),
    /// The source cannot be read. The last good state stays valid.
    Lost(Loss),
    /// The source can be read again.
    Restored,
}

/// Why a source cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// What has failed, as a sentence.
    pub reason: String,
    /// Whether the server forbids it: then it stays so until somebody changes the
    /// rights.
    pub forbidden: bool,
}

impl<T: Into<String>> From<T> for Loss {
    /// A failure that may end by itself.
    fn from(reason: T) -> Self {
        Self {
            reason: reason.into(),
            forbidden: false,
        }
    }
}
