//! The slots of groups. What a group holds is read from the tables themselves, so that
//! an endpoint is stored once.
//!
//! What always holds: slots are dense; one endpoint that comes or goes changes a bounded
//! number of slots, but for when a group gets another number of parts, which happens
//! only after its size has changed by a constant factor.

use std::collections::BTreeMap;

use super::Tables;
use super::desired::{
    Desired, Endpoint, FIRST_PART, GROUP_DISTANCE, Group, Holds, MAX_SLOTS, Number, Part,
};
use super::known_slots::{KnownGroup, KnownSlots};
use crate::numbers::Numbers;
use crate::tables::put;

/// The most endpoints of a group.
pub const MAX_ENDPOINTS: usize = (MAX_SLOTS as usize) * (MAX_SLOTS as usize);

/// What a slot can hold.
pub trait Slot: Copy + Ord {
    /// How a group says so.
    const HOLDS: Holds;
    /// What all slots hold.
    fn all(desired: &Desired) -> &BTreeMap<(Number, u8), Self>;
    /// Changes what a slot holds.
    fn put(tables: &mut Tables, key: (Number, u8), value: Option<Self>);
    /// What the slots of an earlier run hold.
    fn known(known: &KnownSlots) -> &BTreeMap<(Number, u8), Self>;
}

impl Slot for Endpoint {
    const HOLDS: Holds = Holds::Endpoints;

    fn all(desired: &Desired) -> &BTreeMap<(Number, u8), Self> {
        &desired.slots
    }

    fn put(tables: &mut Tables, key: (Number, u8), value: Option<Self>) {
        put!(tables, slots, key, value);
    }

    fn known(known: &KnownSlots) -> &BTreeMap<(Number, u8), Self> {
        &known.endpoints
    }
}

/// The number of an endpoint.
impl Slot for Number {
    const HOLDS: Holds = Holds::Members;

    fn all(desired: &Desired) -> &BTreeMap<(Number, u8), Self> {
        &desired.member_slots
    }

    fn put(tables: &mut Tables, key: (Number, u8), value: Option<Self>) {
        put!(tables, member_slots, key, value);
    }

    fn known(known: &KnownSlots) -> &BTreeMap<(Number, u8), Self> {
        &known.members
    }
}

/// Makes groups of endpoints.
#[derive(Debug)]
pub struct Groups {
    /// The numbers of parts, divided by their distance.
    parts: Numbers,
    /// What groups held in an earlier run, until the first plan has all groups.
    known: KnownSlots,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            parts: Numbers::from(FIRST_PART / GROUP_DISTANCE),
            known: KnownSlots::default(),
        }
    }
}

/// A group that is drawn from, with what it holds in the order of its slots.
struct Bin<V> {
    /// `None` if it has no number yet.
    number: Option<Number>,
    slots: Vec<V>,
}

impl Groups {
    /// A change has ended.
    pub fn commit(&mut self) {
        self.parts.commit();
    }

    /// A group that is made from now on, and was there in an earlier run, changes from what
    /// it held then. Its parts have their numbers, and no others have these. Before the
    /// first plan.
    pub fn take_over(&mut self, known: KnownSlots) {
        self.parts
            .reserve(known.parts().map(|part| part / GROUP_DISTANCE));
        self.known = known;
    }

    /// The first plan has all its groups: other numbers of parts of an earlier run are free.
    pub fn commit_known(&mut self) {
        self.known = KnownSlots::default();
        self.parts.release_reserved();
    }

