//! The profiles of local addresses and identities.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use tweed_core::family::Family;
use tweed_core::keyed::{self, Entry};

use super::Model;
use super::class::Class;
use super::identify::Identified;
use super::identities::Content;
use super::local::Local;
use super::ports::PortSet;
use super::profiles::Profiles;
use super::verdicts::{Changing, DIRECTIONS, Direction, Number, SELF, UNKNOWN, Verdicts};
use crate::tables::{put, put_into};

impl Model {
    /// Brings the pairs of local addresses and identities up to date.
    pub(super) fn pair(&mut self, identified: &Identified, verdicts: &mut Changing<'_>) {
        for address in std::mem::take(&mut self.pending.gone) {
            if !self.locals.contains_key(&address) {
                for direction in DIRECTIONS {
                    self.clear(verdicts, address, direction);
                }
            }
        }
        let locals = std::mem::take(&mut self.locals);
        for (address, local) in &locals {
            let anew = self.pending.locals.contains(address);
            let number = verdicts.desired.identity_of(*address);
            let own = anew
                || identified.addresses.contains(address)
                || identified.touched.contains(&number);
            for direction in DIRECTIONS {
                let Some(class) = local.classes.get(direction) else {
                    if anew {
                        self.clear(verdicts, *address, direction);
                    }
                    continue;
                };
                let twin = || self.twin(&locals, *address, direction, class);
                match anew.then(twin) {
                    Some(Some(twin)) => {
                        self.pair_as(verdicts, *address, direction, twin);
                        self.pair_some(verdicts, *address, direction, class, identified);
                    }
                    Some(None) => self.pair_all(verdicts, *address, direction, class),
                    None => self.pair_some(verdicts, *address, direction, class, identified),
                }
                if own {
                    let identity = self.identities.get(number);
                    let content = identity.map(|one| one.content.clone());
                    let content = content.as_deref().cloned().unwrap_or_default();
                    let matching = class.matching(&content.sets);
                    let set = class.allowed(&matching, &content.ports, true);
                    self.set_pair(verdicts, (*address, SELF), direction, &set);
                }
            }
            if anew {
                let policed = DIRECTIONS.map(|one| local.classes.get(one).is_some());
                police(verdicts, *address, policed);
            }
        }
        self.locals = locals;
    }

    /// Another local address with the same rules whose pairs are there already: all that
    /// they follow from is its rules and the identities of its family.
    fn twin(
        &self,
        locals: &BTreeMap<IpAddr, Local>,
        address: IpAddr,
        direction: Direction,
        class: &Class,
    ) -> Option<IpAddr> {
        let is_paired = |one: &IpAddr| *one < address || !self.pending.locals.contains(one);
        let same = |local: &Local| local.classes.get(direction).as_deref() == Some(class);
        let mut locals = locals.iter().filter(|(one, _)| {
            **one != address && Family::of(**one) == Family::of(address) && is_paired(one)
        });
        locals.find(|(_, local)| same(local)).map(|(one, _)| *one)
    }

    /// The same identities for a local address as another one has.
    fn pair_as(
        &mut self,
        verdicts: &mut Changing<'_>,
        address: IpAddr,
        direction: Direction,
        twin: IpAddr,
    ) {
        let wanted: Vec<_> = pairs_of(verdicts.desired, direction, twin)
            .filter(|(number, _)| *number != SELF)
            .collect();
        for (_, profile) in &wanted {
            self.profiles.use_again(*profile);
        }
        self.replace(verdicts, address, direction, wanted);
    }

    /// All identities for a local address.
    fn pair_all(
        &mut self,
        verdicts: &mut Changing<'_>,
        address: IpAddr,
        direction: Direction,
        class: &Class,
    ) {
        let mut judge = Judge {
            class,
            profiles: &mut self.profiles,
            verdicts,
            matching: Vec::new(),
            known: HashMap::new(),
        };
        let mut wanted = Vec::new();
        let unknown = judge.profile(&Content::default());
        wanted.extend(unknown.map(|profile| (UNKNOWN, profile)));
        let family = Family::of(address);
        for (number, identity) in self.identities.iter().filter(|(_, one)| one.is_of(family)) {
            let profile = judge.profile(&identity.content);
            wanted.extend(profile.map(|profile| (number, profile)));
        }
        self.replace(verdicts, address, direction, wanted);
    }

