//! Profiles: each different set of protocols and ports that is allowed, with a number
//! and its elements. The ranges of a profile are a profile of their own that others with
//! the same ranges share, because the kernel's sets of ranges are slow to change.

use std::collections::{BTreeMap, HashMap};

use super::desired::{FIRST_PROFILE, FIRST_RANGE_PROFILE, Number, PortRange};
use super::numbers::Numbers;
use super::ports::{PROTOCOLS, PortSet};
use super::tables::{Tables, put};

/// A range of protocols and one of their ports.
type Range = (u8, u8, u16, u16);

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
    ranges: Interned<Vec<Range>>,
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
        let Tables { desired, delta } = tables;
        let mut delta = delta.as_mut();
        if set.is_all() {
            put(
                &mut desired.open,
                delta.as_mut().map(|d| &mut d.open),
                number,
                None,
            );
            return;
        }
        for (protocol, port) in exact(&set) {
            let key = (number, protocol, port);
            put(
                &mut desired.exact,
                delta.as_mut().map(|d| &mut d.exact),
                key,
                None,
            );
        }
        let ranges = ranges(&set);
        let Some(of) = desired.range_profiles.get(&number).copied() else {
            return;
        };
        let map = &mut desired.range_profiles;
        put(
            map,
            delta.as_mut().map(|d| &mut d.range_profiles),
            number,
            None,
        );
        if self.ranges.release(of, &ranges) {
            for range in ranges {
                let key = port_range(of, range);
                put(
                    &mut desired.ranges,
                    delta.as_mut().map(|d| &mut d.ranges),
                    key,
                    None,
                );
            }
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
        let Tables { desired, delta } = tables;
        let mut delta = delta.as_mut();
        if set.is_all() {
            put(
                &mut desired.open,
                delta.map(|d| &mut d.open),
                number,
                Some(()),
            );
            return;
        }
        for (protocol, port) in exact(set) {
            let key = (number, protocol, port);
            put(
                &mut desired.exact,
                delta.as_mut().map(|d| &mut d.exact),
                key,
                Some(()),
            );
        }
        let ranges = ranges(set);
        if ranges.is_empty() {
            return;
        }
        let (of, new) = self.ranges.acquire(&ranges);
        let map = &mut desired.range_profiles;
        put(
            map,
            delta.as_mut().map(|d| &mut d.range_profiles),
            number,
            Some(of),
        );
        if new {
            for range in ranges {
                let key = port_range(of, range);
                put(
                    &mut desired.ranges,
                    delta.as_mut().map(|d| &mut d.ranges),
                    key,
                    Some(()),
                );
            }
        }
    }
}

/// The single ports of a set.
fn exact(set: &PortSet) -> impl Iterator<Item = (u8, u16)> {
    let single = set.ranges().filter(|(_, first, last)| first == last);
    single.map(|(protocol, port, _)| (protocol, port))
}

/// All else of a set.
fn ranges(set: &PortSet) -> Vec<Range> {
    let wide = set.ranges().filter(|(_, first, last)| first < last);
    let mut ranges: Vec<Range> = wide
        .map(|(protocol, a, b)| (protocol, protocol, a, b))
        .collect();
    if set.others() {
        let mut first = 0;
        for protocol in PROTOCOLS {
            ranges.push((first, protocol - 1, 0, u16::MAX));
            first = protocol + 1;
        }
        ranges.push((first, u8::MAX, 0, u16::MAX));
    }
    ranges
}

fn port_range(profile: Number, (protocol, last_protocol, first, last): Range) -> PortRange {
    PortRange {
        profile,
        protocol,
        last_protocol,
        first,
        last,
    }
}
