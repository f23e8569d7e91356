//! What should be watched so that the policies in force here can be carried out.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use tweed_core::object::namespace::Namespace;

use super::index::selects_namespace;
use super::pods::PodScope;
use super::rules::{Atom, Namespaces};

/// How many namespaces are watched one by one. Beyond this number all pods are watched:
/// each watch costs the API server and the agent a stream of its own.
const MAX_NAMESPACES: usize = 16;

/// What should be watched beside the policies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wants {
    /// Namespaces.
    pub namespaces: bool,
    /// Pods.
    pub pods: BTreeSet<PodScope>,
}

/// Maximum number of namespaces with which all pods are no longer watched. It is well below
/// [`MAX_NAMESPACES`], so that a number which goes up and down around that does not have all
/// pods of the cluster listed each time.
const FEW_NAMESPACES: usize = MAX_NAMESPACES / 2;

/// Which pods those of these namespaces may be, where `now` is wanted already.
pub fn peers<'a, N: Iterator<Item = &'a Namespace>>(
    namespaces: impl Iterator<Item = &'a Namespaces>,
    all: impl Fn() -> N,
    now: &BTreeSet<PodScope>,
) -> BTreeSet<PodScope> {
    let limit = if now.contains(&PodScope::All) {
        FEW_NAMESPACES
    } else {
        MAX_NAMESPACES
    };
    let selectors: HashSet<&Namespaces> = namespaces.collect();
    let mut scopes = BTreeSet::new();
    for namespaces in &selectors {
        match namespaces {
            Namespaces::Named(name) => {
                scopes.insert(PodScope::Namespace(name.clone()));
            }
            Namespaces::Selected(selector) => {
                let selected = all().filter(|one| selects_namespace(selector, one));
                let names = selected.map(|one| one.name.clone());
                scopes.extend(names.take(limit + 1).map(PodScope::Namespace));
            }
        }
        if scopes.len() > limit {
            return [PodScope::All].into();
        }
    }
    scopes
}

/// The namespaces of the pods that have to be known for a peer.
pub fn pods_of(atom: &Atom) -> Option<Cow<'_, Namespaces>> {
    match atom {
        Atom::Pods(namespaces, _) => Some(Cow::Borrowed(namespaces)),
        Atom::PodsIn(..) => Some(Cow::Owned(Namespaces::all())),
        Atom::Block(..) | Atom::Nodes(_) => None,
    }
}
