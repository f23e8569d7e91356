//! Numbers that are given out and taken back.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

/// A number by which the kernel's sets and maps name something of a planner's: an identity,
/// a profile, a group of endpoints.
pub type Number = u32;

/// The numbers from a first one on. One that is given back is not given out again
/// before [`Numbers::commit`]: within one change a number never means two things.
#[derive(Debug, Default)]
pub struct Numbers {
    /// From here on none was ever given out, but for `ahead`.
    next: Number,
    /// While `next` is below this, those that were given back rest: the kernel remembers
    /// something by them for a time.
    rest_until: Number,
    /// Those that are free again, the longest first.
    free: VecDeque<Number>,
    returned: Vec<Number>,
    /// Numbers that are given out only to whoever asks for them.
    reserved: BTreeSet<Number>,
    /// Numbers that were reserved, have been given out once, and `next` has not reached.
    ahead: BTreeSet<Number>,
}

impl Numbers {
    /// All numbers from `first` on are free.
    pub fn from(first: Number) -> Self {
        Self {
            next: first,
            ..Self::default()
        }
    }

    /// All numbers from `first` on are free, and those up to `last` are given out before any
    /// is given out again.
    pub fn resting(first: Number, last: Number) -> Self {
        Self {
            rest_until: last + 1,
            ..Self::from(first)
        }
    }

    /// Reserves numbers that had a meaning before, until [`Numbers::release_reserved`]. They
    /// are none that was given out. Where numbers rest, so do those below the highest of
    /// them, which may have had a meaning too.
    pub fn reserve(&mut self, numbers: impl IntoIterator<Item = Number>) {
        self.reserved.extend(numbers);
        let highest = self.reserved.last().copied();
        if let Some(highest) = highest.filter(|_| self.rest_until > 0) {
            let below = (self.next..highest).filter(|number| !self.reserved.contains(number));
            self.free.extend(below);
            self.next = highest + 1;
        }
    }

    /// Gives out a number that is reserved. False if it is not, or not any more.
    pub fn take_reserved(&mut self, number: Number) -> bool {
        let is_reserved = self.reserved.remove(&number);
        if is_reserved && number >= self.next {
            self.ahead.insert(number);
        }
        is_reserved
    }

    /// The numbers that are still reserved are free like any other.
    pub fn release_reserved(&mut self) {
        let passed = std::mem::take(&mut self.reserved);
        self.free
            .extend(passed.into_iter().filter(|number| *number < self.next));
    }

    /// A free number.
    pub fn take(&mut self) -> Number {
        if self.next >= self.rest_until
            && let Some(number) = self.free.pop_front()
        {
            return number;
        }
        loop {
            let number = self.next;
            self.next += 1;
            if !self.ahead.remove(&number) && !self.reserved.contains(&number) {
                return number;
            }
        }
    }

    /// As [`Numbers::take`], where each number stands for so many in a row: the first of these,
    /// none if it is beyond `last`.
    pub fn take_row(&mut self, length: Number, last: Number) -> Option<Number> {
        let row = self.take();
        let first = row.checked_mul(length).filter(|first| *first <= last);
        if first.is_none() {
            // It was none that is free again, and those may be.
            self.next = row;
        }
        first
    }

    /// Gives a number back.
    pub fn give_back(&mut self, number: Number) {
        self.returned.push(number);
    }

    /// A change has ended: what was given back in it may be given out in the next one.
    pub fn commit(&mut self) {
        self.free.extend(self.returned.drain(..));
    }
}

/// Maximum number of elements that come and go with one change under numbers that go on to
/// other values. All of them are written in one transaction, as large as a part is in which those
/// of new numbers can be written.
pub const MAX_IN_PLACE: usize = 20_000;

/// Values that are in use, each under a number, with how often.
#[derive(Debug)]
pub struct Interned<T> {
    numbers: Numbers,
    ids: HashMap<T, Number>,
    uses: BTreeMap<Number, usize>,
}

impl<T: Eq + Hash> Interned<T> {
    /// Nothing is in use yet; the first value gets this number.
    pub fn from(first: Number) -> Self {
        Self {
            numbers: Numbers::from(first),
            ids: HashMap::new(),
            uses: BTreeMap::new(),
        }
    }

    /// The number of a value, which is used once more. One that was not in use is `kept` as
    /// long as it is.
    pub fn acquire<Q: Eq + Hash + ?Sized>(&mut self, value: &Q, kept: impl FnOnce() -> T) -> Number
    where
        T: Borrow<Q>,
    {
        let number = match self.ids.get(value) {
            Some(number) => *number,
            None => {
                let number = self.numbers.take();
                self.ids.insert(kept(), number);
                number
            }
        };
        *self.uses.entry(number).or_default() += 1;
        number
    }

    /// A value that is in use, as it is kept, with its number.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> Option<(&T, Number)>
    where
        T: Borrow<Q>,
    {
        let known = self.ids.get_key_value(value);
        known.map(|(value, number)| (value, *number))
    }

    /// A value that is in use is used once more.
    pub fn use_again(&mut self, number: Number) {
        *self.uses.entry(number).or_default() += 1;
    }

    /// How often a number is used.
    pub fn uses(&self, number: Number) -> usize {
        self.uses.get(&number).copied().unwrap_or_default()
    }

