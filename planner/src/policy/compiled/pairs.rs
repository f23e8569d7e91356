//! The profiles of local addresses and identities.

use std::collections::HashMap;
use std::net::IpAddr;

use tweed_core::family::Family;

use super::Compiled;
use super::identify::Identified;
use crate::policy::class::Class;
use crate::policy::desired::{DIRECTIONS, Direction, Number, SELF, UNKNOWN};
use crate::policy::identities::{Content, Identities};
use crate::policy::ports::PortSet;
use crate::policy::profiles::Profiles;
use crate::policy::tables::{Tables, put};

impl Compiled {
    /// Brings the pairs of local addresses and identities up to date.
    pub(super) fn pair(&mut self, identified: &Identified) {
        for address in std::mem::take(&mut self.pending.gone) {
            if !self.locals.contains_key(&address) {
                for direction in DIRECTIONS {
                    self.clear(address, direction);
                }
            }
        }
        let locals = std::mem::take(&mut self.locals);
        for (address, local) in &locals {
            let anew = self.pending.locals.contains(address);
            let number = self.effective(*address);
            let own = anew
                || identified.addresses.contains(address)
                || identified.touched.contains(&number);
            let content = self.identities.get(number).map(|one| one.content.clone());
            for direction in DIRECTIONS {
                let Some(class) = local.classes.get(direction) else {
                    if anew {
                        self.clear(*address, direction);
                    }
                    continue;
                };
                if anew {
                    self.pair_all(*address, direction, class);
                } else {
                    self.pair_some(*address, direction, class, identified);
                }
                if own {
                    let content = content.as_deref().cloned().unwrap_or_default();
                    let matching = class.matching(&content.sets);
                    let set = class.allowed(&matching, &content.ports, true);
                    self.set_pair(*address, direction, SELF, &set);
                }
            }
            if anew {
                self.police(
                    *address,
                    local.classes.ingress.is_some(),
                    local.classes.egress.is_some(),
                );
            }
        }
        self.locals = locals;
    }

    /// All identities for a local address.
    fn pair_all(&mut self, address: IpAddr, direction: Direction, class: &Class) {
        let Self {
            identities,
            profiles,
            tables,
            ..
        } = self;
        let mut judge = Judge {
            class,
            known: HashMap::new(),
        };
        let unknown = judge.allowed(&Content::default());
        set_pair(profiles, tables, address, direction, UNKNOWN, &unknown);
        let family = Family::of(address);
        for (number, identity) in identities.iter().filter(|(_, one)| one.is_of(family)) {
            let set = judge.allowed(&identity.content);
            set_pair(profiles, tables, address, direction, number, &set);
        }
        let pairs = tables
            .desired
            .pairs
            .get(direction)
            .range((address, SELF + 1)..);
        let pairs = pairs.take_while(|((one, _), _)| *one == address);
        let gone = |number: &Number| !is_of(identities, *number, family);
        let gone: Vec<Number> = pairs.map(|((_, number), _)| *number).filter(gone).collect();
        for number in gone {
            set_pair(
                profiles,
                tables,
                address,
                direction,
                number,
                &PortSet::default(),
            );
        }
    }

    /// The identities that have changed for a local address.
    fn pair_some(
        &mut self,
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
            self.set_pair(address, direction, *number, &set.unwrap_or_default());
        }
    }

    fn set_pair(&mut self, address: IpAddr, direction: Direction, number: Number, set: &PortSet) {
        set_pair(
            &mut self.profiles,
            &mut self.tables,
            address,
            direction,
            number,
            set,
        );
    }

    /// No policy is about this address in this direction.
    fn clear(&mut self, address: IpAddr, direction: Direction) {
        let pairs = self
            .tables
            .desired
            .pairs
            .get(direction)
            .range((address, 0)..);
        let pairs = pairs.take_while(|((one, _), _)| *one == address);
        let numbers: Vec<Number> = pairs.map(|((_, number), _)| *number).collect();
        for number in numbers {
            self.set_pair(address, direction, number, &PortSet::default());
        }
        self.police_one(address, direction, false);
        if !DIRECTIONS
            .iter()
            .any(|one| self.tables.desired.policed.get(*one).contains(&address))
        {
            let Tables { desired, delta } = &mut self.tables;
            let delta = delta.as_mut().map(|delta| &mut delta.selves);
            put(&mut desired.selves, delta, address, None);
        }
    }

    fn police(&mut self, address: IpAddr, ingress: bool, egress: bool) {
        self.police_one(address, Direction::In, ingress);
        self.police_one(address, Direction::Out, egress);
        let Tables { desired, delta } = &mut self.tables;
        let delta = delta.as_mut().map(|delta| &mut delta.selves);
        put(
            &mut desired.selves,
            delta,
            address,
            (ingress || egress).then_some(()),
        );
    }

    fn police_one(&mut self, address: IpAddr, direction: Direction, policed: bool) {
        let Tables { desired, delta } = &mut self.tables;
        let delta = delta.as_mut().map(|delta| delta.policed.get_mut(direction));
        let policed = policed.then_some(());
        put(desired.policed.get_mut(direction), delta, address, policed);
    }
}

/// What a class allows, remembered for identities that the same rules are about.
struct Judge<'a> {
    class: &'a Class,
    known: HashMap<Vec<usize>, PortSet>,
}

impl Judge<'_> {
    fn allowed(&mut self, content: &Content) -> PortSet {
        let matching = self.class.matching(&content.sets);
        let allowed = |matching: &[usize]| self.class.allowed(matching, &content.ports, false);
        if self.class.has_names(&matching) {
            // Then it also depends on the ports of the destination.
            return allowed(&matching);
        }
        if let Some(known) = self.known.get(&matching) {
            return known.clone();
        }
        let set = allowed(&matching);
        self.known.insert(matching, set.clone());
        set
    }
}

fn is_of(identities: &Identities, number: Number, family: Family) -> bool {
    identities.get(number).is_some_and(|one| one.is_of(family))
}

/// Gives a local address the profile for an identity that allows this; none for nothing.
fn set_pair(
    profiles: &mut Profiles,
    tables: &mut Tables,
    address: IpAddr,
    direction: Direction,
    number: Number,
    set: &PortSet,
) {
    let key = (address, number);
    let old = tables.desired.pairs.get(direction).get(&key).copied();
    if profiles.set(old) == set {
        return;
    }
    let new = profiles.acquire(set, tables);
    let Tables { desired, delta } = tables;
    let delta = delta.as_mut().map(|delta| delta.pairs.get_mut(direction));
    put(desired.pairs.get_mut(direction), delta, key, new);
    if let Some(old) = old {
        profiles.release(old, tables);
    }
}
