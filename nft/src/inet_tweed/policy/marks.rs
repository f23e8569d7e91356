//! The generations that entries of conntrack may carry, and clearing their marks before a
//! number comes again.
//!
//! The kernel walks through the connections of all network namespaces to clear marks, so
//! a thread of its own does it, in time before it is needed. Meanwhile generations go on:
//! what is known at its end is that entries carry the one that was in force when it
//! began, or one of those after it, or none.

use std::panic::resume_unwind;
use std::thread::{Builder, JoinHandle};

use tweed_core::ownership::POLICY_MARK_MASK;
use tweed_netlink::nf::conntrack::{Conntrack, Walked};
use tweed_netlink::nf::idle::Idle;

use super::generation::Generation;
use crate::error::Error;

/// How many unused generations are few enough to begin to clear marks: each change that
/// takes something away uses one, and a walk takes up to some seconds.
const FEW: u8 = Generation::OTHERS / 2;

/// Which generations can be used, and a walk that is under way.
#[derive(Default)]
pub(super) struct Marks {
    unused: Unused,
    conntrack: Idle<Conntrack>,
    walk: Option<JoinHandle<Result<Walked, tweed_netlink::Error>>>,
}

impl Marks {
    /// Begins to clear marks where few generations are left, and does not wait. What fails
    /// is tried again, and whoever has to wait for it gets the error.
    pub(super) fn clear_in_time(&mut self) {
        self.take_up();
        if self.walk.is_none() && self.unused.left < FEW {
            drop(self.begin());
        }
    }

    /// Takes up a walk that has ended.
    fn take_up(&mut self) {
        if self.walk.as_ref().is_some_and(JoinHandle::is_finished) {
            drop(self.end());
        }
    }

    /// The next generation comes in force. Only where no entry may carry it: else this
    /// waits until the marks are cleared.
    ///
    /// # Errors
    /// Marks cannot be cleared.
    pub(super) fn use_next(&mut self) -> Result<(), Error> {
        self.take_up();
        if self.unused.left == 0 {
            if self.walk.is_none() {
                self.begin()?;
            }
            self.end()?;
        }
        self.unused.take();
        Ok(())
    }

    /// Clears all marks while no generation is in force, and waits for it.
    ///
    /// # Errors
    /// Marks cannot be cleared.
    pub(super) fn clear_all(&mut self) -> Result<(), Error> {
        // What it finds is of no use: marks may have been written behind it.
        if self.walk.is_some() {
            drop(self.end());
        }
        self.begin()?;
        self.end()
    }

    fn begin(&mut self) -> Result<(), Error> {
        // Opened here, in the network namespace of this thread.
        let mut conntrack = self.conntrack.take()?;
        let idle = self.conntrack.clone();
        let walk = Builder::new().name("marks".to_owned());
        let walk = walk.spawn(move || {
            let walked = conntrack.clear_mark_bits(POLICY_MARK_MASK)?;
            idle.give_back(conntrack);
            Ok(walked)
        });
        self.walk = Some(walk.map_err(Error::Thread)?);
        self.unused.begin();
        Ok(())
    }

    /// Waits for the end of the walk.
    fn end(&mut self) -> Result<(), Error> {
        let Some(walk) = self.walk.take() else {
            return Ok(());
        };
        let cleared = walk.join().unwrap_or_else(|panic| resume_unwind(panic));
        self.unused.end(cleared.is_ok());
        cleared?;
        Ok(())
    }
}

/// How many generations no entry may carry: those that come next. None is known to be
/// unused before the first walk.
#[derive(Debug, Clone, Copy, Default)]
struct Unused {
    left: u8,
    /// How many have come in force since the walk began that is under way.
    since: u8,
}

impl Unused {
    fn begin(&mut self) {
        self.since = 0;
    }

    fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.since = self.since.saturating_add(1);
    }

    fn end(&mut self, cleared: bool) {
        if cleared {
            self.left = Generation::OTHERS.saturating_sub(self.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Take,
        Begin,
        End(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => Just(Step::Take),
            1 => Just(Step::Begin),
            1 => any::<bool>().prop_map(Step::End),
        ]
    }

    proptest! {
        #[test]
        fn no_number_comes_again_that_an_entry_may_carry(
            steps in prop::collection::vec(step(), 0..300),
        ) {
            let mut unused = Unused::default();
            let mut current = Generation::FIRST;
            // Before the first walk entries may carry anything.
            let mut carried: BTreeSet<Generation> = Generation::all().collect();
            // What the entries may carry that the walk has been at.
            let mut walked: Option<BTreeSet<Generation>> = None;
            for step in steps {
                match step {
                    Step::Take if unused.left > 0 => {
                        current = current.next();
                        prop_assert!(!carried.contains(&current));
                        carried.insert(current);
                        if let Some(walked) = &mut walked {
                            walked.insert(current);
                        }
                        unused.take();
                    }
                    Step::Begin if walked.is_none() => {
                        walked = Some([current].into());
                        unused.begin();
                    }
                    Step::End(cleared) => {
                        if let Some(walked) = walked.take() {
                            carried = if cleared { walked } else { carried };
                            unused.end(cleared);
                        }
                    }
                    Step::Take | Step::Begin => {}
                }
            }
        }
    }
}
