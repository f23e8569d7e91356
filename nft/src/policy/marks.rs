//! The generations that entries of conntrack may carry, and clearing their marks before a
//! number comes again.
//!
//! The kernel walks through the connections of all network namespaces to clear marks, so
//! a thread of its own does it, in time before it is needed. Meanwhile generations go on:
//! what is known at its end is that entries carry none that it cleared but the one that was
//! in force when it began, or one of those after it.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use tweed_core::ownership::POLICY_MARK_MASK;
use tweed_netlink::nf::conntrack::{Conntrack, Walked};
use tweed_netlink::nf::idle::Idle;

use super::generation::{Generation, Window};
use crate::error::Error;

/// How long a packet may be on its way through the rules of a generation that is no longer
/// in force. Until then a walk waits, because the packet marks its flow at the end.
const ON_THE_WAY: Duration = Duration::from_millis(10);

/// Which generations can be used, and a walk that is under way.
#[derive(Default)]
pub(super) struct Marks {
    carried: Carried,
    conntrack: Idle<Conntrack>,
    walk: Option<Walk>,
}

struct Walk {
    scope: Scope,
    thread: JoinHandle<Result<Walked, tweed_netlink::Error>>,
}

impl Marks {
    /// Begins to clear marks where those of the next generations have to be, and does not
    /// wait. What fails is tried again, and whoever has to wait for it gets the error.
    pub(super) fn clear_in_time(&mut self, current: Generation) {
        self.take_up();
        if self.walk.is_none() {
            drop(self.begin_needed(current));
        }
    }

    /// Takes up a walk that has ended.
    fn take_up(&mut self) {
        let walk = self.walk.as_ref();
        if walk.is_some_and(|walk| walk.thread.is_finished()) {
            drop(self.end());
        }
    }

    /// Returns when no entry carries the generation after `current`, the one in force.
    ///
    /// # Errors
    /// Marks cannot be cleared.
    pub(super) fn await_next(&mut self, current: Generation) -> Result<(), Error> {
        self.take_up();
        while self.carried.generations.contains(&current.next()) {
            if self.walk.is_none() {
                self.begin_needed(current)?;
            }
            self.end()?;
        }
        Ok(())
    }

    /// Packets may mark their flows with this generation from now on.
    pub(super) fn came_in_force(&mut self, generation: Generation) {
        self.carried.came_in_force(generation);
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
        self.begin(Scope::All, None)?;
        self.end()
    }

    fn begin_needed(&mut self, current: Generation) -> Result<(), Error> {
        match self.carried.needed(current) {
            Some(scope) => self.begin(scope, Some(current)),
            None => Ok(()),
        }
    }

    fn begin(&mut self, scope: Scope, in_force: Option<Generation>) -> Result<(), Error> {
        // Opened here, in the network namespace of this thread.
        let mut conntrack = self.conntrack.take()?;
        let idle = self.conntrack.clone();
        let builder = Builder::new().name("marks".to_owned());
        let walk = builder.spawn(move || {
            thread::sleep(ON_THE_WAY);
            let walked = match scope {
                Scope::All => conntrack.clear_mark_bits(POLICY_MARK_MASK),
                Scope::Window(window) => conntrack.clear_marks(window.filter(), POLICY_MARK_MASK),
            }?;
            idle.give_back(conntrack);
            Ok(walked)
        });
        let thread = walk.map_err(Error::Thread)?;
        self.walk = Some(Walk { scope, thread });
        self.carried.begin(in_force);
        Ok(())
    }

    /// Waits for the end of the walk.
    fn end(&mut self) -> Result<(), Error> {
        let Some(Walk { scope, thread }) = self.walk.take() else {
            return Ok(());
        };
        let cleared = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        cleared?;
        self.carried.end(scope);
        Ok(())
    }
}

/// What a walk clears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Window(Window),
}

impl Scope {
    fn contains(self, generation: Generation) -> bool {
        match self {
            Self::All => true,
            Self::Window(window) => window.contains(generation),
        }
    }
}

/// The generations that entries may carry.
#[derive(Debug, Clone)]
struct Carried {
    generations: BTreeSet<Generation>,
    /// Those that were in force at some time since the walk began that is under way.
    since: BTreeSet<Generation>,
}

impl Default for Carried {
    /// All of them, before the first walk.
    fn default() -> Self {
        Self {
            generations: Generation::all().collect(),
            since: BTreeSet::new(),
        }
    }
}