    /// Makes a group hold exactly this, which is in ascending order; nothing removes it.
    pub fn fill<V: Slot>(&mut self, tables: &mut Tables, group: Number, wanted: &[V]) {
        let wanted = &wanted[..wanted.len().min(MAX_ENDPOINTS)];
        let known = tables.desired.groups.get(&group).copied();
        if wanted.is_empty() || known.is_some_and(|known| !holds::<V>(tables, group, known)) {
            self.clear(tables, group);
        }
        if wanted.is_empty() {
            return;
        }
        if known.is_none() {
            self.restore::<V>(tables, group);
        }
        let mut bins = read::<V>(tables, group);
        let mut present = vec![false; wanted.len()];
        for bin in &mut bins {
            let mut index = 0;
            while let Some(value) = bin.slots.get(index) {
                match wanted.binary_search(value) {
                    Ok(position) => {
                        present[position] = true;
                        index += 1;
                    }
                    Err(_) => {
                        bin.slots.swap_remove(index);
                    }
                }
            }
        }
        let absent = wanted.iter().zip(present).filter(|(_, present)| !present);
        let mut unplaced: Vec<V> = absent.map(|(value, _)| *value).collect();
        let count = parts(bins.len(), wanted.len());
        if (count == 1) != (bins.len() == 1) {
            // The group itself becomes one of parts, or the other way round.
            self.clear(tables, group);
            bins.iter_mut().for_each(|bin| bin.number = None);
        }
        while bins.len() > count {
            let Some(bin) = bins.pop() else { break };
            if let Some(part) = bin.number {
                remove::<V>(tables, part);
                put!(tables, parts, (group, bins.len() as u8), None);
                self.parts.give_back(part / GROUP_DISTANCE);
            }
            unplaced.extend(bin.slots);
        }
        while bins.len() < count {
            let (number, slots) = (None, Vec::new());
            bins.push(Bin { number, slots });
        }
        distribute(&mut bins, unplaced);
        self.write(tables, group, &bins);
    }

    /// Removes a group and its parts.
    pub fn clear(&mut self, tables: &mut Tables, group: Number) {
        let Some(known) = tables.desired.groups.get(&group).copied() else {
            return;
        };
        if known.holds == Holds::Parts {
            for index in 0..known.slots {
                let Some(entry) = tables.desired.parts.get(&(group, index)) else {
                    continue;
                };
                let part = entry.group;
                put!(tables, parts, (group, index), None);
                remove::<Endpoint>(tables, part);
                remove::<Number>(tables, part);
                self.parts.give_back(part / GROUP_DISTANCE);
            }
            put!(tables, groups, group, None);
        }
        remove::<Endpoint>(tables, group);
        remove::<Number>(tables, group);
    }

    /// Makes a group that there is not hold what it held in an earlier run, if that is such
    /// values and its parts are its own.
    fn restore<V: Slot>(&mut self, tables: &mut Tables, group: Number) {
        let parts = match self.known.group::<V>(group) {
            None => return,
            Some(KnownGroup::Whole(slots)) => return fill_slots(tables, group, &slots),
            Some(KnownGroup::Parts(parts)) => parts,
        };
        let mut own = Vec::new();
        for (number, _) in &parts {
            // It fails for the part of two groups, and for a number that is none of a part.
            if !self.parts.take_reserved(number / GROUP_DISTANCE) {
                own.iter().for_each(|part| self.parts.give_back(*part));
                return;
            }
            own.push(number / GROUP_DISTANCE);
        }
        let bin = |(number, slots)| Bin {
            number: Some(number),
            slots,
        };
        let bins: Vec<Bin<V>> = parts.into_iter().map(bin).collect();
        self.write(tables, group, &bins);
    }

    fn write<V: Slot>(&mut self, tables: &mut Tables, group: Number, bins: &[Bin<V>]) {
        if let [only] = bins {
            return fill_slots(tables, group, &only.slots);
        }
        for (index, bin) in (0..=u8::MAX).zip(bins) {
            let number = bin
                .number
                .unwrap_or_else(|| self.parts.take() * GROUP_DISTANCE);
            fill_slots(tables, number, &bin.slots);
            let part = Part {
                group: number,
                slots: bin.slots.len() as u8,
            };
            put!(tables, parts, (group, index), Some(part));
        }
        let shape = Group {
            slots: bins.len() as u8,
            holds: Holds::Parts,
        };
        put!(tables, groups, group, Some(shape));
    }
}

