//! What local addresses are allowed with identities.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use tweed_core::family::Family;
use tweed_core::keyed::{self, Entry};

use super::Model;
use super::class::{Class, Matching};
use super::identify::Identified;
use super::identities::Content;
use super::local::Local;
use super::profiles::{Allowed, Move, Profiles};
use super::verdicts::{Changing, DIRECTIONS, Direction, Number, SELF, UNKNOWN, Verdicts};
use crate::tables::{put, put_into};

/// The identities with which something is allowed, in ascending order.
type AllAllowed = Rc<[(Number, Allowed)]>;

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
        let mut judges = HashMap::new();
        for (address, local) in &self.locals {
            let anew = self.pending.locals.contains(address);
            let number = verdicts.desired.identity_of(*address);
            let own = anew
                || identified.addresses.contains(address)
                || identified.touched.contains(&number);
            let family = Family::of(*address);
            for direction in DIRECTIONS {
                let Some(class) = local.classes.get(direction) else {
                    if anew {
                        moves.extend(forbid(verdicts.desired, direction, *address));
                    }
                    continue;
                };
                let judge = judges.entry(Arc::as_ptr(class));
                let judge = judge.or_insert_with(|| Judge::new(class, &self.profiles));
                if anew {
                    let twin = || {
                        let twin = self.twin(direction, class, family)?;
                        Some(pairs_of(verdicts.desired, direction, twin))
                    };
                    let all = judge.all(self, verdicts.desired, identified, family, twin);
                    moves.extend(replace(verdicts.desired, direction, *address, &all));
                } else {
                    for number in &identified.touched {
                        let allowed = self.allowed(judge, family, *number);
                        let key = (*address, *number);
                        moves.extend(move_of(verdicts.desired, direction, key, allowed));
                    }
                }
                if own {
                    let identity = self.identities.get(number);
                    let content = identity.map(|one| one.content.clone());
                    let allowed = judge.with_itself(&content.unwrap_or_default());
                    let key = (*address, SELF);
                    moves.extend(move_of(verdicts.desired, direction, key, allowed));
                }
            }
            if anew {
                let policed = DIRECTIONS.map(|one| local.classes.get(one).is_some());
                police(verdicts, *address, policed);
            }
        }
        drop(judges);
        self.profiles.apply(verdicts, &moves);
    }

    /// A local address of a family with the same rules of which the pairs are there already:
    /// all that they follow from is its rules and the identities of its family.
    fn twin(&self, direction: Direction, class: &Arc<Class>, family: Family) -> Option<IpAddr> {
        let same = |(one, local): &(&IpAddr, &Local)| {
            let of = local.classes.get(direction).as_ref();
            Family::of(**one) == family
                && !self.pending.locals.contains(*one)
                && of.is_some_and(|of| Arc::ptr_eq(of, class))
        };
        self.locals.iter().find(same).map(|(one, _)| *one)
    }

    /// What is allowed with an identity.
    fn allowed(&self, judge: &mut Judge<'_>, family: Family, number: Number) -> Option<Allowed> {
        let identity = self.identities.get(number)?;
        let content = identity.is_of(family).then(|| identity.content.clone())?;
        judge.allowed(&content)
    }
}

/// Says what one pod's rules in one direction allow, and remembers it for identities that the
/// same rules are about.
struct Judge<'a> {
    class: &'a Class,
    profiles: &'a Profiles,
    known: HashMap<Matching, Option<Allowed>>,
    /// What is allowed with all identities of a family.
    all: [Option<AllAllowed>; 2],
}

impl<'a> Judge<'a> {
    fn new(class: &'a Class, profiles: &'a Profiles) -> Self {
        Self {
            class,
            profiles,
            known: HashMap::new(),
            all: [None, None],
        }
    }

    /// What is allowed with an identity.
    fn allowed(&mut self, content: &Content) -> Option<Allowed> {
        let matching = self.class.matching(&content.sets);
        // With named ports it also depends on the ports of the destination.
        let has_names = self.class.has_names(&matching);
        if !has_names && let Some(known) = self.known.get(&matching) {
            return known.clone();
        }
        let set = self.class.allowed(&matching, &content.ports, false);
        let allowed = self.profiles.find(set);
        if !has_names {
            self.known.insert(matching, allowed.clone());
        }
        allowed
    }

