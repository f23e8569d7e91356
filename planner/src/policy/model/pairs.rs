//! What local addresses are allowed with identities.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;
use tweed_core::keyed::{self, Entry};

use super::Model;
use super::class::{Class, Matching};
use super::identify::Identified;
use super::identities::{Content, Identities, Identity};
use super::local::Local;
use super::profiles::{Allowed, Move, Profiles};
use super::verdicts::{Changing, DIRECTIONS, Direction, Number, SELF, UNKNOWN, Verdicts};
use crate::tables::{put, put_into};

/// A local address and a direction in which policies apply to it.
type Side = (IpAddr, Direction);

impl Model {
    /// Brings the pairs of local addresses and identities up to date.
    pub(super) fn pair(&mut self, identified: &Identified, verdicts: &mut Changing<'_>) {
        let mut moves = Vec::new();
        for address in std::mem::take(&mut self.pending.gone) {
            if !self.locals.contains_key(&address) {
                for direction in DIRECTIONS {
                    moves.extend(forbid(verdicts.desired, direction, address));
                }
                police(verdicts, address, [false; 2]);
            }
        }
        // Sides that have no pairs yet come last: mostly they get those of another one.
        let mut new: BTreeSet<Side> = BTreeSet::new();
        let mut others: Vec<(&Arc<Class>, Vec<Side>)> = Vec::new();
        let mut judges = HashMap::new();
        for (address, local) in &self.locals {
            let anew = self.pending.locals.contains(address);
            let number = verdicts.desired.identity_of(*address);
            let own = anew
                || identified.addresses.contains(address)
                || identified.touched.contains(&number);
            for direction in DIRECTIONS {
                let Some(class) = local.classes.get(direction) else {
                    if anew {
                        moves.extend(forbid(verdicts.desired, direction, *address));
                    }
                    continue;
                };
                if anew
                    && pairs_of(verdicts.desired, direction, *address)
                        .next()
                        .is_none()
                {
                    new.insert((*address, direction));
                    continue;
                }
                let entry = judges.entry(Arc::as_ptr(class));
                let judge = entry.or_insert_with(|| Judge::new(class, &self.profiles));
                if anew {
                    let side = (*address, direction);
                    match others.iter_mut().find(|(one, _)| Arc::ptr_eq(one, class)) {
                        Some((_, sides)) => sides.push(side),
                        None => others.push((class, vec![side])),
                    }
                } else {
                    for number in &identified.touched {
                        let identity = self.identities.get(*number);
                        let of_family = identity.filter(|one| one.is_of(Family::of(*address)));
                        let place = of_family.and_then(|one| judge.allowed(&one.content));
                        let allowed = place.map(|at| &judge.found[at]);
                        let key = (*address, *number);
                        moves.extend(move_of(verdicts.desired, direction, key, allowed));
                    }
                }
                if own {
                    let allowed = judge.with_itself(self.identities.get(number));
                    let key = (*address, SELF);
                    moves.extend(move_of(verdicts.desired, direction, key, allowed.as_ref()));
                }
            }
            if anew {
                let policed = DIRECTIONS.map(|one| local.classes.get(one).is_some());
                police(verdicts, *address, policed);
            }
        }
        for (class, sides) in others {
            let mut judge = Judge::new(class, &self.profiles);
            for family in Family::BOTH {
                let has_family = |(address, _): &&Side| Family::of(*address) == family;
                let mut of_family = sides.iter().filter(has_family).peekable();
                if of_family.peek().is_some() {
                    let all = judge.all(&self.identities, family);
                    for side in of_family {
                        moves.extend(replace(verdicts.desired, *side, &all, &judge.found));
                    }
                }
            }
        }
        drop(judges);
        self.profiles.apply(verdicts, &moves);
        drop(moves);
        while let Some(side) = new.pop_first() {
            self.pair_new(side, &new, verdicts);
        }
        self.profiles.take_away(verdicts);
    }

    /// All pairs of a side that has none yet; others are `left` like it.
    fn pair_new(
        &mut self,
        (address, direction): Side,
        left: &BTreeSet<Side>,
        verdicts: &mut Changing<'_>,
    ) {
        let family = Family::of(address);
        let class = self.locals.get(&address);
        let Some(class) = class.and_then(|local| local.classes.get(direction).as_ref()) else {
            return;
        };
        // All that pairs follow from is the rules and the identities of the family.
        let is_twin = |(one, local): &(&IpAddr, &Local)| {
            let of = local.classes.get(direction).as_ref();
            **one != address
                && Family::of(**one) == family
                && !left.contains(&(**one, direction))
                && of.is_some_and(|of| Arc::ptr_eq(of, class))
        };
        let twin = self.locals.iter().find(is_twin).map(|(one, _)| *one);
        let mut judge = Judge::new(class, &self.profiles);
        let number = verdicts.desired.identity_of(address);
        let itself = judge.with_itself(self.identities.get(number));
        let key = |number| (address, number);
        if let Some(twin) = twin {
            let of_twin = pairs_of(verdicts.desired, direction, twin);
            let pairs: Vec<_> = of_twin.filter(|(number, _)| *number != SELF).collect();
            for (number, profile) in pairs {
                self.profiles
                    .put_again(verdicts, direction, key(number), profile);
            }
        } else {
            let all = judge.all(&self.identities, family).into_iter();
            let Judge { found, .. } = judge;
            let pairs = all.map(|(number, at)| (direction, key(number), Some(&found[at])));
            self.profiles.put(verdicts, pairs);
        }
        let pair = |allowed| (direction, key(SELF), Some(allowed));
        self.profiles.put(verdicts, itself.iter().map(pair));
    }
}