impl Carried {
    fn came_in_force(&mut self, generation: Generation) {
        self.generations.insert(generation);
        self.since.insert(generation);
    }

    /// What has to be cleared before the generations after `current`: the rest of its
    /// window, which was clear when the window came in use unless an earlier run used it,
    /// and then the next window.
    fn needed(&self, current: Generation) -> Option<Scope> {
        let window = current.window();
        let mut next = current.next();
        while window.contains(next) {
            if self.generations.contains(&next) {
                return Some(Scope::All);
            }
            next = next.next();
        }
        let window = next.window();
        let mut generations = self.generations.iter();
        let is_carried = generations.any(|generation| window.contains(*generation));
        is_carried.then_some(Scope::Window(window))
    }

    fn begin(&mut self, in_force: Option<Generation>) {
        self.since = in_force.into_iter().collect();
    }

    /// The walk that began has cleared everything in its scope.
    fn end(&mut self, scope: Scope) {
        let generations = &mut self.generations;
        generations.retain(|generation| !scope.contains(*generation));
        generations.extend(&self.since);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Entries of conntrack, and how far a walk through them has come.
    struct Entries {
        marks: [Option<Generation>; 6],
        walk: Option<(Scope, usize)>,
    }

    impl Entries {
        /// The walk comes to the next entry. Returns what it has cleared when it has been
        /// at all of them.
        fn step(&mut self) -> Option<Scope> {
            let (scope, position) = self.walk.as_mut()?;
            let Some(mark) = self.marks.get_mut(*position) else {
                return self.walk.take().map(|(scope, _)| scope);
            };
            *position += 1;
            *mark = mark.filter(|generation| !scope.contains(*generation));
            None
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// A packet marks its flow.
        Packet(usize),
        Next,
        Begin,
        Walk,
        Fail,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..6_usize).prop_map(Step::Packet),
            8 => Just(Step::Next),
            2 => Just(Step::Begin),
            8 => Just(Step::Walk),
            1 => Just(Step::Fail),
        ]
    }

    /// Marks of an earlier run, and the generation that it has left in force.
    fn earlier() -> impl Strategy<Value = ([Option<Generation>; 6], Generation)> {
        let generations: Vec<Generation> = Generation::all().collect();
        let generation = || prop::sample::select(generations.clone());
        let marks = prop::array::uniform6(prop::option::of(generation()));
        (marks, generation())
    }

    proptest! {
        #[test]
        fn no_generation_comes_in_force_that_an_entry_carries(
            (marks, mut current) in earlier(),
            steps in prop::collection::vec(step(), 0..600),
        ) {
            let mut entries = Entries { marks, walk: None };
            let mut carried = Carried::default();
            carried.came_in_force(current);
            for step in steps {
                match step {
                    Step::Packet(entry) => entries.marks[entry] = Some(current),
                    Step::Next if !carried.generations.contains(&current.next()) => {
                        current = current.next();
                        prop_assert!(!entries.marks.contains(&Some(current)));
                        carried.came_in_force(current);
                    }
                    Step::Begin if entries.walk.is_none() => {
                        if let Some(scope) = carried.needed(current) {
                            carried.begin(Some(current));
                            entries.walk = Some((scope, 0));
                        }
                    }
                    Step::Walk => {
                        if let Some(scope) = entries.step() {
                            carried.end(scope);
                        }
                    }
                    Step::Fail => entries.walk = None,
                    Step::Next | Step::Begin => {}
                }
            }
        }

        #[test]
        fn whoever_waits_gets_the_next_one((_, current) in earlier()) {
            let mut carried = Carried::default();
            let scope = carried.needed(current).unwrap();
            carried.begin(Some(current));
            carried.end(scope);
            prop_assert!(!carried.generations.contains(&current.next()));
        }
    }

    #[test]
    fn a_walk_in_time_clears_a_window_for_many_changes() {
        let mut carried = Carried::default();
        carried.begin(None);
        carried.end(Scope::All);
        let mut current = Generation::FIRST;
        carried.came_in_force(current);
        let mut walks = 0;
        for _ in 0..30 + 3 * 24 {
            if let Some(scope) = carried.needed(current) {
                assert_ne!(scope, Scope::All);
                carried.begin(Some(current));
                carried.end(scope);
                walks += 1;
            }
            current = current.next();
            assert!(!carried.generations.contains(&current));
            carried.came_in_force(current);
        }
        // One while 16 to 31 are used for the first time, and two for each round after it.
        assert_eq!(walks, 1 + 2 * 3);
    }
}
