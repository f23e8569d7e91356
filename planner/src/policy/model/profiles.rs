//! Profiles: each different set of protocols and ports that is allowed, with a number.
//!
//! A profile whose pairs are all to be allowed the same other thing keeps its number: so an
//! edit of one of many policies that allow a pod something costs what it adds and takes away.
//!
//! Where very many profiles lose their last pair at once, as those of a namespace that is
//! refused, one change takes away a part of them, and the next ones the others. Meanwhile
//! nothing leads to them, and their numbers mean what they meant: who needs such a profile
//! again has it.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::ports::PortSet;
use super::verdicts::{Changing, Direction, FIRST_PROFILE, Number};
use crate::numbers::{Interned, MAX_IN_PLACE};
use crate::tables::{put, put_into};

/// How many elements a change may take away with profiles that no pair has any more, if these are
/// more than one profile.
const MAX_GOING: usize = 5_000;

/// What a local address is to be allowed with an identity: never nothing.
#[derive(Debug, Clone)]
pub struct Allowed {
    ports: Arc<PortSet>,
    /// The profile that has allowed just this before the change.
    profile: Option<Number>,
}

/// A local address that is to be allowed something else with an identity.
#[derive(Debug)]
pub struct Move {
    /// The direction.
    pub direction: Direction,
    /// The local address, and the identity.
    pub key: (IpAddr, Number),
    /// The profile before the change.
    pub was: Option<Number>,
    /// What it is to be allowed.
    pub allowed: Option<Allowed>,
}

impl Move {
    /// A move to what is allowed; none if that is what the profile before allows.
    pub fn of(
        direction: Direction,
        key: (IpAddr, Number),
        was: Option<Number>,
        allowed: Option<&Allowed>,
    ) -> Option<Self> {
        let is_other = match allowed {
            None => was.is_some(),
            Some(allowed) => allowed.profile.is_none() || allowed.profile != was,
        };
        is_other.then(|| Self {
            direction,
            key,
            was,
            allowed: allowed.cloned(),
        })
    }
}

/// The numbers of all profiles. What they allow is in the verdicts.
#[derive(Debug)]
pub struct Profiles {
    numbers: Interned<Arc<PortSet>>,
    /// Those that have lost their last pair, and may have others again.
    left: BTreeSet<Number>,
    /// How many elements a change may take away with those.
    max_going: usize,
}

impl Default for Profiles {
    fn default() -> Self {
        Self {
            numbers: Interned::from(FIRST_PROFILE),
            left: BTreeSet::new(),
            max_going: MAX_GOING,
        }
    }
}

impl Profiles {
    /// A set as what is allowed; none for nothing.
    pub fn find(&self, set: PortSet) -> Option<Allowed> {
        if set.is_empty() {
            return None;
        }
        Some(match self.numbers.get::<PortSet>(&set) {
            Some((ports, profile)) => Allowed {
                ports: ports.clone(),
                profile: Some(profile),
            },
            None => Allowed {
                ports: Arc::new(set),
                profile: None,
            },
        })
    }

    /// Carries out moves.
    pub fn apply(&mut self, verdicts: &mut Changing<'_>, moves: &[Move]) {
        self.rename(verdicts, moves);
        let all = moves.iter();
        let after = all.map(|one| (one.direction, one.key, one.allowed.as_ref()));
        self.put(verdicts, after);
        for was in moves.iter().filter_map(|one| one.was) {
            if self.numbers.leave(was) {
                self.left.insert(was);
            }
        }
    }

    /// Gives pairs the profiles that allow this, each of which is used once more.
    pub fn put<'a>(
        &mut self,
        verdicts: &mut Changing<'_>,
        pairs: impl Iterator<Item = (Direction, (IpAddr, Number), Option<&'a Allowed>)>,
    ) {
        // A set is that of thousands of pairs, and costs much to compare.
        let mut known: HashMap<*const PortSet, Number> = HashMap::new();
        for (direction, key, allowed) in pairs {
            let Some(Allowed { ports, profile }) = allowed else {
                put_pair(verdicts, direction, key, None);
                continue;
            };
            match profile.or_else(|| known.get(&Arc::as_ptr(ports)).copied()) {
                Some(number) => self.put_again(verdicts, direction, key, number),
                None => {
                    let number = self.acquire(ports, verdicts);
                    known.insert(Arc::as_ptr(ports), number);
                    put_pair(verdicts, direction, key, Some(number));
                }
            }
        }
    }