/// Whether the slots of a group, or those of its parts, hold such values.
fn holds<V: Slot>(tables: &Tables, group: Number, known: Group) -> bool {
    let first = tables.desired.parts.get(&(group, 0));
    let part = first.and_then(|part| tables.desired.groups.get(&part.group));
    let lowest = match known.holds {
        Holds::Parts => part.map(|part| part.holds),
        other => Some(other),
    };
    lowest == Some(V::HOLDS)
}

/// How many groups the endpoints are in: those there are, if these are neither too full
/// nor too empty. New ones are half full, so that the number stays for a while.
fn parts(now: usize, endpoints: usize) -> usize {
    let most = usize::from(MAX_SLOTS);
    let ideal = endpoints.div_ceil(most / 2).clamp(2, most);
    match now {
        0 | 1 if endpoints <= most => 1,
        0 | 1 => ideal,
        _ if endpoints <= most / 2 => 1,
        _ if endpoints > now * most || endpoints * 4 < now * most => ideal,
        _ => now,
    }
}

/// What a group holds; one empty bin if there is no such group.
fn read<V: Slot>(tables: &Tables, group: Number) -> Vec<Bin<V>> {
    let desired = &tables.desired;
    let bin = |number: Number| Bin {
        number: Some(number),
        slots: slots(desired, number),
    };
    match desired.groups.get(&group) {
        Some(known) if known.holds == Holds::Parts => (0..known.slots)
            .filter_map(|index| desired.parts.get(&(group, index)))
            .map(|part| bin(part.group))
            .collect(),
        _ => vec![bin(group)],
    }
}

/// What the slots of a group hold, in their order.
fn slots<V: Slot>(desired: &Desired, group: Number) -> Vec<V> {
    let own = V::all(desired).range((group, 0)..=(group, u8::MAX));
    own.map(|(_, value)| *value).collect()
}

/// Puts values where there are fewest, and evens out what is left uneven.
fn distribute<V: Slot>(bins: &mut [Bin<V>], unplaced: Vec<V>) {
    for value in unplaced {
        if let Some(smallest) = bins.iter_mut().min_by_key(|bin| bin.slots.len()) {
            smallest.slots.push(value);
        }
    }
    let by_size = |bin: &(usize, &Bin<V>)| bin.1.slots.len();
    loop {
        let largest = bins.iter().enumerate().max_by_key(by_size);
        let smallest = bins.iter().enumerate().min_by_key(by_size);
        let (Some((from, largest)), Some((to, smallest))) = (largest, smallest) else {
            return;
        };
        if largest.slots.len() - smallest.slots.len() <= 1 {
            return;
        }
        let moved = bins[from].slots.pop();
        bins[to].slots.extend(moved);
    }
}

/// Makes a group hold these values in this order.
fn fill_slots<V: Slot>(tables: &mut Tables, group: Number, wanted: &[V]) {
    // Of a large group only what differs is looked up in the table.
    let held = slots::<V>(&tables.desired, group);
    for (index, value) in (0..=u8::MAX).zip(wanted) {
        if held.get(usize::from(index)) != Some(value) {
            V::put(tables, (group, index), Some(*value));
        }
    }
    let shape = Group {
        slots: wanted.len() as u8,
        holds: V::HOLDS,
    };
    for index in shape.slots..held.len() as u8 {
        V::put(tables, (group, index), None);
    }
    put!(tables, groups, group, Some(shape));
}

/// Removes a group that is not of parts, if its slots hold such values.
fn remove<V: Slot>(tables: &mut Tables, group: Number) {
    let Some(known) = tables.desired.groups.get(&group).copied() else {
        return;
    };
    if known.holds == V::HOLDS {
        for index in 0..known.slots {
            V::put(tables, (group, index), None);
        }
        put!(tables, groups, group, None);
    }
}
