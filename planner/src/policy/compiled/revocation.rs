//! Whether a change takes something away that was allowed.

use std::net::IpAddr;

use tweed_core::family::Family;

use super::Compiled;
use super::identify::Identified;
use crate::policy::desired::{DIRECTIONS, Delta, Direction, Number, SELF, UNKNOWN};
use crate::policy::ports::PortSet;
use crate::tables::before;

impl Compiled {
    /// Whether a packet that was allowed before the change may no longer be.
    pub(super) fn takes_away(&self, delta: &Delta, identified: &Identified) -> bool {
        let isolates = !delta.local_cidrs.added.is_empty();
        if isolates || !delta.judged.removed.is_empty() {
            return true;
        }
        let desired = &self.tables.desired;
        // What was isolated was allowed nothing.
        let was_judged = |address: &IpAddr| {
            desired.judged.contains(address) && !delta.judged.added.contains_key(address)
        };
        DIRECTIONS.into_iter().any(|direction| {
            let policed = delta.policed.get(direction);
            let policed = policed.added.keys().filter(|address| was_judged(address));
            let narrower =
                |number: Number, address: IpAddr| !self.after(direction, address, number).is_all();
            let isolates = |address: &IpAddr| {
                let family = Family::of(*address);
                let known = self.identities.iter().filter(|(_, one)| one.is_of(family));
                let mut numbers = known.map(|(number, _)| number).chain([UNKNOWN, SELF]);
                numbers.any(|number| narrower(number, *address))
            };
            let mut isolated = policed;
            isolated.any(isolates)
                || self.narrows_pairs(delta, direction, identified)
                || desired.policed.get(direction).iter().any(|address| {
                    let moved = identified.moved.iter();
                    was_judged(address) && { moved }.any(|(was, is)| {
                        let before = self.before(delta, direction, *address, *was);
                        !before.is_subset(self.after(direction, *address, *is))
                    })
                })
        })
    }

    /// Whether an identity that stays may do less with a local address that stays
    /// subject to policies.
    fn narrows_pairs(&self, delta: &Delta, direction: Direction, identified: &Identified) -> bool {
        let policed = self.tables.desired.policed.get(direction);
        let newly = &delta.policed.get(direction).added;
        let removed = delta.pairs.get(direction).removed.iter();
        { removed }.any(|((address, number), profile)| {
            if !policed.contains(address) || newly.contains_key(address) {
                return false;
            }
            let fixed = *number == UNKNOWN || *number == SELF;
            let gone = identified.touched.contains(number)
                && !self
                    .identities
                    .get(*number)
                    .is_some_and(|one| one.is_of(Family::of(*address)));
            // Who had an identity that is gone has another one: that is a move.
            let stays = fixed || !gone;
            let was = self.profiles.set(Some(*profile));
            stays && !was.is_subset(self.after(direction, *address, *number))
        })
    }

    fn after(&self, direction: Direction, address: IpAddr, number: Number) -> &PortSet {
        let pairs = self.tables.desired.pairs.get(direction);
        self.profiles.set(pairs.get(&(address, number)).copied())
    }

    fn before(&self, delta: &Delta, direction: Direction, of: IpAddr, number: Number) -> &PortSet {
        let pairs = self.tables.desired.pairs.get(direction);
        let profile = before(pairs, delta.pairs.get(direction), &(of, number));
        self.profiles.set(profile.copied())
    }
}
