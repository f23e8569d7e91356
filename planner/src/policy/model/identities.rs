//! The identities of addresses: what rules can tell of an address, with a number.
//!
//! An identity whose members all become the same other thing keeps its number, so that a
//! policy that comes or goes changes no address' element where that can be avoided.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tweed_core::family::Family;
use tweed_core::object::pod::NamedPort;

use super::verdicts::{FIRST_IDENTITY, Number, UNKNOWN};
use crate::numbers::Numbers;

/// What rules can tell of an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Content {
    /// The lists of peers that it is in, in ascending order.
    pub sets: Box<[Number]>,
    /// The pod's named ports of the names that rules of egress use.
    pub ports: Box<[NamedPort]>,
    /// Whether it is a pod that has been listed, while others have not: then rules by labels
    /// are certain about it.
    pub listed: bool,
}

impl Content {
    /// Whether rules cannot tell it from an address that nothing is known of.
    pub fn is_unknown(&self) -> bool {
        self.sets.is_empty() && self.ports.is_empty() && !self.listed
    }
}

/// An identity that is in use.
#[derive(Debug)]
pub struct Identity {
    /// What it means.
    pub content: Arc<Content>,
    /// How many addresses and networks of IPv4 and of IPv6 have it.
    members: [usize; 2],
}

impl Identity {
    /// Whether anything of a family has it.
    pub fn is_of(&self, family: Family) -> bool {
        self.members[family as usize] > 0
    }
}

/// An address or network whose identity changes.
#[derive(Debug, Clone)]
pub struct Move {
    /// Its family.
    pub family: Family,
    /// The identity that it has now, of which it is a member.
    pub was: Option<Number>,
    /// The identity of its addresses now, member or not.
    pub before: Number,
    /// What it becomes; none if it is not there any more.
    pub content: Option<Arc<Content>>,
}

/// All identities in use.
#[derive(Debug)]
pub struct Identities {
    numbers: Numbers,
    by_content: HashMap<Arc<Content>, Number>,
    all: BTreeMap<Number, Identity>,
    /// How many identities each list of peers has.
    having: HashMap<Number, usize>,
}

impl Default for Identities {
    fn default() -> Self {
        Self {
            numbers: Numbers::from(FIRST_IDENTITY),
            by_content: HashMap::new(),
            all: BTreeMap::new(),
            having: HashMap::new(),
        }
    }
}

impl Identities {
    /// The identity with a number.
    pub fn get(&self, number: Number) -> Option<&Identity> {
        self.all.get(&number)
    }

    /// All identities.
    pub fn iter(&self) -> impl Iterator<Item = (Number, &Identity)> {
        self.all
            .iter()
            .map(|(number, identity)| (*number, identity))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// How many identities the list of peers has that has most.
    pub fn most_in_a_list(&self) -> usize {
        self.having.values().copied().max().unwrap_or_default()
    }

    /// How many identities are in each of these lists of peers, together.
    pub fn having(&self, lists: impl IntoIterator<Item = Number>) -> usize {
        let each = lists.into_iter().filter_map(|list| self.having.get(&list));
        each.sum()
    }

    /// The change has ended: numbers that became free in it may be given out again.
    pub fn commit(&mut self) {
        self.numbers.commit();
    }

    /// Carries out moves. The number of each place afterwards ([`UNKNOWN`] if there is
    /// nothing to tell of it), and the identities that are new, gone, mean something
    /// else, or are new to a family or gone from it.
    pub fn apply(&mut self, moves: &[Move]) -> (Vec<Number>, BTreeSet<Number>) {
        let mut touched = self.rename(moves);
        let mut present: BTreeMap<Number, [bool; 2]> = BTreeMap::new();
        let mut numbers = Vec::with_capacity(moves.len());
        for one in moves {
            let number = match &one.content {
                Some(content) => self.number(content, &mut touched),
                None => UNKNOWN,
            };
            numbers.push(number);
            if let Some(identity) = self.all.get_mut(&number) {
                present.entry(number).or_insert_with(|| presence(identity));
                identity.members[one.family as usize] += 1;
            }
            if let Some(was) = one.was
                && let Some(identity) = self.all.get_mut(&was)
            {
                present.entry(was).or_insert_with(|| presence(identity));
                identity.members[one.family as usize] -= 1;
            }
        }
        for (number, before) in present {
            let Some(identity) = self.all.get(&number) else {
                continue;
            };
            if presence(identity) != before {
                touched.insert(number);
            }
            if identity.members == [0, 0] {
                self.by_content.remove(&identity.content);
                uncount(&mut self.having, &identity.content);
                self.all.remove(&number);
                self.numbers.give_back(number);
            }
        }
        (numbers, touched)
    }

    /// The number of a content, a new one if it has none.
    fn number(&mut self, content: &Arc<Content>, touched: &mut BTreeSet<Number>) -> Number {
        if let Some(number) = self.by_content.get(content) {
            return *number;
        }
        let number = self.numbers.take();
        let identity = Identity {
            content: content.clone(),
            members: [0, 0],
        };
        self.all.insert(number, identity);
        count(&mut self.having, content);
        self.by_content.insert(content.clone(), number);
        touched.insert(number);
        number
    }

    /// Gives identities that all their members leave the content that most of these
    /// become, where no identity has it yet.
    fn rename(&mut self, moves: &[Move]) -> BTreeSet<Number> {
        let mut leaving: HashMap<Number, usize> = HashMap::new();
        let mut becoming: HashMap<(Number, &Arc<Content>), usize> = HashMap::new();
        let mut wanted: HashSet<&Arc<Content>> = HashSet::new();
        for one in moves {
            if let Some(was) = one.was {
                *leaving.entry(was).or_default() += 1;
            }
            if let Some(content) = &one.content {
                wanted.insert(content);
                if one.before != UNKNOWN {
                    *becoming.entry((one.before, content)).or_default() += 1;
                }
            }
        }
        let mut candidates: Vec<_> = becoming.into_iter().collect();
        candidates.sort_unstable_by_key(|((number, _), count)| (usize::MAX - count, *number));
        let mut renamed = BTreeSet::new();
        for ((number, content), _) in candidates {
            let Some(identity) = self.all.get_mut(&number) else {
                continue;
            };
            let members: usize = identity.members.iter().sum();
            let left = leaving.get(&number).is_some_and(|count| *count == members);
            let free = !self.by_content.contains_key(content);
            if left && free && !wanted.contains(&identity.content) && renamed.insert(number) {
                self.by_content.remove(&identity.content);
                uncount(&mut self.having, &identity.content);
                count(&mut self.having, content);
                identity.content = content.clone();
                self.by_content.insert(content.clone(), number);
            }
        }
        renamed
    }
}

fn count(having: &mut HashMap<Number, usize>, content: &Content) {
    for list in &content.sets {
        *having.entry(*list).or_default() += 1;
    }
}

fn uncount(having: &mut HashMap<Number, usize>, content: &Content) {
    for list in &content.sets {
        if let Entry::Occupied(mut entry) = having.entry(*list) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

fn presence(identity: &Identity) -> [bool; 2] {
    identity.members.map(|count| count > 0)
}
