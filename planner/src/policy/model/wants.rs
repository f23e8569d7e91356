//! What should be watched so that the policies in force here can be carried out.

use std::borrow::Cow;
use std::collections::BTreeSet;

use tweed_core::object::namespace::Namespace;

use super::index::selects_namespace;
pub use super::pods::Peers;
use super::pods::PodScope;
use super::rules::{Atom, Namespaces};

/// How many namespaces are watched one by one. Beyond this number all pods are watched:
/// each watch costs the API server and the agent a stream of its own.
const MAX_NAMESPACES: usize = 16;

/// What should be watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wants {
    /// Namespaces.
    pub namespaces: bool,
    /// The pods of this node.
    pub own_pods: bool,
    /// Pods of other nodes.
    pub peers: Peers,
    /// Scopes that have been listed and are in use until those of `peers` are listed too.
    pub kept: BTreeSet<PodScope>,
}

/// Maximum number of namespaces with which all pods are no longer watched. It is well below
/// [`MAX_NAMESPACES`], so that a number which goes up and down around that does not have all
/// pods of the cluster listed each time.
const FEW_NAMESPACES: usize = MAX_NAMESPACES / 2;

/// Which pods these peers of rules may be, where `now` is wanted already.
pub fn peers<'a, N: Iterator<Item = &'a Namespace>>(
    atoms: impl Iterator<Item = &'a Atom>,
    all: impl Fn() -> N,
    now: &Peers,
) -> Peers {
    let limit = match now {
        Peers::All => FEW_NAMESPACES,
        Peers::None | Peers::Namespaces(_) => MAX_NAMESPACES,
    };
    let selectors: BTreeSet<Cow<'_, Namespaces>> = atoms.filter_map(pods_of).collect();
    let mut names = BTreeSet::new();
    for namespaces in &selectors {
        match &**namespaces {
            Namespaces::Named(name) => {
                names.insert(name.clone());
            }
            Namespaces::Selected(selector) => {
                for namespace in all() {
                    if selects_namespace(selector, namespace) {
                        names.insert(namespace.name.clone());
                    }
                    if names.len() > limit {
                        return Peers::All;
                    }
                }
            }
        }
    }
    if names.len() > limit {
        Peers::All
    } else if selectors.is_empty() {
        Peers::None
    } else {
        Peers::Namespaces(names)
    }
}

/// The namespaces of the pods that have to be known for a peer.
pub fn pods_of(atom: &Atom) -> Option<Cow<'_, Namespaces>> {
    match atom {
        Atom::Pods(namespaces, _) => Some(Cow::Borrowed(namespaces)),
        Atom::PodsIn(..) => Some(Cow::Owned(Namespaces::all())),
        Atom::Block(..) | Atom::Nodes(_) => None,
    }
}