/// Says what one pod's rules in one direction allow, and remembers it for identities that the
/// same rules are about.
struct Judge<'a> {
    class: &'a Class,
    profiles: &'a Profiles,
    /// What is said about the identity that was last asked for.
    matching: Matching,
    known: HashMap<Matching, Option<usize>>,
    /// What is allowed with any identity.
    found: Vec<Allowed>,
}

impl<'a> Judge<'a> {
    fn new(class: &'a Class, profiles: &'a Profiles) -> Self {
        Self {
            class,
            profiles,
            matching: Matching::default(),
            known: HashMap::new(),
            found: Vec::new(),
        }
    }

    /// What is allowed with an identity, as its place in `found`.
    fn allowed(&mut self, content: &Content) -> Option<usize> {
        self.class.match_into(content, &mut self.matching);
        // With named ports it also depends on the ports of the destination.
        let has_names = self.class.has_names(&self.matching);
        if !has_names && let Some(known) = self.known.get(&self.matching) {
            return *known;
        }
        let set = self.class.allowed(&self.matching, &content.ports, false);
        let allowed = self.profiles.find(set).map(|allowed| {
            self.found.push(allowed);
            self.found.len() - 1
        });
        if !has_names {
            self.known.insert(self.matching.clone(), allowed);
        }
        allowed
    }

    /// What is allowed for a flow of the pod, which has this identity, to itself.
    fn with_itself(&self, identity: Option<&Identity>) -> Option<Allowed> {
        let content = identity.map(|one| one.content.clone()).unwrap_or_default();
        let matching = self.class.matching(&content);
        let set = self.class.allowed(&matching, &content.ports, true);
        self.profiles.find(set)
    }

    /// The identities of a family with which something is allowed, in ascending order.
    fn all(&mut self, identities: &Identities, family: Family) -> Vec<(Number, usize)> {
        let unknown = self.allowed(&Content::default());
        let all = unknown.map(|at| (UNKNOWN, at)).into_iter();
        let of_family = identities.iter().filter(|(_, one)| one.is_of(family));
        let known =
            of_family.filter_map(|(number, one)| Some((number, self.allowed(&one.content)?)));
        all.chain(known).collect()
    }
}

/// The identities that a local address has profiles for, in ascending order.
fn pairs_of(
    verdicts: &Verdicts,
    direction: Direction,
    address: IpAddr,
) -> impl Iterator<Item = (Number, Number)> {
    let all = verdicts.pairs.get(direction);
    let pairs = all.range((address, 0)..=(address, Number::MAX));
    pairs.map(|((_, number), profile)| (*number, *profile))
}

/// What changes where this is allowed, and was not.
fn move_of(
    verdicts: &Verdicts,
    direction: Direction,
    key: (IpAddr, Number),
    allowed: Option<&Allowed>,
) -> Option<Move> {
    let was = verdicts.pairs.get(direction).get(&key).copied();
    Move::of(direction, key, was, allowed)
}

/// What changes where `all` this is allowed, and nothing with other identities but the own one.
fn replace(
    verdicts: &Verdicts,
    (address, direction): Side,
    all: &[(Number, usize)],
    found: &[Allowed],
) -> impl Iterator<Item = Move> {
    let old = pairs_of(verdicts, direction, address).filter(|(number, _)| *number != SELF);
    let entries = keyed::compare(old, all.iter().copied());
    entries.filter_map(move |entry| {
        let (number, was, at) = match entry {
            Entry::First(number, was) => (number, Some(was), None),
            Entry::Second(number, at) => (number, None, Some(at)),
            Entry::Both(number, was, at) => (number, Some(was), Some(at)),
        };
        Move::of(direction, (address, number), was, at.map(|at| &found[at]))
    })
}

/// What changes where a local address is allowed nothing.
fn forbid(
    verdicts: &Verdicts,
    direction: Direction,
    address: IpAddr,
) -> impl Iterator<Item = Move> {
    let old = pairs_of(verdicts, direction, address);
    old.filter_map(move |(number, was)| Move::of(direction, (address, number), Some(was), None))
}

fn police(verdicts: &mut Changing<'_>, address: IpAddr, policed: [bool; 2]) {
    let Changing { desired, delta } = verdicts;
    for (direction, is_policed) in DIRECTIONS.into_iter().zip(policed) {
        let addresses = desired.policed.get_mut(direction);
        let changes = delta.as_mut().map(|delta| delta.policed.get_mut(direction));
        put_into(addresses, changes, address, is_policed.then_some(()));
    }
    let any = policed.contains(&true).then_some(());
    put!(verdicts, selves, address, any);
}
