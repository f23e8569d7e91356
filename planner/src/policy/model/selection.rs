//! Which kinds of pods each of many lists of peers has, found together.
//!
//! A policy may have thousands of selectors, and each may be about every kind. So they are not
//! asked one by one of each kind: what a selector selects is put together from the kinds that
//! have each of its labels, which costs what the selector says, and a bit for each kind.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tweed_core::object::selector::{LabelSelector, Labels, Operator};

use super::labels::Kind;
use super::rules::{Atom, Namespaces};
use super::verdicts::Number;

/// Maximum number of selectors of namespaces of which it is remembered what they select.
const MAX_KNOWN: usize = 1024;

/// A set of places in a list of things.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Places(Vec<u64>);

impl Places {
    fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn all(count: usize) -> Self {
        let mut all = Self(vec![u64::MAX; count.div_ceil(64)]);
        if let Some(last) = all.0.last_mut()
            && !count.is_multiple_of(64)
        {
            *last = (1 << (count % 64)) - 1;
        }
        all
    }

    fn insert(&mut self, place: u32) {
        self.0[place as usize / 64] |= 1 << (place % 64);
    }

    fn remove(&mut self, place: u32) {
        self.0[place as usize / 64] &= !(1 << (place % 64));
    }

    fn keep(&mut self, others: &Self) {
        let each = self.0.iter_mut().zip(&others.0);
        each.for_each(|(word, other)| *word &= other);
    }

    fn extend(&mut self, others: &Self) {
        let each = self.0.iter_mut().zip(&others.0);
        each.for_each(|(word, other)| *word |= other);
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| at * 64 + bit)
        })
    }
}

/// Things with labels, by the labels that selectors ask for.
#[derive(Debug)]
struct Labelled<'a> {
    count: usize,
    /// The things that have a label with any value.
    keys: HashMap<&'a str, Vec<u32>>,
    /// The things that have a label with this value.
    values: HashMap<(&'a str, &'a str), Vec<u32>>,
}

impl<'a> Labelled<'a> {
    fn new<L: Iterator<Item = (&'a str, &'a str)>>(
        things: impl Iterator<Item = L>,
        asked: &HashSet<&str>,
    ) -> Self {
        let mut all = Self {
            count: 0,
            keys: HashMap::new(),
            values: HashMap::new(),
        };
        for (place, labels) in (0..).zip(things) {
            all.count += 1;
            for (key, value) in labels.filter(|(key, _)| asked.contains(key)) {
                all.keys.entry(key).or_default().push(place);
                all.values.entry((key, value)).or_default().push(place);
            }
        }
        all
    }

    /// The things that a selector selects.
    fn selected(&self, selector: &LabelSelector) -> Places {
        let mut left = Places::all(self.count);
        for (key, value) in &selector.match_labels {
            left.keep(&self.having(self.with(key, value)));
        }
        for one in &selector.match_expressions {
            let values = one
                .values
                .iter()
                .flat_map(|value| self.with(&one.key, value));
            let any = self.keys.get(one.key.as_str()).into_iter().flatten();
            match one.operator {
                Operator::In => left.keep(&self.having(values)),
                Operator::NotIn => values.for_each(|place| left.remove(*place)),
                Operator::Exists => left.keep(&self.having(any)),
                Operator::DoesNotExist => any.for_each(|place| left.remove(*place)),
                Operator::Unknown(_) => left = Places::none(self.count),
            }
        }
        left
    }

    fn with<'b>(&'b self, key: &'b str, value: &'b str) -> impl Iterator<Item = &'b u32> {
        self.values.get(&(key, value)).into_iter().flatten()
    }

    fn having<'b>(&self, places: impl Iterator<Item = &'b u32>) -> Places {
        let mut all = Places::none(self.count);
        places.for_each(|place| all.insert(*place));
        all
    }
}

/// The keys of labels that a selector asks for.
fn keys(selector: &LabelSelector) -> impl Iterator<Item = &str> {
    let expressions = selector.match_expressions.iter().map(|one| &one.key);
    let labels = selector.match_labels.iter().map(|(key, _)| key);
    let keys = labels.chain(expressions);
    keys.map(String::as_str)
}

/// Kinds of pods, and what lists of peers may ask about them.
struct Kinds<'a> {
    pods: Labelled<'a>,
    namespaces: Labelled<'a>,
    /// The kinds of each namespace, at its place in `namespaces`.
    members: Vec<Vec<u32>>,
    places: HashMap<&'a str, usize>,
}

impl Kinds<'_> {
    /// The kinds in these namespaces.
    fn within(&self, namespaces: &Namespaces) -> Places {
        let mut all = Places::none(self.pods.count);
        let add = |at: usize| self.members[at].iter().for_each(|place| all.insert(*place));
        match namespaces {
            Namespaces::Named(name) => {
                self.places
                    .get(name.as_str())
                    .copied()
                    .into_iter()
                    .for_each(add);
            }
            Namespaces::Selected(selector) => {
                self.namespaces.selected(selector).iter().for_each(add);
            }
        }
        all
    }
}

