//! The peers of rules: each different list is stored once and has a number. Which lists
//! an address is in is all that rules can tell of it, so that is its identity.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::node_labels::NodeLabels;
use tweed_core::object::selector::{LabelSelector, Labels, Operator};

use super::end_addresses::EndAddresses;
use super::labels::Kind;
use super::rules::{Atom, Namespaces};
use super::verdicts::Number;
use super::wants;
use crate::addresses::{self, Range};
use crate::numbers::Numbers;

/// One list of peers.
#[derive(Debug)]
struct PeerSet {
    atoms: Arc<[Atom]>,
    /// How many rules have it.
    uses: usize,
    /// Whether one of its CIDRs has exceptions.
    excepts: bool,
    /// The namespaces whose pods have to be known.
    pods_of: BTreeSet<Namespaces>,
}

/// What a selector of pods needs at least: it is looked for only under these.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Anchor {
    /// The namespace, if there can be only one.
    namespace: Option<String>,
    /// A label, if there must be one with one value.
    label: Option<(String, String)>,
}

/// All lists of peers that rules in force have.
#[derive(Debug, Default)]
pub struct PeerSets {
    numbers: Numbers,
    ids: HashMap<Arc<[Atom]>, Number>,
    sets: BTreeMap<Number, PeerSet>,
    anchors: HashMap<Anchor, Vec<(Number, Atom)>>,
    nodes: BTreeSet<(LabelSelector, Number)>,
    /// Lists that are new, or gone, since they were last taken.
    changed: BTreeMap<Number, Arc<[Atom]>>,
}

impl PeerSets {
    /// The number of a list, which is used once more. An equal one that is in use takes its
    /// place, so that it is held once.
    pub fn acquire(&mut self, atoms: &mut Arc<[Atom]>) -> Number {
        if let Some((known, id)) = self.ids.get_key_value(&*atoms) {
            *atoms = known.clone();
            let id = *id;
            self.use_again(id);
            return id;
        }
        let id = self.numbers.take();
        let mut pods_of: BTreeSet<Cow<'_, Namespaces>> = BTreeSet::new();
        for atom in atoms.iter() {
            pods_of.extend(wants::pods_of(atom));
            match atom {
                Atom::Pods(namespaces, pod) => {
                    let under = self.anchors.entry(anchor(namespaces, pod)).or_default();
                    under.push((id, atom.clone()));
                }
                Atom::Nodes(selector) => {
                    self.nodes.insert((selector.clone(), id));
                }
                Atom::Block(..) | Atom::PodsIn(..) => {}
            }
        }
        self.ids.insert(atoms.clone(), id);
        self.changed.insert(id, atoms.clone());
        let excepts = atoms.iter().any(|atom| match atom {
            Atom::Block(_, except) | Atom::PodsIn(_, except) => !except.is_empty(),
            Atom::Pods(..) | Atom::Nodes(_) => false,
        });
        let set = PeerSet {
            atoms: atoms.clone(),
            uses: 1,
            excepts,
            pods_of: pods_of.into_iter().map(Cow::into_owned).collect(),
        };
        self.sets.insert(id, set);
        id
    }

    /// The list with this number is used once more.
    pub fn use_again(&mut self, id: Number) {
        if let Some(set) = self.sets.get_mut(&id) {
            set.uses += 1;
        }
    }

    /// Every list in use, by its number.
    pub fn iter(&self) -> impl Iterator<Item = (Number, &[Atom])> + Clone {
        self.sets.iter().map(|(id, set)| (*id, &*set.atoms))
    }

    /// The namespaces whose pods have to be known, for every list in use.
    pub fn pods_of(&self) -> impl Iterator<Item = (Number, &BTreeSet<Namespaces>)> {
        self.sets.iter().map(|(id, set)| (*id, &set.pods_of))
    }

    /// The list with this number is used once less.
    pub fn release(&mut self, id: Number) {
        let Some(set) = self.sets.get_mut(&id) else {
            return;
        };
        set.uses -= 1;
        if set.uses > 0 {
            return;
        }
        let atoms = set.atoms.clone();
        self.sets.remove(&id);
        self.ids.remove(&atoms);
        // Thousands of selectors may be under one anchor.
        let mut anchors = HashSet::new();
        for atom in atoms.iter() {
            match atom {
                Atom::Pods(namespaces, pod) => drop(anchors.insert(anchor(namespaces, pod))),
                Atom::Nodes(selector) => drop(self.nodes.remove(&(selector.clone(), id))),
                Atom::Block(..) | Atom::PodsIn(..) => {}
            }
        }
        for anchor in anchors {
            if let Some(under) = self.anchors.get_mut(&anchor) {
                under.retain(|(one, _)| *one != id);
                if under.is_empty() {
                    self.anchors.remove(&anchor);
                }
            }
        }
        self.changed.insert(id, atoms);
        self.numbers.give_back(id);
    }

