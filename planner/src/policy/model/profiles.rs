//! Profiles: each different set of protocols and ports that is allowed, with a number.
//!
//! A profile whose pairs are all to be allowed the same other thing keeps its number: so an
//! edit of one of many policies that allow a pod something costs what it adds and takes away.

use std::collections::{BTreeSet, HashMap, hash_map};
use std::net::IpAddr;
use std::sync::Arc;

use super::ports::PortSet;
use super::verdicts::{Changing, Direction, FIRST_PROFILE, Number, Verdicts};
use crate::numbers::{Interned, MAX_IN_PLACE};
use crate::tables::{put, put_into};

/// What a local address is to be allowed with an identity: never nothing.
#[derive(Debug, Clone)]
pub struct Allowed {
    ports: Arc<PortSet>,
    /// The profile that has allowed just this before the change.
    profile: Option<Number>,
}

impl Allowed {
    /// What a profile allows.
    pub fn of(verdicts: &Verdicts, profile: Number) -> Option<Self> {
        let ports = verdicts.profiles.get(&profile)?.clone();
        Some(Self {
            ports,
            profile: Some(profile),
        })
    }
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
    /// Whether it is something else.
    pub fn changes(&self) -> bool {
        match &self.allowed {
            None => self.was.is_some(),
            Some(allowed) => allowed.profile.is_none() || allowed.profile != self.was,
        }
    }
}

/// The numbers of all profiles in use. What they allow is in the verdicts.
#[derive(Debug)]
pub struct Profiles(Interned<Arc<PortSet>>);

impl Default for Profiles {
    fn default() -> Self {
        Self(Interned::from(FIRST_PROFILE))
    }
}

impl Profiles {
    /// A set as what is allowed; none for nothing.
    pub fn find(&self, set: PortSet) -> Option<Allowed> {
        if set.is_empty() {
            return None;
        }
        Some(match self.0.get::<PortSet>(&set) {
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
        // The same set is that of thousands of moves, and costs much to compare.
        let mut known: HashMap<*const PortSet, Number> = HashMap::new();
        for one in moves {
            let ports = one.allowed.as_ref().map(|allowed| &allowed.ports);
            let profile = ports.map(|ports| match known.entry(Arc::as_ptr(ports)) {
                hash_map::Entry::Occupied(known) => {
                    self.0.use_again(*known.get());
                    *known.get()
                }
                hash_map::Entry::Vacant(new) => *new.insert(self.acquire(ports, verdicts)),
            });
            let Changing { desired, delta } = &mut *verdicts;
            let delta = delta
                .as_mut()
                .map(|delta| delta.pairs.get_mut(one.direction));
            put_into(
                desired.pairs.get_mut(one.direction),
                delta,
                one.key,
                profile,
            );
        }
        for was in moves.iter().filter_map(|one| one.was) {
            self.release(was, verdicts);
        }
    }

    /// Gives profiles that all their pairs leave the meaning that most of these get, where no
    /// profile has it yet.
    fn rename(&mut self, verdicts: &mut Changing<'_>, moves: &[Move]) {
        let each = moves.iter().map(|one| {
            let ports = one.allowed.as_ref().map(|allowed| &allowed.ports);
            (one.was, ports)
        });
        let (mut renamed, mut left) = (BTreeSet::new(), MAX_IN_PLACE);
        for (profile, ports) in self.0.followers(each) {
            let Some(old) = verdicts.desired.profiles.get(&profile) else {
                continue;
            };
            if renamed.contains(&profile) || self.0.get(ports).is_some() {
                continue;
            }
            let [lost, gained] = [old.difference(ports), ports.difference(old)];
            let cost = lost.ranges().count() + gained.ranges().count();
            if cost <= left && cost < ports.ranges().count() {
                left -= cost;
                renamed.insert(profile);
                self.0.rename(profile, old, ports.clone());
                put!(verdicts, profiles, profile, Some(ports.clone()));
            }
        }
    }

    /// The profile that allows this, which is used once more.
    fn acquire(&mut self, ports: &Arc<PortSet>, verdicts: &mut Changing<'_>) -> Number {
        let mut is_new = false;
        let number = self.0.acquire(ports, || {
            is_new = true;
            ports.clone()
        });
        if is_new {
            put!(verdicts, profiles, number, Some(ports.clone()));
        }
        number
    }

    /// The profile is used once less.
    fn release(&mut self, number: Number, verdicts: &mut Changing<'_>) {
        let Some(set) = verdicts.desired.profiles.get(&number) else {
            return;
        };
        if self.0.release(number, set) {
            put!(verdicts, profiles, number, None);
        }
    }

    /// The change has ended: numbers that became free in it may be given out again.
    pub fn settle(&mut self) {
        self.0.settle();
    }
}