/// The lists that pods of each of these kinds are in, in ascending order as the lists are.
/// `labels` are those of the kinds' namespaces.
pub fn lists_of<'a>(
    kinds: &[Arc<Kind>],
    labels: &BTreeMap<Arc<str>, Labels>,
    lists: impl Iterator<Item = (Number, &'a [Atom])> + Clone,
) -> Vec<Vec<Number>> {
    let (mut of_pods, mut of_namespaces) = (HashSet::new(), HashSet::new());
    for atom in lists.clone().flat_map(|(_, atoms)| atoms.iter()) {
        if let Atom::Pods(namespaces, pods) = atom {
            of_pods.extend(keys(pods));
            if let Namespaces::Selected(selector) = namespaces {
                of_namespaces.extend(keys(selector));
            }
        }
    }
    let names = labels.keys().enumerate();
    let places: HashMap<&str, usize> = names.map(|(at, name)| (&**name, at)).collect();
    let mut members = vec![Vec::new(); labels.len()];
    for (place, kind) in (0..).zip(kinds) {
        if let Some(at) = places.get(&*kind.namespace) {
            members[*at].push(place);
        }
    }
    let of_namespace = labels.values().map(|labels| {
        let each = labels.iter();
        each.map(|(key, value)| (key.as_str(), value.as_str()))
    });
    let kinds = Kinds {
        pods: Labelled::new(kinds.iter().map(|kind| kind.labels.iter()), &of_pods),
        namespaces: Labelled::new(of_namespace, &of_namespaces),
        members,
        places,
    };
    let mut found = vec![Vec::new(); kinds.pods.count];
    let mut known: HashMap<&Namespaces, Places> = HashMap::new();
    for (number, atoms) in lists {
        let mut of_list = Places::none(kinds.pods.count);
        for atom in atoms {
            if let Atom::Pods(namespaces, pods) = atom {
                let entry = known.entry(namespaces);
                let there = entry.or_insert_with(|| kinds.within(namespaces));
                let mut selected = kinds.pods.selected(pods);
                selected.keep(there);
                of_list.extend(&selected);
            }
            if known.len() > MAX_KNOWN {
                known.clear();
            }
        }
        of_list.iter().for_each(|at| found[at].push(number));
    }
    found
}

#[cfg(test)]
mod tests {
    use tweed_core::object::selector::Requirement;

    use super::*;
    use crate::policy::model::labels::Interner;
    use crate::policy::model::peer_sets::selects_kind;
    use crate::tests::dice::Dice;

    const KEYS: [&str; 3] = ["a", "b", "c"];
    const VALUES: [&str; 3] = ["1", "2", "3"];

    fn random_labels(dice: &mut Dice) -> Labels {
        let keys: Vec<&str> = KEYS.into_iter().filter(|_| !dice.chance(3)).collect();
        let label = |key: &str| (key.to_owned(), (*dice.pick(&VALUES)).to_owned());
        keys.into_iter().map(label).collect()
    }

    fn random_selector(dice: &mut Dice) -> LabelSelector {
        let operators = [
            Operator::In,
            Operator::NotIn,
            Operator::Exists,
            Operator::DoesNotExist,
            Operator::Unknown("Gt".to_owned()),
        ];
        let mut requirement = || Requirement {
            key: (*dice.pick(&KEYS)).to_owned(),
            operator: dice.pick(&operators).clone(),
            values: VALUES[..dice.roll(3)]
                .iter()
                .map(ToString::to_string)
                .collect(),
        };
        let two = [requirement(), requirement()];
        let match_expressions = two.into_iter().take(dice.roll(3)).collect();
        let labels = random_labels(dice).into_iter();
        let match_labels = labels.filter(|_| dice.chance(3)).collect();
        LabelSelector {
            match_labels,
            match_expressions,
        }
    }

    /// Each selector asked of each kind by itself says the same.
    #[test]
    fn kinds_are_in_the_lists_that_select_them() {
        let (mut dice, mut interner) = (Dice(7), Interner::default());
        for _ in 0..60 {
            let names: Vec<Arc<str>> = ["n1", "n2", "n3"].map(Arc::from).into();
            let labelled = |name: &Arc<str>| (name.clone(), random_labels(&mut dice));
            let labels: BTreeMap<Arc<str>, Labels> = names.iter().map(labelled).collect();
            let kind = |_| {
                let labels = random_labels(&mut dice);
                interner.kind(&names[dice.roll(3)], &labels, &[])
            };
            let kinds: Vec<Arc<Kind>> = (0..130).map(kind).collect();
            let list = |_| {
                let atom = |_| {
                    let namespaces = match dice.roll(3) {
                        0 => Namespaces::Named("n2".to_owned()),
                        1 => Namespaces::Named("nowhere".to_owned()),
                        _ => Namespaces::Selected(random_selector(&mut dice)),
                    };
                    Atom::Pods(namespaces, random_selector(&mut dice))
                };
                (0..3).map(atom).collect::<Vec<_>>()
            };
            let lists: Vec<Vec<Atom>> = (0..20).map(list).collect();
            let found = lists_of(&kinds, &labels, (0..).zip(lists.iter().map(Vec::as_slice)));
            for (kind, found) in kinds.iter().zip(found) {
                let of = &labels[&kind.namespace];
                let selects = |list: &[Atom]| {
                    let mut atoms = list.iter();
                    atoms.any(|atom| selects_kind(atom, kind, of))
                };
                let selecting = (0..).zip(&lists).filter(|(_, list)| selects(list));
                let expected: Vec<Number> = selecting.map(|(number, _)| number).collect();
                assert_eq!(found, expected, "{kind:?} {lists:#?}");
            }
        }
    }
}