    /// The lists that are new, or gone, since this was last asked. Numbers of lists that
    /// are gone may be given out again afterwards.
    pub fn take_changed(&mut self) -> BTreeMap<Number, Arc<[Atom]>> {
        self.numbers.commit();
        std::mem::take(&mut self.changed)
    }

    /// Whether a list is in use.
    pub fn has(&self, id: Number) -> bool {
        self.sets.contains_key(&id)
    }

    /// The lists that pods of a kind are in, by their numbers.
    pub fn of_kind(&self, kind: &Kind, namespace: &Labels) -> BTreeSet<Number> {
        let mut found = BTreeSet::new();
        let mut anchor = Anchor {
            namespace: None,
            label: None,
        };
        for name in [None, Some(&kind.namespace)] {
            anchor.namespace = name.map(|name| name.to_string());
            let each = kind.labels.iter();
            let labels = each.map(|(key, value)| Some((key.to_owned(), value.to_owned())));
            for label in labels.chain([None]) {
                anchor.label = label;
                for (id, atom) in self.anchors.get(&anchor).into_iter().flatten() {
                    if !found.contains(id) && selects_kind(atom, kind, namespace) {
                        found.insert(*id);
                    }
                }
            }
        }
        found
    }

    /// The lists that a Node with these labels is in.
    pub fn of_node(&self, labels: &NodeLabels) -> BTreeSet<Number> {
        let selected = self
            .nodes
            .iter()
            .filter(|(selector, _)| selector.selects_by(|key| labels.get(key)));
        selected.map(|(_, id)| *id).collect()
    }

    /// Whether a list that has a CIDR for one of the addresses of an end has one for the end
    /// itself. Without exceptions it has: few lists have to be looked through.
    pub fn has_block_of(&self, id: Number, end: &EndAddresses) -> bool {
        let is_in = |atom: &Atom| match atom {
            Atom::Block(cidr, except) | Atom::PodsIn(cidr, except) => end.is_in(cidr, except),
            Atom::Pods(..) | Atom::Nodes(_) => false,
        };
        let set = self.sets.get(&id);
        set.is_some_and(|set| !set.excepts || set.atoms.iter().any(is_in))
    }

    /// The addresses of a family that each list has CIDRs for.
    pub fn ranges(&self, family: Family) -> Vec<(Number, Vec<Range>)> {
        let each = self.sets.iter();
        let ranges = each.map(|(id, set)| (*id, ranges(&set.atoms, family)));
        ranges.filter(|(_, ranges)| !ranges.is_empty()).collect()
    }
}

/// The addresses of a family that a list has CIDRs for.
pub fn ranges(atoms: &[Atom], family: Family) -> Vec<Range> {
    let mut all = Vec::new();
    for atom in atoms {
        if let Atom::Block(cidr, except) | Atom::PodsIn(cidr, except) = atom
            && Family::of(cidr.ip()) == family
        {
            all.extend(addresses::without(cidr, except));
        }
    }
    addresses::merged(all)
}

/// Whether pods of a kind are meant.
pub fn selects_kind(atom: &Atom, kind: &Kind, namespace: &Labels) -> bool {
    let Atom::Pods(namespaces, pod) = atom else {
        return false;
    };
    let there = match namespaces {
        Namespaces::Named(name) => **name == *kind.namespace,
        Namespaces::Selected(selector) => selector.selects(namespace),
    };
    there && kind.labels.selected_by(pod)
}

fn anchor(namespaces: &Namespaces, pod: &LabelSelector) -> Anchor {
    let namespace = match namespaces {
        Namespaces::Named(name) => Some(name.clone()),
        Namespaces::Selected(selector) => {
            let mut labels = selector.match_labels.iter();
            let name = labels.find(|(key, _)| key == Namespace::NAME_LABEL);
            name.map(|(_, value)| value.clone())
        }
    };
    let expressions = pod.match_expressions.iter();
    let equal = expressions.filter_map(|one| match (&one.operator, &one.values[..]) {
        (Operator::In, [value]) => Some((&one.key, value)),
        _ => None,
    });
    let labels = pod.match_labels.iter().map(|(key, value)| (key, value));
    let label = labels.chain(equal).next();
    Anchor {
        namespace,
        label: label.map(|(key, value)| (key.clone(), value.clone())),
    }
}

