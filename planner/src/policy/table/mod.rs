//! What the sets and maps of table `inet tweed-policy` should hold.
//!
//! [`Table`] keeps [`Desired`]: the verdicts, which the model changes and the rules look up as
//! they are, and the elements that say what a profile allows. Of these the ranges of a profile
//! and a protocol are a profile of their own that others with the same ranges share, because
//! the kernel's sets of ranges are slow to change.

pub mod desired;

use crate::numbers::{Interned, Number};
use crate::policy::model::verdicts::{PortSet, Verdicts, VerdictsDelta};
use crate::protocols::PROTOCOLS;
use crate::tables::{Changing, put};
use desired::{Delta, Desired, FIRST_RANGE_PROFILE, PortRange, Ports};

/// Ranges of ports, each with its first and its last one.
type Ranges = Vec<(u16, u16)>;

const EVERY_PORT: [(u16, u16); 1] = [(0, u16::MAX)];

/// What the kernel should hold of policies.
#[derive(Debug)]
pub struct Table {
    desired: Desired,
    range_profiles: Interned<Ranges>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            desired: Desired::default(),
            range_profiles: Interned::from(FIRST_RANGE_PROFILE),
        }
    }
}

impl Table {
    /// What the kernel should hold.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The verdicts, to be changed: [`Table::follow`] comes after that.
    pub fn verdicts_mut(&mut self) -> &mut Verdicts {
        &mut self.desired.verdicts
    }

    /// Follows a change of the verdicts; none says that all of them are new. The same for the
    /// whole table.
    pub fn follow(&mut self, change: Option<VerdictsDelta>) -> Option<Delta> {
        let Self {
            desired: Desired { verdicts, ports },
            range_profiles,
        } = self;
        let mut ports = Changing::of(ports, change.is_some());
        let profiles = change.as_ref().map(|change| &change.profiles);
        let new = profiles.map_or(&verdicts.profiles, |profiles| &profiles.added);
        for (number, set) in new {
            enter(&mut ports, range_profiles, *number, set);
        }
        // After new ones are in, so that ranges that stay keep their number.
        for (number, set) in profiles.into_iter().flat_map(|profiles| &profiles.removed) {
            take_out(&mut ports, range_profiles, *number, set);
        }
        range_profiles.settle();
        Some(Delta {
            verdicts: change?,
            ports: ports.delta?,
        })
    }
}

/// Writes the elements of a new profile.
fn enter(
    ports: &mut Changing<'_, Ports>,
    range_profiles: &mut Interned<Ranges>,
    number: Number,
    set: &PortSet,
) {
    if set.is_all() {
        put!(ports, open, number, Some(()));
        return;
    }
    put_exact(ports, number, set, Some(()));
    for protocol in PROTOCOLS {
        let ranges = ranges(set, protocol);
        // Without a range profile the protocol would count as one without ports.
        if ranges.is_empty() && !set.others() {
            continue;
        }
        let of = range_profiles.acquire(&ranges, || ranges.clone());
        put!(ports, range_profiles, (number, protocol), Some(of));
        put_ranges(ports, of, &ranges, Some(()));
    }
    if set.others() {
        put_ranges(ports, number, &EVERY_PORT, Some(()));
    }
}

/// Takes the elements of a profile out that is not used any more.
fn take_out(
    ports: &mut Changing<'_, Ports>,
    range_profiles: &mut Interned<Ranges>,
    number: Number,
    set: &PortSet,
) {
    if set.is_all() {
        put!(ports, open, number, None);
        return;
    }
    put_exact(ports, number, set, None);
    for protocol in PROTOCOLS {
        let key = (number, protocol);
        let Some(of) = ports.desired.range_profiles.get(&key).copied() else {
            continue;
        };
        put!(ports, range_profiles, key, None);
        let ranges = ranges(set, protocol);
        if range_profiles.release(of, &ranges) {
            put_ranges(ports, of, &ranges, None);
        }
    }
    if set.others() {
        put_ranges(ports, number, &EVERY_PORT, None);
    }
}

/// Puts the single ports of a set under the number of its profile.
fn put_exact(ports: &mut Changing<'_, Ports>, number: Number, set: &PortSet, value: Option<()>) {
    let single = set.ranges().filter(|(_, first, last)| first == last);
    for (protocol, port, _) in single {
        put!(ports, exact, (number, protocol, port), value);
    }
}

fn put_ranges(
    ports: &mut Changing<'_, Ports>,
    profile: Number,
    ranges: &[(u16, u16)],
    value: Option<()>,
) {
    for &(first, last) in ranges {
        let range = PortRange {
            profile,
            first,
            last,
        };
        put!(ports, ranges, range, value);
    }
}

/// The ports of one protocol that are no single ones.
fn ranges(set: &PortSet, protocol: u8) -> Ranges {
    let wide = |(of, first, last): &(u8, u16, u16)| *of == protocol && first < last;
    let ranges = set.ranges().filter(wide);
    ranges.map(|(_, first, last)| (first, last)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tweed_component::schema::Sets as _;

    use super::*;

    /// Makes the profiles of a table these.
    fn follow(table: &mut Table, profiles: &[(Number, PortSet)]) -> Delta {
        let mut new = Verdicts::default();
        let profiles = profiles.iter().cloned();
        new.profiles = profiles
            .map(|(number, set)| (number, Arc::new(set)))
            .collect();
        let change = table.desired.verdicts.change_to(&new);
        table.verdicts_mut().apply(&change);
        table.follow(Some(change)).unwrap()
    }

    #[test]
    fn a_protocol_that_is_denied_is_not_taken_for_one_without_ports() {
        let mut table = Table::default();
        let denied = PortSet::range(6, 0, u16::MAX).union(&PortSet::range(17, 53, 53));
        follow(&mut table, &[(7, PortSet::all().difference(&denied))]);
        let ports = |protocol| -> Ranges {
            let Ports {
                range_profiles,
                ranges,
                ..
            } = &table.desired.ports;
            let profile = range_profiles.get(&(7, protocol)).unwrap_or(&7);
            let ranges = ranges.iter().filter(|range| range.profile == *profile);
            ranges.map(|range| (range.first, range.last)).collect()
        };
        assert_eq!(ports(6), [], "TCP");
        assert_eq!(ports(17), [(0, 52), (54, u16::MAX)], "UDP");
        assert_eq!(ports(132), EVERY_PORT, "SCTP");
        assert_eq!(ports(1), EVERY_PORT, "ICMP");
        follow(&mut table, &[]);
        assert_eq!(table.desired, Desired::default());
    }

    #[test]
    fn ranges_stay_while_any_profile_has_them() {
        let mut table = Table::default();
        let range = PortSet::range(6, 80, 90);
        let with_dns = range.union(&PortSet::range(17, 53, 53));
        follow(&mut table, &[(7, range)]);
        let delta = follow(&mut table, &[(8, with_dns)]);
        assert!(delta.ports.ranges.is_empty(), "{delta:#?}");
        assert_eq!(table.desired.ports.ranges.len(), 1);
    }
}