    /// Gives a local address these profiles for identities, and none for all others but
    /// itself. Each profile counts as used once more already.
    fn replace(
        &mut self,
        verdicts: &mut Changing<'_>,
        address: IpAddr,
        direction: Direction,
        wanted: Vec<(Number, Number)>,
    ) {
        let old: Vec<_> = pairs_of(verdicts.desired, direction, address)
            .filter(|(number, _)| *number != SELF)
            .collect();
        for entry in keyed::compare(old, wanted) {
            let (number, was, is) = match entry {
                Entry::First(number, was) => (number, Some(was), None),
                Entry::Second(number, is) => (number, None, Some(is)),
                Entry::Both(number, was, is) => (number, Some(was), Some(is)),
            };
            if was != is {
                put_pair(verdicts, direction, (address, number), is);
            }
            if let Some(was) = was {
                self.profiles.release(was, verdicts);
            }
        }
    }

    /// The identities that have changed for a local address.
    fn pair_some(
        &mut self,
        verdicts: &mut Changing<'_>,
        address: IpAddr,
        direction: Direction,
        class: &Class,
        identified: &Identified,
    ) {
        let family = Family::of(address);
        for number in &identified.touched {
            let identity = self.identities.get(*number).filter(|one| one.is_of(family));
            let set = identity.map(|identity| {
                let matching = class.matching(&identity.content.sets);
                class.allowed(&matching, &identity.content.ports, false)
            });
            self.set_pair(
                verdicts,
                (address, *number),
                direction,
                &set.unwrap_or_default(),
            );
        }
    }

    /// Gives a local address the profile for an identity that allows this; none for nothing.
    fn set_pair(
        &mut self,
        verdicts: &mut Changing<'_>,
        key: (IpAddr, Number),
        direction: Direction,
        set: &PortSet,
    ) {
        let old = verdicts.desired.allowed(direction, key.0, key.1);
        if old.map_or(set.is_empty(), |old| old == set) {
            return;
        }
        let old = verdicts.desired.pairs.get(direction).get(&key).copied();
        let new = self.profiles.acquire(set, verdicts);
        put_pair(verdicts, direction, key, new);
        if let Some(old) = old {
            self.profiles.release(old, verdicts);
        }
    }

    /// No policy is about this address in this direction.
    fn clear(&mut self, verdicts: &mut Changing<'_>, address: IpAddr, direction: Direction) {
        self.replace(verdicts, address, direction, Vec::new());
        self.set_pair(verdicts, (address, SELF), direction, &PortSet::default());
        police_one(verdicts, address, direction, false);
        let policed = &verdicts.desired.policed;
        if !DIRECTIONS
            .iter()
            .any(|one| policed.get(*one).contains(&address))
        {
            put!(verdicts, selves, address, None);
        }
    }
}

fn police(verdicts: &mut Changing<'_>, address: IpAddr, policed: [bool; 2]) {
    for (direction, policed) in DIRECTIONS.into_iter().zip(policed) {
        police_one(verdicts, address, direction, policed);
    }
    let policed = policed.contains(&true).then_some(());
    put!(verdicts, selves, address, policed);
}

fn police_one(verdicts: &mut Changing<'_>, address: IpAddr, direction: Direction, policed: bool) {
    let Changing { desired, delta } = verdicts;
    let delta = delta.as_mut().map(|delta| delta.policed.get_mut(direction));
    let policed = policed.then_some(());
    put_into(desired.policed.get_mut(direction), delta, address, policed);
}

/// Finds the profiles of a class, and remembers them for identities that the same rules
/// are about.
struct Judge<'a, 'v> {
    class: &'a Class,
    profiles: &'a mut Profiles,
    verdicts: &'a mut Changing<'v>,
    /// The rules that are about an identity.
    matching: Vec<usize>,
    known: HashMap<Vec<usize>, Option<Number>>,
}

impl Judge<'_, '_> {
    /// The profile for an identity, which is used once more; none for nothing.
    fn profile(&mut self, content: &Content) -> Option<Number> {
        self.class.match_into(&content.sets, &mut self.matching);
        // With named ports it also depends on the ports of the destination.
        let has_names = self.class.has_names(&self.matching);
        if !has_names && let Some(known) = self.known.get(&self.matching) {
            if let Some(profile) = known {
                self.profiles.use_again(*profile);
            }
            return *known;
        }
        let set = self.class.allowed(&self.matching, &content.ports, false);
        let profile = self.profiles.acquire(&set, self.verdicts);
        if !has_names {
            self.known.insert(self.matching.clone(), profile);
        }
        profile
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

fn put_pair(
    verdicts: &mut Changing<'_>,
    direction: Direction,
    key: (IpAddr, Number),
    profile: Option<Number>,
) {
    let Changing { desired, delta } = verdicts;
    let delta = delta.as_mut().map(|delta| delta.pairs.get_mut(direction));
    put_into(desired.pairs.get_mut(direction), delta, key, profile);
}
