//! Whether a change takes something away that was allowed.

use std::net::IpAddr;

use tweed_core::family::Family;

use super::Model;
use super::identify::Identified;
use super::ports::PortSet;
use super::verdicts::{DIRECTIONS, Direction, Number, SELF, UNKNOWN, Verdicts, VerdictsDelta};
use crate::tables;

impl Model {
    /// Whether a packet that was allowed before the change may no longer be.
    pub(super) fn takes_away(
        &self,
        verdicts: &Verdicts,
        delta: &VerdictsDelta,
        identified: &Identified,
    ) -> bool {
        let isolates = !delta.local_cidrs.added.is_empty();
        if isolates || !delta.enforced.removed.is_empty() {
            return true;
        }
        let mut profiles = delta.profiles.removed.iter();
        if profiles.any(|(number, was)| {
            let is = delta.profiles.added.get(number);
            is.is_some_and(|is| !was.is_subset(is))
        }) {
            return true;
        }
        // What was isolated was allowed nothing.
        let was_enforced = |address: &IpAddr| {
            verdicts.enforced.contains(address) && !delta.enforced.added.contains_key(address)
        };
        DIRECTIONS.into_iter().any(|direction| {
            let policed = delta.policed.get(direction);
            let mut isolated = policed.added.keys().filter(|address| was_enforced(address));
            let narrower = |number: Number, address: IpAddr| {
                let allowed = verdicts.allowed(direction, address, number);
                !allowed.is_some_and(PortSet::is_all)
            };
            let isolates = |address: &IpAddr| {
                let family = Family::of(*address);
                let known = self.identities.iter().filter(|(_, one)| one.is_of(family));
                let mut numbers = known.map(|(number, _)| number).chain([UNKNOWN, SELF]);
                numbers.any(|number| narrower(number, *address))
            };
            isolated.any(isolates)
                || self.narrows_pairs(verdicts, delta, direction, identified)
                || verdicts.policed.get(direction).iter().any(|address| {
                    let moved = identified.moved.iter();
                    was_enforced(address) && { moved }.any(|(was, is)| {
                        let before = before(verdicts, delta, direction, (*address, *was));
                        narrows(before, verdicts.allowed(direction, *address, *is))
                    })
                })
        })
    }

    /// Whether an identity that stays may do less with a local address that stays
    /// subject to policies.
    fn narrows_pairs(
        &self,
        verdicts: &Verdicts,
        delta: &VerdictsDelta,
        direction: Direction,
        identified: &Identified,
    ) -> bool {
        let policed = verdicts.policed.get(direction);
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
            let was = allowed_before(verdicts, delta, *profile);
            stays && narrows(was, verdicts.allowed(direction, *address, *number))
        })
    }
}

/// Whether of two sets of ports, nothing in place of none, the second does not have all of the
/// first one.
fn narrows(before: Option<&PortSet>, after: Option<&PortSet>) -> bool {
    let has_all = |before| after.is_some_and(|after| PortSet::is_subset(before, after));
    before.is_some_and(|before| !has_all(before))
}

/// What a local address was allowed with an identity.
fn before<'a>(
    verdicts: &'a Verdicts,
    delta: &'a VerdictsDelta,
    direction: Direction,
    key: (IpAddr, Number),
) -> Option<&'a PortSet> {
    let (pairs, delta_of_pairs) = (verdicts.pairs.get(direction), delta.pairs.get(direction));
    let profile = tables::before(pairs, delta_of_pairs, &key)?;
    allowed_before(verdicts, delta, *profile)
}

/// What a profile allowed.
fn allowed_before<'a>(
    verdicts: &'a Verdicts,
    delta: &'a VerdictsDelta,
    profile: Number,
) -> Option<&'a PortSet> {
    let ports = tables::before(&verdicts.profiles, &delta.profiles, &profile)?;
    Some(&**ports)
}