    /// The numbers that can go on to another value, with that value: those that all their uses
    /// leave, of which `moves` has the number before and the value after. Those that most
    /// uses go on with come first; a value may come several times. Equal values that are the
    /// same object are compared once.
    pub fn followers<'a, Q: Eq + Hash + ?Sized>(
        &self,
        moves: impl IntoIterator<Item = (Option<Number>, Option<&'a Q>)>,
    ) -> Vec<(Number, &'a Q)>
    where
        T: Borrow<Q>,
    {
        let mut known: HashMap<*const Q, Option<Number>> = HashMap::new();
        let mut leaving: HashMap<Number, usize> = HashMap::new();
        let mut becoming: HashMap<(Number, *const Q), (usize, &'a Q)> = HashMap::new();
        for (was, value) in moves {
            if let Some(was) = was {
                *leaving.entry(was).or_default() += 1;
            }
            let Some(value) = value else { continue };
            let entry = known.entry(value);
            let number = entry.or_insert_with(|| self.ids.get(value).copied());
            if let (Some(was), None) = (was, number) {
                becoming.entry((was, value)).or_insert((0, value)).0 += 1;
            }
        }
        let stay: BTreeSet<Number> = known.into_values().flatten().collect();
        let mut followers: Vec<_> = { becoming.into_iter() }
            .filter(|((number, _), _)| {
                leaving.get(number) == Some(&self.uses(*number)) && !stay.contains(number)
            })
            .map(|((number, _), (count, value))| (usize::MAX - count, number, value))
            .collect();
        followers.sort_by_key(|(rank, number, _)| (*rank, *number));
        followers
            .into_iter()
            .map(|(_, number, value)| (number, value))
            .collect()
    }

    /// The number of a value is that of another one from now on, which had none.
    pub fn rename<Q: Eq + Hash + ?Sized>(&mut self, number: Number, old: &Q, new: T)
    where
        T: Borrow<Q>,
    {
        self.ids.remove(old);
        self.ids.insert(new, number);
    }

    /// A value is used once less. Whether that was the last use.
    pub fn release<Q: Eq + Hash + ?Sized>(&mut self, number: Number, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        let is_last = self.leave(number);
        if is_last {
            self.forget(number, value);
        }
        is_last
    }

    /// A value is used once less. Whether that was the last use: it then keeps its number until
    /// [`Interned::forget`], for whoever uses it again before.
    pub fn leave(&mut self, number: Number) -> bool {
        let Some(uses) = self.uses.get_mut(&number) else {
            return false;
        };
        *uses -= 1;
        let is_last = *uses == 0;
        if is_last {
            self.uses.remove(&number);
        }
        is_last
    }

    /// Gives back the number of a value that nobody uses.
    pub fn forget<Q: Eq + Hash + ?Sized>(&mut self, number: Number, value: &Q)
    where
        T: Borrow<Q>,
    {
        self.ids.remove(value);
        self.numbers.give_back(number);
    }

    /// The change has ended: numbers that became free in it may be given out again.
    pub fn commit(&mut self) {
        self.numbers.commit();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_rest_for_as_long_as_there_are_others() {
        let mut numbers = Numbers::resting(1, 5);
        let taken = [numbers.take(), numbers.take(), numbers.take()];
        assert_eq!(taken, [1, 2, 3]);
        for number in [3, 1] {
            numbers.give_back(number);
        }
        // Two are left that nobody has had; those given back wait for the end of the change.
        assert_eq!([numbers.take(), numbers.take()], [4, 5]);
        assert_eq!(numbers.take_row(1, 5), None);
        numbers.commit();
        numbers.give_back(2);
        numbers.commit();
        let taken = [(); 4].map(|()| numbers.take());
        assert_eq!(taken[..2], [3, 1]);
        assert!(taken.contains(&2));
    }

    #[test]
    fn numbers_of_an_earlier_run_rest_too() {
        let mut numbers = Numbers::resting(1, 6);
        numbers.reserve([2, 4]);
        assert!(numbers.take_reserved(2));
        assert!(
            !numbers.take_reserved(2) && !numbers.take_reserved(3) && !numbers.take_reserved(9)
        );
        numbers.release_reserved();
        let taken = [(); 5].map(|()| numbers.take());
        assert_eq!(taken, [5, 6, 1, 3, 4]);
    }

    proptest! {
        #[test]
        fn no_number_is_given_out_twice(
            reserved in prop::collection::btree_set(0..40u32, 0..10),
            steps in prop::collection::vec((0..4u8, 0..40u32), 0..100),
        ) {
            let mut numbers = Numbers::from(0);
            numbers.reserve(reserved.iter().copied());
            let mut waiting = reserved;
            let mut out = BTreeSet::new();
            for (step, number) in steps {
                match step {
                    0 => {
                        let taken = numbers.take();
                        prop_assert!(!waiting.contains(&taken) && out.insert(taken));
                    }
                    1 => {
                        let is_taken = numbers.take_reserved(number);
                        prop_assert_eq!(is_taken, waiting.remove(&number));
                        prop_assert!(!is_taken || out.insert(number));
                    }
                    2 if out.remove(&number) => {
                        numbers.give_back(number);
                        numbers.commit();
                    }
                    2 => {}
                    _ => {
                        numbers.release_reserved();
                        waiting.clear();
                    }
                }
            }
        }
    }
}