    /// What is allowed for a flow of the pod, which has this identity, to itself.
    fn with_itself(&self, content: &Content) -> Option<Allowed> {
        let matching = self.class.matching(&content.sets);
        let set = self.class.allowed(&matching, &content.ports, true);
        self.profiles.find(set)
    }

    /// What is allowed with each identity of a family. For those that have not changed it is
    /// what the pairs of a `twin` say.
    fn all<T: Iterator<Item = (Number, Number)>>(
        &mut self,
        model: &Model,
        verdicts: &Verdicts,
        identified: &Identified,
        family: Family,
        twin: impl FnOnce() -> Option<T>,
    ) -> AllAllowed {
        if let Some(all) = &self.all[family as usize] {
            return Rc::clone(all);
        }
        let mut all: Vec<(Number, Allowed)> = Vec::new();
        match twin() {
            Some(pairs) => {
                let stays = |one: &Number| *one != SELF && !identified.touched.contains(one);
                let stay = pairs.filter(|(one, _)| stays(one));
                let of = |(one, profile)| Some((one, Allowed::of(verdicts, profile)?));
                all.extend(stay.filter_map(of));
                for number in &identified.touched {
                    let allowed = model.allowed(self, family, *number);
                    all.extend(allowed.map(|allowed| (*number, allowed)));
                }
                all.sort_unstable_by_key(|(number, _)| *number);
            }
            None => {
                let unknown = self.allowed(&Content::default());
                all.extend(unknown.map(|allowed| (UNKNOWN, allowed)));
                let identities = model.identities.iter();
                for (number, identity) in identities.filter(|(_, one)| one.is_of(family)) {
                    let allowed = self.allowed(&identity.content);
                    all.extend(allowed.map(|allowed| (number, allowed)));
                }
            }
        }
        Rc::clone(self.all[family as usize].insert(all.into()))
    }
}

/// The identities that a local address has profiles for, in ascending order.
fn pairs_of(
    verdicts: &Verdicts,
    direction: Direction,
    address: IpAddr,
) -> impl Iterator<Item = (Number, Number)> {
    let pairs = verdicts.pairs.get(direction);
    let pairs = pairs.range((address, 0)..=(address, Number::MAX));
    pairs.map(|((_, number), profile)| (*number, *profile))
}

/// What changes where this is allowed, and was not.
fn move_of(
    verdicts: &Verdicts,
    direction: Direction,
    key: (IpAddr, Number),
    allowed: Option<Allowed>,
) -> Option<Move> {
    let was = verdicts.pairs.get(direction).get(&key).copied();
    let one = Move {
        direction,
        key,
        was,
        allowed,
    };
    one.changes().then_some(one)
}

/// What changes where a local address is allowed `all` this, and nothing with other
/// identities but its own.
fn replace(
    verdicts: &Verdicts,
    direction: Direction,
    address: IpAddr,
    all: &[(Number, Allowed)],
) -> impl Iterator<Item = Move> {
    let old = pairs_of(verdicts, direction, address).filter(|(number, _)| *number != SELF);
    let new = all.iter().map(|(number, allowed)| (*number, allowed));
    let entries = keyed::compare(old, new).map(move |entry| {
        let (number, was, allowed) = match entry {
            Entry::First(number, was) => (number, Some(was), None),
            Entry::Second(number, allowed) => (number, None, Some(allowed.clone())),
            Entry::Both(number, was, allowed) => (number, Some(was), Some(allowed.clone())),
        };
        Move {
            direction,
            key: (address, number),
            was,
            allowed,
        }
    });
    entries.filter(Move::changes)
}

/// What changes where a local address is allowed nothing.
fn forbid(
    verdicts: &Verdicts,
    direction: Direction,
    address: IpAddr,
) -> impl Iterator<Item = Move> {
    let old = pairs_of(verdicts, direction, address);
    old.map(move |(number, was)| Move {
        direction,
        key: (address, number),
        was: Some(was),
        allowed: None,
    })
}

fn police(verdicts: &mut Changing<'_>, address: IpAddr, policed: [bool; 2]) {
    let Changing { desired, delta } = verdicts;
    for (direction, policed) in DIRECTIONS.into_iter().zip(policed) {
        let delta = delta.as_mut().map(|delta| delta.policed.get_mut(direction));
        let policed = policed.then_some(());
        put_into(desired.policed.get_mut(direction), delta, address, policed);
    }
    let policed = policed.contains(&true).then_some(());
    put!(verdicts, selves, address, policed);
}
