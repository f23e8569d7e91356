//! Profiles: each different set of protocols and ports that is allowed, with a number
//! and its elements. The ranges of a profile and a protocol are a profile of their own that
//! others with the same ranges share, because the kernel's sets of ranges are slow to change.

use std::collections::{BTreeMap, HashMap};

use super::desired::{FIRST_PROFILE, FIRST_RANGE_PROFILE, Number, PortRange, Tables};
use super::ports::PortSet;
use crate::numbers::Numbers;
use crate::protocols::PROTOCOLS;
use crate::tables::put;

/// Ranges of ports, each with its first and its last one.
type Ranges = Vec<(u16, u16)>;

const EVERY_PORT: [(u16, u16); 1] = [(0, u16::MAX)];

/// Everything that is interned under a number, with the number of its uses.
#[derive(Debug)]
struct Interned<T> {
    numbers: Numbers,
    ids: HashMap<T, Number>,
    uses: BTreeMap<Number, usize>,
}

impl<T: Eq + std::hash::Hash + Clone> Interned<T> {
    fn from(first: Number) -> Self {
        Self {
            numbers: Numbers::from(first),
            ids: HashMap::new(),
            uses: BTreeMap::new(),
        }
    }

    /// The number, and whether it is new.
    fn acquire(&mut self, value: &T) -> (Number, bool) {
        let known = self.ids.get(value).copied();
        let number = known.unwrap_or_else(|| self.numbers.take());
        if known.is_none() {
            self.ids.insert(value.clone(), number);
        }
        *self.uses.entry(number).or_default() += 1;
        (number, known.is_none())
    }

    /// Whether it was the last use.
    fn release(&mut self, number: Number, value: &T) -> bool {
        let Some(uses) = self.uses.get_mut(&number) else {
            return false;
        };
        *uses -= 1;
        if *uses > 0 {
            return false;
        }
        self.uses.remove(&number);
        self.ids.remove(value);
        self.numbers.give_back(number);
        true
    }
}

/// All profiles in use.
#[derive(Debug)]
pub struct Profiles {
    profiles: Interned<PortSet>,
    ranges: Interned<Ranges>,
    /// The meaning of each number, also of those that have just become free.
    sets: BTreeMap<Number, PortSet>,
    freed: Vec<Number>,
    nothing: PortSet,
}

impl Default for Profiles {
    fn default() -> Self {
        Self {
            profiles: Interned::from(FIRST_PROFILE),
            ranges: Interned::from(FIRST_RANGE_PROFILE),
            sets: BTreeMap::new(),
            freed: Vec::new(),
            nothing: PortSet::default(),
        }
    }
}

impl Profiles {
    /// What a profile allows; nothing without one.
    pub fn set(&self, profile: Option<Number>) -> &PortSet {
        let known = profile.and_then(|profile| self.sets.get(&profile));
        known.unwrap_or(&self.nothing)
    }

    /// The profile that allows this, which is used once more; none for nothing.
    pub fn acquire(&mut self, set: &PortSet, tables: &mut Tables) -> Option<Number> {
        if set.is_empty() {
            return None;
        }
        let (number, new) = self.profiles.acquire(set);
        if new {
            self.sets.insert(number, set.clone());
            self.write(number, set, tables);
        }
        Some(number)
    }

    /// A profile that is in use is used once more.
    pub fn use_again(&mut self, number: Number) {
        if let Some(uses) = self.profiles.uses.get_mut(&number) {
            *uses += 1;
        }
    }

    /// The profile is used once less.
    pub fn release(&mut self, number: Number, tables: &mut Tables) {
        let Some(set) = self.sets.get(&number) else {
            return;
        };
        if !self.profiles.release(number, set) {
            return;
        }
        let set = set.clone();
        self.freed.push(number);
        if set.is_all() {
            put!(tables, open, number, None);
            return;
        }
        put_exact(tables, number, &set, None);
        for protocol in PROTOCOLS {
            let key = (number, protocol);
            let Some(of) = tables.desired.range_profiles.get(&key).copied() else {
                continue;
            };
            put!(tables, range_profiles, key, None);
            let ranges = ranges(&set, protocol);
            if self.ranges.release(of, &ranges) {
                put_ranges(tables, of, &ranges, None);
            }
        }
        if set.others() {
            put_ranges(tables, number, &EVERY_PORT, None);
        }
    }

    /// The change has ended: numbers that became free in it may be given out again.
    pub fn settle(&mut self) {
        for number in self.freed.drain(..) {
            if !self.profiles.uses.contains_key(&number) {
                self.sets.remove(&number);
            }
        }
        self.profiles.numbers.settle();
        self.ranges.numbers.settle();
    }

    /// Writes the elements of a new profile.
    fn write(&mut self, number: Number, set: &PortSet, tables: &mut Tables) {
        if set.is_all() {
            put!(tables, open, number, Some(()));
            return;
        }
        put_exact(tables, number, set, Some(()));
        for protocol in PROTOCOLS {
            let ranges = ranges(set, protocol);
            // Without a range profile the protocol would count as one without ports.
            if ranges.is_empty() && !set.others() {
                continue;
            }
            let (of, new) = self.ranges.acquire(&ranges);
            put!(tables, range_profiles, (number, protocol), Some(of));
            if new {
                put_ranges(tables, of, &ranges, Some(()));
            }
        }
        if set.others() {
            put_ranges(tables, number, &EVERY_PORT, Some(()));
        }
    }
}

/// Puts the single ports of a set under the number of its profile.
fn put_exact(tables: &mut Tables, number: Number, set: &PortSet, value: Option<()>) {
    let single = set.ranges().filter(|(_, first, last)| first == last);
    for (protocol, port, _) in single {
        put!(tables, exact, (number, protocol, port), value);
    }
}

fn put_ranges(tables: &mut Tables, profile: Number, ranges: &[(u16, u16)], value: Option<()>) {
    for &(first, last) in ranges {
        let range = PortRange {
            profile,
            first,
            last,
        };
        put!(tables, ranges, range, value);
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
    use super::super::desired::Desired;
    use super::*;

    #[test]
    fn a_protocol_that_is_denied_is_not_taken_for_one_without_ports() {
        let (mut tables, mut profiles) = (Tables::default(), Profiles::default());
        let denied = PortSet::range(6, 0, u16::MAX).union(&PortSet::range(17, 53, 53));
        let set = PortSet::all().difference(&denied);
        let number = profiles.acquire(&set, &mut tables).unwrap();
        let ports = |protocol| -> Ranges {
            let range_profiles = &tables.desired.range_profiles;
            let profile = range_profiles.get(&(number, protocol)).unwrap_or(&number);
            let ranges = tables.desired.ranges.iter();
            let ranges = ranges.filter(move |range| range.profile == *profile);
            ranges.map(|range| (range.first, range.last)).collect()
        };
        assert_eq!(ports(6), [], "TCP");
        assert_eq!(ports(17), [(0, 52), (54, u16::MAX)], "UDP");
        assert_eq!(ports(132), EVERY_PORT, "SCTP");
        assert_eq!(ports(1), EVERY_PORT, "ICMP");
        profiles.release(number, &mut tables);
        assert_eq!(tables.desired, Desired::default());
    }
}
