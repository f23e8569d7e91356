//! The state that the two threads share: what the sources have described so far,
//! and whether to stop.
//!
//! How data goes through: the task of a source calls [`State::update`] with each
//! event; if that changes anything, the kernel thread wakes up and reads the
//! stores ([`State::read`]). It is level-triggered: however many events come
//! while the thread is busy, it wakes up once and reads the latest state, so
//! nothing can overflow and the order of events does not matter.
//!
//! A further kind of object is a field of [`Stores`], which keeps its readiness
//! and its version by itself, and an implementation of [`Stored`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use tweed_core::object::node::Node;
use tweed_core::object::{Event, Object};
use tweed_planner::overlay::cluster::Cluster;

/// Shared by the tasks of the sources and the kernel thread.
#[derive(Debug)]
pub struct State {
    stores: Mutex<Stores>,
    wake: EventFd,
}

/// One store for each kind of object.
#[derive(Debug)]
pub struct Stores {
    /// The Nodes.
    pub nodes: Cluster,
    /// Whether the source of Nodes has listed them or said that it cannot.
    nodes_reported: bool,
    /// Whether the kernel thread is to end.
    pub stop: bool,
}

impl Stores {
    /// Whether every source has listed its objects or said that it cannot.
    pub fn sources_reported(&self) -> bool {
        self.nodes_reported
    }
}

/// An object whose kind has a store.
pub trait Stored: Object {
    /// Applies `event` to the store of this kind, and says whether anything
    /// changed by it.
    fn apply(stores: &mut Stores, event: Event<Self>) -> bool;
}

impl Stored for Node {
    fn apply(stores: &mut Stores, event: Event<Self>) -> bool {
        let reports = matches!(event, Event::InitDone | Event::Lost(_));
        let changed = stores.nodes.apply(event);
        stores.nodes_reported |= changed && reports;
        changed
    }
}

impl State {
    /// The state of the node of this name before any event; `nodes` are those
    /// that an earlier run knew last: [`Cluster::resumed`].
    ///
    /// # Errors
    /// When the kernel gives no event file descriptor.
    pub fn new(node_name: &str, nodes: Vec<Node>) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            stores: Mutex::new(Stores {
                nodes: Cluster::new(node_name).resumed(nodes),
                nodes_reported: false,
                stop: false,
            }),
            wake: EventFd::from_value_and_flags(0, flags)?,
        })
    }

    /// Applies an event of a source, and wakes the kernel thread if that changes
    /// anything. Says whether it does.
    pub fn update<T: Stored>(&self, event: Event<T>) -> bool {
        let changed = T::apply(&mut self.read(), event);
        if changed {
            self.wake();
        }
        changed
    }

    /// Has the kernel thread end after the reconcile that it is in.
    pub fn stop(&self) {
        self.read().stop = true;
        self.wake();
    }

    /// The stores. No event is applied while they are borrowed.
    pub fn read(&self) -> MutexGuard<'_, Stores> {
        // The stores are consistent again before anything could panic.
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acknowledges the wake-ups so far: the file descriptor is readable again
    /// from the next one on.
    pub fn acknowledge(&self) {
        // It fails if there was none.
        let _ = self.wake.read();
    }

    fn wake(&self) {
        // It fails only after 2^64 wake-ups without acknowledgement.
        let _ = self.wake.write(1);
    }
}

impl AsFd for State {
    /// Readable after a wake-up.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn wakes(state: &State) -> bool {
        let mut fds = [PollFd::new(state.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    }

    fn node(name: &str) -> Node {
        Node {
            name: name.to_owned(),
            ..Node::default()
        }
    }

    #[test]
    fn many_events_are_one_wake_up_and_those_without_a_change_are_none() {
        let state = State::new("a", Vec::new()).unwrap();
        state.update(Event::<Node>::Init);
        state.update(Event::InitApply(node("a")));
        assert!(!wakes(&state), "a list that has not ended changes nothing");
        state.update(Event::<Node>::InitDone);
        state.update(Event::Apply(node("b")));
        assert!(wakes(&state));
        state.acknowledge();
        assert!(!wakes(&state));
        let version = state.read().nodes.version();
        state.update(Event::Apply(node("b")));
        assert!(!wakes(&state), "a heartbeat changes nothing");
        assert_eq!(state.read().nodes.version(), version);
        state.stop();
        assert!(wakes(&state));
        assert!(state.read().stop);
    }

    #[test]
    fn a_source_that_cannot_be_read_has_reported() {
        let state = State::new("a", Vec::new()).unwrap();
        assert!(!state.read().sources_reported());
        state.update(Event::<Node>::Lost("no such file".to_owned()));
        assert!(state.read().sources_reported());
        assert!(wakes(&state));
    }
}
