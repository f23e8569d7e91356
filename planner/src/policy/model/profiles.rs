//! Profiles: each different set of protocols and ports that is allowed, with a number.

use std::sync::Arc;

use super::ports::PortSet;
use super::verdicts::{Changing, FIRST_PROFILE, Number};
use crate::numbers::Interned;
use crate::tables::put;

/// The numbers of all profiles in use. What they allow is in the verdicts.
#[derive(Debug)]
pub struct Profiles(Interned<Arc<PortSet>>);

impl Default for Profiles {
    fn default() -> Self {
        Self(Interned::from(FIRST_PROFILE))
    }
}

impl Profiles {
    /// The profile that allows this, which is used once more; none for nothing.
    pub fn acquire(&mut self, set: &PortSet, verdicts: &mut Changing<'_>) -> Option<Number> {
        if set.is_empty() {
            return None;
        }
        let mut new = None;
        let kept = || new.insert(Arc::new(set.clone())).clone();
        let number = self.0.acquire(set, kept);
        if new.is_some() {
            put!(verdicts, profiles, number, new);
        }
        Some(number)
    }

    /// A profile that is in use is used once more.
    pub fn use_again(&mut self, number: Number) {
        self.0.use_again(number);
    }

    /// The profile is used once less.
    pub fn release(&mut self, number: Number, verdicts: &mut Changing<'_>) {
        let Some(set) = verdicts.desired.profiles.get(&number) else {
            return;
        };
        if self.0.release(number, &**set) {
            put!(verdicts, profiles, number, None);
        }
    }

    /// The change has ended: numbers that became free in it may be given out again.
    pub fn settle(&mut self) {
        self.0.settle();
    }
}
