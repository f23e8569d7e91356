//! Looks at one set beside the thread that writes the table.
//!
//! The kernel takes hundreds of milliseconds for the elements of a large set, and a new pod
//! must not wait for that. So a thread of its own reads them, by a socket of its own, and
//! makes their [`Sum`], which is compared with the sum of what the set was left with. Only
//! if the two differ the set itself is compared, by the thread that writes.
//!
//! What is written meanwhile may be seen in part. Then the sum fits neither what the set
//! held before nor what it holds now, and says nothing: [`Found::Unclear`]. A sum that fits
//! says that the set is as it was left, whatever went on beside.

use std::panic::resume_unwind;
use std::thread::{Builder, JoinHandle};

use tweed_netlink::nf::Socket;
use tweed_netlink::nf::idle::Idle;
use tweed_netlink::nf::object::TableKey;

use crate::error::Error;
use crate::observe::{self, Seen};
use crate::sum::{Sum, Summer};
use crate::table::Set;

/// What a set was last seen or left to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// The sum of its elements.
    pub(super) sum: Sum,
    /// The number of the write or comparison by which that is known.
    pub(super) number: u64,
}

/// The result of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The set holds what it was left with.
    AsLeft,
    /// Somebody else has changed it, or it cannot be read this way.
    Differs,
    /// It was written meanwhile, so that nothing is known.
    Unclear,
}

/// A look that is under way, or has ended and was not taken up.
#[derive(Debug)]
pub(super) struct Look {
    set: Set,
    began: Held,
    thread: JoinHandle<Result<Seen, tweed_netlink::Error>>,
}

impl Look {
    /// Begins to look at a set that holds this, in the calling thread's network namespace,
    /// and does not wait. `idle` keeps the socket.
    ///
    /// # Errors
    /// The kernel gives no socket, or no thread.
    pub(super) fn begin(
        table: TableKey<'static>,
        set: &Set,
        began: Held,
        summer: &Summer,
        idle: &Idle<Socket>,
    ) -> Result<Self, Error> {
        // Opened here: the thread need not be in this network namespace.
        let mut socket = idle.take()?;
        let (of, summer, idle) = (set.clone(), summer.clone(), idle.clone());
        let look = Builder::new().name("look".to_owned());
        let thread = look.spawn(move || {
            let seen = observe::sum(&mut socket, table, &of, &summer)?;
            idle.give_back(socket);
            Ok(seen)
        });
        Ok(Self {
            set: set.clone(),
            began,
            thread: thread.map_err(Error::Thread)?,
        })
    }

    /// The set.
    #[must_use]
    pub(super) fn set(&self) -> &Set {
        &self.set
    }

    /// Whether it has ended.
    #[must_use]
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Its result, now that the set is known to hold this, if that is known.
    pub(super) fn end(self, now: Option<Held>) -> Found {
        let seen = self.thread.join();
        match seen.unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(seen) => judge(self.began, now, seen),
            // Whoever compares the set meets the same error, and reports it.
            Err(_) => Found::Differs,
        }
    }
}

/// What a dump says about a set that held `began` before it and holds `now` after it.
fn judge(began: Held, now: Option<Held>, seen: Seen) -> Found {
    let is_seen = |held: Held| seen.sum == Some(held.sum);
    if is_seen(began) || now.is_some_and(is_seen) {
        Found::AsLeft
    } else if seen.interrupted || now != Some(began) {
        Found::Unclear
    } else {
        Found::Differs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Field, Key};
    use crate::value::Value;

    /// A set of the ports below `ports`, after so many writes.
    fn held(summer: &Summer, ports: u16, number: u64) -> Held {
        let keys = (0..ports).map(|port| Key::from(Field::from(Value::Port(port))));
        let elements: Vec<_> = keys.map(|key| (key, None)).collect();
        let sum = summer.sum(elements.iter().map(|(key, data)| (key, data)));
        Held { sum, number }
    }

    #[test]
    fn a_difference_is_one_only_if_nothing_was_written_meanwhile() {
        let summer = Summer::default();
        let began = held(&summer, 5, 1);
        let written = held(&summer, 6, 2);
        let back = held(&summer, 5, 3);
        let seen = |ports, interrupted| Seen {
            sum: Some(held(&summer, ports, 0).sum),
            interrupted,
        };
        let foreign = |interrupted| Seen {
            sum: None,
            interrupted,
        };
        for (now, seen, found) in [
            // Nothing went on beside.
            (Some(began), seen(5, false), Found::AsLeft),
            (Some(began), seen(4, false), Found::Differs),
            (Some(began), foreign(false), Found::Differs),
            // Others wrote to some table.
            (Some(began), seen(5, true), Found::AsLeft),
            (Some(began), seen(4, true), Found::Unclear),
            (Some(began), foreign(true), Found::Unclear),
            // The set was written before the dump, after it, or while it was read.
            (Some(written), seen(6, false), Found::AsLeft),
            (Some(written), seen(5, false), Found::AsLeft),
            (Some(written), seen(4, true), Found::Unclear),
            (Some(written), seen(4, false), Found::Unclear),
            // It was written and written back.
            (Some(back), seen(6, false), Found::Unclear),
            (Some(back), seen(5, true), Found::AsLeft),
            // Somebody else's change was told meanwhile.
            (None, seen(4, false), Found::Unclear),
        ] {
            assert_eq!(judge(began, now, seen), found, "{now:?} {seen:?}");
        }
    }
}
