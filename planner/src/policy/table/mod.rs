//! What the sets and maps of table `inet tweed-policy` should hold.
//!
//! [`Table`] keeps [`Desired`]: the verdicts, which the model changes and the rules look up as
//! they are, and the elements that say what a profile allows. Of these the ranges of a profile
//! and a protocol are a profile of their own that others with the same ranges share, because
//! the kernel's sets of ranges are slow to change. As a profile in the model, a range profile
//! goes on to other ranges with the only one that leads to it.

pub mod desired;

use std::collections::{BTreeMap, BTreeSet};

use tweed_core::keyed::{self, Entry};

use crate::numbers::{Interned, Number};
use crate::policy::model::ports::is_narrow;
use crate::policy::model::verdicts::{PortSet, Verdicts, VerdictsDelta};
use crate::protocols::PROTOCOLS;
use crate::tables::{Changing, put};
use desired::{Delta, Desired, FIRST_RANGE_PROFILE, PortRange, Ports};

/// Ranges of ports, each with its first and its last one.
type Ranges = Vec<(u16, u16)>;

const EVERY_PORT: [(u16, u16); 1] = [(0, u16::MAX)];

/// As [`MAX_IN_PLACE`](crate::numbers::MAX_IN_PLACE), for ranges of ports: the kernel looks through
/// all of them for each one that goes.
const MAX_RANGES_IN_PLACE: usize = 5_000;

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
        let mut moves = Vec::new();
        for (number, set) in new {
            let removed = profiles.and_then(|profiles| profiles.removed.get(number));
            let old = removed.map(|old| &**old);
            write(&mut ports, *number, [old, Some(set)], &mut moves);
        }
        for (number, set) in profiles.into_iter().flat_map(|profiles| &profiles.removed) {
            if !verdicts.profiles.contains_key(number) {
                write(&mut ports, *number, [Some(set), None], &mut moves);
            }
        }
        rename(&mut ports, range_profiles, &moves);
        for one in &moves {
            let of = one.new.as_ref().map(|new| {
                let mut is_new = false;
                let of = range_profiles.acquire(new, || {
                    is_new = true;
                    new.clone()
                });
                if is_new {
                    put_ranges(&mut ports, of, new, Some(()));
                }
                of
            });
            put!(ports, range_profiles, one.key, of);
        }
        for one in &moves {
            if let (Some(was), Some(old)) = (one.was, &one.old)
                && range_profiles.release(was, old)
            {
                put_ranges(&mut ports, was, old, None);
            }
        }
        range_profiles.commit();
        Some(Delta {
            verdicts: change?,
            ports: ports.delta?,
        })
    }
}

/// A profile and a protocol that get other ranges.
struct Move {
    key: (Number, u8),
    /// The range profile before.
    was: Option<Number>,
    old: Option<Ranges>,
    new: Option<Ranges>,
}

/// Writes what differs between what a profile has allowed and what it allows, but for its
/// ranges, which are moves.
fn write(
    ports: &mut Changing<'_, Ports>,
    number: Number,
    sets: [Option<&PortSet>; 2],
    moves: &mut Vec<Move>,
) {
    let is_open = sets[1].is_some_and(PortSet::is_all);
    put!(ports, open, number, is_open.then_some(()));
    let [old, new] = sets.map(|set| set.filter(|set| !set.is_all()));
    for entry in keyed::compare(single(old), single(new)) {
        let ((protocol, port), value) = match entry {
            Entry::First(key, ()) => (key, None),
            Entry::Second(key, ()) => (key, Some(())),
            Entry::Both(..) => continue,
        };
        put!(ports, exact, (number, protocol, port), value);
    }
    for protocol in PROTOCOLS {
        let [old, new] = [old, new].map(|set| ranges(set?, protocol));
        if old != new {
            let key = (number, protocol);
            let was = ports.desired.range_profiles.get(&key).copied();
            moves.push(Move { key, was, old, new });
        }
    }
    let others = new.is_some_and(PortSet::others).then_some(());
    put_ranges(ports, number, &EVERY_PORT, others);
}

/// Has range profiles that one profile leads to go on to the ranges that this gets, where that
/// is less than new elements for all of them. Of those that others leave, elements would go
/// only after the change that takes them away.
fn rename(ports: &mut Changing<'_, Ports>, range_profiles: &mut Interned<Ranges>, moves: &[Move]) {
    let of_number: BTreeMap<Number, &Ranges> = { moves.iter() }
        .filter_map(|one| Some((one.was?, one.old.as_ref()?)))
        .collect();
    let mut left = MAX_RANGES_IN_PLACE;
    let mut renamed = BTreeSet::new();
    for (number, new) in
        range_profiles.followers(moves.iter().map(|one| (one.was, one.new.as_ref())))
    {
        let Some(old) = of_number.get(&number) else {
            continue;
        };
        let is_shared = range_profiles.uses(number) > 1;
        if is_shared || renamed.contains(&number) || range_profiles.get(new).is_some() {
            continue;
        }
        let entries = keyed::compare(as_set(old), as_set(new));
        let differ: Vec<_> = { entries }
            .filter_map(|entry| match entry {
                Entry::First(range, ()) => Some((range, None)),
                Entry::Second(range, ()) => Some((range, Some(()))),
                Entry::Both(..) => None,
            })
            .collect();
        if differ.len() <= left && differ.len() < new.len() {
            left -= differ.len();
            renamed.insert(number);
            range_profiles.rename(number, *old, new.clone());
            for (range, value) in differ {
                put_ranges(ports, number, &[range], value);
            }
        }
    }
}

