//! Numbers that are given out and taken back.

use std::collections::BTreeSet;

/// A number by which the kernel's sets and maps name something of a planner's: an identity,
/// a profile, a group of endpoints.
pub type Number = u32;

/// The numbers from a first one on. One that is given back is not given out again
/// before [`Numbers::settle`]: within one change a number never means two things.
#[derive(Debug)]
pub struct Numbers {
    next: Number,
    free: BTreeSet<Number>,
    returned: Vec<Number>,
}

impl Numbers {
    /// All numbers from `first` on are free.
    pub fn from(first: Number) -> Self {
        Self {
            next: first,
            free: BTreeSet::new(),
            returned: Vec::new(),
        }
    }

    /// A free number.
    pub fn take(&mut self) -> Number {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Gives a number back.
    pub fn give_back(&mut self, number: Number) {
        self.returned.push(number);
    }

    /// A change has ended: what was given back in it may be given out in the next one.
    pub fn settle(&mut self) {
        self.free.extend(self.returned.drain(..));
    }
}