/// Where the set of lists changes that addresses are in. In the order of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bound<L> {
    /// The first address after the change.
    pub at: u128,
    /// Whether the list begins to have addresses, and does not end to.
    pub begins: bool,
    /// The list.
    pub list: L,
}

/// The bounds of all ranges of lists.
pub fn bounds<L: Copy + Ord>(
    family: Family,
    lists: impl IntoIterator<Item = (L, Vec<Range>)>,
) -> Vec<Bound<L>> {
    let highest = addresses::highest(family);
    let mut bounds = Vec::new();
    for (list, ranges) in lists {
        for (first, last) in ranges {
            let bound = |at, begins| Bound { at, begins, list };
            bounds.push(bound(first, true));
            bounds.extend((last < highest).then(|| bound(last + 1, false)));
        }
    }
    bounds.sort_unstable();
    bounds
}

/// A number for each list, and their sum for a set of lists. It is drawn anew in each process:
/// nobody can make two sets with one sum.
#[derive(Debug, Default)]
pub struct Fingerprints(RandomState);

impl Fingerprints {
    /// That of one list of peers.
    pub fn of(&self, atoms: &[Atom]) -> u128 {
        let half = |which: u8| u128::from(self.0.hash_one((atoms, which)));
        (half(0) << 64) | half(1)
    }

    /// The sum after a bound.
    pub fn after<L: Copy + Hash>(&self, sum: u128, bound: &Bound<L>) -> u128 {
        let half = |which: u8| u128::from(self.0.hash_one((bound.list, which)));
        let of_list = (half(0) << 64) | half(1);
        if bound.begins {
            sum.wrapping_add(of_list)
        } else {
            sum.wrapping_sub(of_list)
        }
    }
}

/// Disjoint ranges of addresses of one family, with the lists that each is in. Equal lists of
/// lists are one.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Networks(Vec<(Range, Arc<[Number]>)>);

impl Networks {
    /// Cuts overlapping ranges into disjoint ones.
    pub fn new(
        family: Family,
        sets: Vec<(Number, Vec<Range>)>,
        fingerprints: &Fingerprints,
    ) -> Self {
        let bounds = bounds(family, sets);
        let mut all: Vec<(Range, Arc<[Number]>)> = Vec::new();
        let mut within: BTreeSet<Number> = BTreeSet::new();
        let mut sum = 0;
        let mut known: HashMap<u128, Arc<[Number]>> = HashMap::new();
        let mut places = bounds.chunk_by(|a, b| a.at == b.at).peekable();
        while let Some(place) = places.next() {
            for bound in place {
                sum = fingerprints.after(sum, bound);
                if bound.begins {
                    within.insert(bound.list)
                } else {
                    within.remove(&bound.list)
                };
            }
            let before_next = places.peek().map(|next| next[0].at - 1);
            let last = before_next.unwrap_or(addresses::highest(family));
            if !within.is_empty() {
                let entry = known.entry(sum);
                let within = entry.or_insert_with(|| within.iter().copied().collect());
                push(&mut all, (place[0].at, last), within);
            }
        }
        Self(all)
    }

    /// The lists that an address is in.
    pub fn at(&self, address: IpAddr) -> &[Number] {
        let number = addresses::number(address);
        let after = self.0.partition_point(|((first, _), _)| *first <= number);
        match after.checked_sub(1).map(|before| &self.0[before]) {
            Some(((_, last), within)) if number <= *last => within,
            _ => &[],
        }
    }

    /// Each range with the lists that it is in.
    pub fn iter(&self) -> impl Iterator<Item = (Range, &Arc<[Number]>)> {
        self.0.iter().map(|(range, within)| (*range, within))
    }
}

/// Appends a range; one with the same lists as its neighbour becomes part of that.
fn push(all: &mut Vec<(Range, Arc<[Number]>)>, range: Range, within: &Arc<[Number]>) {
    if let Some((before, same)) = all.last_mut()
        && before.1 + 1 == range.0
        && Arc::ptr_eq(same, within)
    {
        before.1 = range.1;
        return;
    }
    all.push((range, Arc::clone(within)));
}