fn as_set(ranges: &Ranges) -> impl Iterator<Item = ((u16, u16), ())> {
    ranges.iter().map(|range| (*range, ()))
}

/// The ports of a set that are elements of their own, each with its protocol.
fn single(set: Option<&PortSet>) -> impl Iterator<Item = ((u8, u16), ())> {
    let ranges = set.into_iter().flat_map(PortSet::ranges);
    let narrow = ranges.filter(|(_, first, last)| is_narrow(*first, *last));
    narrow
        .flat_map(|(protocol, first, last)| (first..=last).map(move |port| ((protocol, port), ())))
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

/// The ranges of ports of one protocol that are elements as a whole; none if the protocol needs no range
/// profile: without one it counts as one without ports.
fn ranges(set: &PortSet, protocol: u8) -> Option<Ranges> {
    let wide = |(of, first, last): &(u8, u16, u16)| *of == protocol && !is_narrow(*first, *last);
    let all_wide = set.ranges().filter(wide);
    let ranges: Ranges = all_wide.map(|(_, first, last)| (first, last)).collect();
    (set.others() || !ranges.is_empty()).then_some(ranges)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tweed_component::schema::Sets as _;

    use super::*;

    /// Makes the profiles of a table these.
    fn follow(table: &mut Table, profiles: &[(Number, PortSet)]) -> Delta {
        let mut new = Verdicts::default();
        let shared = |(number, set)| (number, Arc::new(set));
        new.profiles = profiles.iter().cloned().map(shared).collect();
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
            let of_profile = ranges.iter().filter(|range| range.profile == *profile);
            of_profile.map(|range| (range.first, range.last)).collect()
        };
        assert_eq!(ports(6), [], "TCP");
        assert_eq!(ports(17), [(0, 52), (54, u16::MAX)], "UDP");
        assert_eq!(ports(132), EVERY_PORT, "SCTP");
        assert_eq!(ports(1), EVERY_PORT, "ICMP");
        follow(&mut table, &[]);
        assert_eq!(table.desired, Desired::default());
    }

    #[test]
    fn a_range_of_few_ports_is_one_element_for_each() {
        let mut table = Table::default();
        let set = PortSet::range(6, 80, 87).union(&PortSet::range(6, 90, 98));
        follow(&mut table, &[(7, set)]);
        let exact = table.desired.ports.exact.iter().map(|(.., port)| *port);
        assert_eq!(exact.collect::<Vec<_>>(), [80, 81, 82, 83, 84, 85, 86, 87]);
        let wide = table.desired.ports.ranges.iter();
        let ranges: Vec<_> = wide.map(|range| (range.first, range.last)).collect();
        assert_eq!(ranges, [(90, 98)]);
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

    #[test]
    fn a_profile_that_keeps_its_number_changes_by_what_differs() {
        let ports = |ports: &[u16]| {
            let each = ports.iter().map(|port| PortSet::range(6, *port, *port));
            each.fold(PortSet::range(17, 80, 90), |all, one| all.union(&one))
        };
        let sets = [
            ports(&[1, 3, 5]),
            ports(&[1, 5, 7]),
            PortSet::all(),
            PortSet::all().difference(&PortSet::range(6, 80, 80)),
            PortSet::range(17, 80, 91),
        ];
        let mut table = Table::default();
        for set in &sets {
            follow(&mut table, &[(7, set.clone())]);
            let mut fresh = Table::default();
            follow(&mut fresh, &[(7, set.clone())]);
            let sizes = [&table, &fresh].map(|table| {
                let Ports {
                    open,
                    exact,
                    range_profiles,
                    ranges,
                } = &table.desired.ports;
                (
                    open.clone(),
                    exact.clone(),
                    range_profiles.len(),
                    ranges.len(),
                )
            });
            assert_eq!(sizes[0], sizes[1], "{set:?}");
        }
        follow(&mut table, &[(7, ports(&[1, 3, 5]))]);
        let delta = follow(&mut table, &[(7, ports(&[1, 5]))]).ports;
        assert_eq!((delta.exact.removed.len(), delta.exact.added.len()), (1, 0));
        assert!(
            delta.ranges.is_empty() && delta.range_profiles.is_empty(),
            "{delta:#?}"
        );
    }
}