    /// Gives a pair a profile that is in use, once more.
    pub fn put_again(
        &mut self,
        verdicts: &mut Changing<'_>,
        direction: Direction,
        key: (IpAddr, Number),
        profile: Number,
    ) {
        self.numbers.use_again(profile);
        put_pair(verdicts, direction, key, Some(profile));
    }

    /// Gives profiles that all their pairs leave the meaning that most of these get, where no
    /// profile has it yet.
    fn rename(&mut self, verdicts: &mut Changing<'_>, moves: &[Move]) {
        if moves.iter().all(|one| one.was.is_none()) {
            return;
        }
        let allowed = moves.iter().filter_map(|one| one.allowed.as_ref());
        let by_pointer = allowed.map(|allowed| (Arc::as_ptr(&allowed.ports), &allowed.ports));
        let shared: HashMap<*const PortSet, &Arc<PortSet>> = by_pointer.collect();
        let each = moves.iter().map(|one| {
            let ports = one.allowed.as_ref().map(|allowed| &*allowed.ports);
            (one.was, ports)
        });
        let (mut renamed, mut left) = (BTreeSet::new(), MAX_IN_PLACE);
        for (profile, ports) in self.numbers.followers::<PortSet>(each) {
            let old = verdicts.desired.profiles.get(&profile);
            let (Some(old), Some(ports)) = (old, shared.get(&std::ptr::from_ref(ports))) else {
                continue;
            };
            let ports = *ports;
            if renamed.contains(&profile) || self.numbers.get::<PortSet>(ports).is_some() {
                continue;
            }
            let [lost, gained] = [old.difference(ports), ports.difference(old)];
            let cost = lost.ranges().count() + gained.ranges().count();
            if cost <= left && cost < ports.ranges().count() {
                left -= cost;
                renamed.insert(profile);
                self.numbers.rename::<PortSet>(profile, old, ports.clone());
                put!(verdicts, profiles, profile, Some(ports.clone()));
            }
        }
    }

    /// The profile that allows this, which is used once more.
    fn acquire(&mut self, ports: &Arc<PortSet>, verdicts: &mut Changing<'_>) -> Number {
        let mut is_new = false;
        let number = self.numbers.acquire::<PortSet>(ports, || {
            is_new = true;
            ports.clone()
        });
        if is_new {
            put!(verdicts, profiles, number, Some(ports.clone()));
        }
        number
    }

    /// Takes profiles away that no pair has any more, as many as one change may. This comes after
    /// all pairs have theirs.
    pub fn take_away(&mut self, verdicts: &mut Changing<'_>) {
        let (mut left, mut is_first) = (self.max_going, true);
        while let Some(number) = self.left.pop_first() {
            let set = verdicts.desired.profiles.get(&number);
            let Some(set) = set.filter(|_| self.numbers.uses(number) == 0) else {
                continue;
            };
            let cost = set.elements();
            if cost > left && !is_first {
                self.left.insert(number);
                return;
            }
            (left, is_first) = (left.saturating_sub(cost), false);
            self.numbers.forget::<PortSet>(number, set);
            put!(verdicts, profiles, number, None);
        }
    }

    /// Whether the next change takes more away.
    pub fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// For tests that cannot have so much.
    #[cfg(test)]
    pub fn limit_going(&mut self, max_going: usize) {
        self.max_going = max_going;
    }

    /// The change has ended: numbers that became free in it may be given out again.
    pub fn commit(&mut self) {
        self.numbers.commit();
    }
}

fn put_pair(
    verdicts: &mut Changing<'_>,
    direction: Direction,
    key: (IpAddr, Number),
    profile: Option<Number>,
) {
    let Changing { desired, delta } = verdicts;
    let changes = delta.as_mut().map(|delta| delta.pairs.get_mut(direction));
    put_into(desired.pairs.get_mut(direction), changes, key, profile);
}
