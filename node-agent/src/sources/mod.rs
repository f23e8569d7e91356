//! Where objects come from: an API server or a file, which give a source for each kind
//! that is asked for; which of them run for [`policy`] and for [`services`], how events get
//! from one into an index ([`follow`]), and how often it was lost or listed again ([`count`]).
//!
//! What always holds: policies are always watched; Namespaces and Pods only while a
//! policy needs them; Services and what belongs to them while `--services` is on.

pub mod count;
pub mod follow;
pub mod policy;
pub mod services;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::sync::watch;
use tweed_watch::{FileSource, Kind, Scope, Source, Watcher, client::ApiClient};

/// Maximum number of events of a source that wait to be applied: with more the
/// source waits.
pub(crate) const MAX_EVENTS: usize = 256;

/// Makes sources of objects.
pub trait Sources: Send + 'static {
    /// A source of at least those objects of the kind `K` that are in `scope`. It says
    /// nothing before it runs.
    fn source<K: Kind>(&self, scope: Scope) -> impl Source<K>;

    /// The addresses and ports to which they connect; none if they connect to nobody.
    fn peers(&self) -> Option<watch::Receiver<BTreeSet<SocketAddr>>> {
        None
    }
}

impl Sources for ApiClient {
    fn source<K: Kind>(&self, scope: Scope) -> impl Source<K> {
        Watcher::new(self.clone(), scope)
    }

    fn peers(&self) -> Option<watch::Receiver<BTreeSet<SocketAddr>>> {
        Some(Self::peers(self))
    }
}

/// A file of manifests.
#[derive(Debug, Clone)]
pub struct ManifestFile {
    /// Where it is.
    pub path: PathBuf,
    /// The Node without which it is not believed.
    pub own_node: String,
}

impl Sources for ManifestFile {
    /// All objects of the kind: what is too much costs nobody anything here.
    fn source<K: Kind>(&self, _scope: Scope) -> impl Source<K> {
        FileSource::new(&self.path, &self.own_node)
    }
}
