//! Labels and other texts of many pods, each stored once.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tweed_core::object::pod::NamedPort;
use tweed_core::object::selector::{LabelSelector, Labels};

/// Labels by ascending key; equal texts are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LabelSet(Box<[(Arc<str>, Arc<str>)]>);

impl LabelSet {
    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(one, _)| (**one).cmp(key));
        found.ok().map(|at| &*self.0[at].1)
    }

    /// Whether a selector selects an object with these labels.
    pub fn selected_by(&self, selector: &LabelSelector) -> bool {
        selector.selects_by(|key| self.get(key))
    }

    /// Whether a selector may select them: see [`LabelSelector::may_select`].
    pub fn may_be_selected_by(&self, selector: &LabelSelector) -> bool {
        selector.may_select_by(|key| self.get(key))
    }

    /// Each label.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The labels as objects have them.
    pub fn to_labels(&self) -> Labels {
        let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        self.iter().map(own).collect()
    }
}

/// What pods of one workload have in common: whatever policies look at but the address.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// The hash of all else: kinds are looked up often.
    hash: u64,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The labels.
    pub labels: LabelSet,
    /// The named ports, ordered.
    pub ports: Box<[NamedPort]>,
}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Shared values. Those that nobody uses any more are removed once in a while.
#[derive(Debug)]
struct Shared<T: ?Sized + Eq + Hash> {
    all: HashSet<Arc<T>>,
    /// The size at which unused ones are looked for.
    sweep_at: usize,
}

impl<T: ?Sized + Eq + Hash> Default for Shared<T> {
    fn default() -> Self {
        Self {
            all: HashSet::new(),
            sweep_at: 1024,
        }
    }
}

impl<T: ?Sized + Eq + Hash> Shared<T> {
    fn insert(&mut self, value: Arc<T>) {
        self.all.insert(value);
        if self.all.len() >= self.sweep_at {
            self.all.retain(|one| Arc::strong_count(one) > 1);
            self.sweep_at = 1024.max(2 * self.all.len());
        }
    }
}

/// The texts and kinds that are in use.
#[derive(Debug, Default)]
pub struct Interner {
    texts: Shared<str>,
    kinds: Shared<Kind>,
}

impl Interner {
    /// A text, shared with all equal ones.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.all.get(text) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }

    /// A kind, shared with all equal ones.
    pub fn kind(&mut self, namespace: &str, labels: &Labels, ports: &[NamedPort]) -> Arc<Kind> {
        let each = labels.iter();
        let labels: Vec<_> = each
            .map(|(key, value)| (self.text(key), self.text(value)))
            .collect();
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        ports.dedup();
        let mut hasher = DefaultHasher::new();
        (namespace, &labels, &ports).hash(&mut hasher);
        let kind = Kind {
            hash: hasher.finish(),
            namespace: self.text(namespace),
            labels: LabelSet(labels.into()),
            ports: ports.into(),
        };
        if let Some(known) = self.kinds.all.get(&kind) {
            return known.clone();
        }
        let kind = Arc::new(kind);
        self.kinds.insert(kind.clone());
        kind
    }
}
