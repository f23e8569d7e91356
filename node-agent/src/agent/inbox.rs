//! What the kernel thread is told: the Nodes as they are now, and when to stop.
//!
//! Level-triggered: the inbox holds the latest state and a bell. However many
//! events come while the thread is busy, it wakes once and sees the last of
//! them, so the inbox cannot overflow and the order of events does not matter.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use tweed_core::object::Event;
use tweed_core::object::node::Node;
use tweed_planner::overlay::cluster::Cluster;

/// Shared by the task that hears of Nodes and the kernel thread.
#[derive(Debug)]
pub struct Inbox {
    state: Mutex<Told>,
    bell: EventFd,
}

/// What was told so far.
#[derive(Debug)]
pub struct Told {
    /// The Nodes.
    pub nodes: Cluster,
    /// Whether the source has said anything that counts: a whole list, or that
    /// it cannot be read.
    pub spoken: bool,
    /// Whether to stop.
    pub stop: bool,
}

impl Inbox {
    /// An empty inbox of the node of this name; `was_ready` as [`Cluster::resumed`]
    /// has it.
    ///
    /// # Errors
    /// When the kernel gives no event file descriptor.
    pub fn new(node_name: &str, was_ready: bool) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            state: Mutex::new(Told {
                nodes: Cluster::new(node_name).resumed(was_ready),
                spoken: false,
                stop: false,
            }),
            bell: EventFd::from_value_and_flags(0, flags)?,
        })
    }

    /// Takes in what a source said.
    pub fn tell(&self, event: Event<Node>) {
        let mut told = self.told();
        let counts = matches!(event, Event::InitDone | Event::Lost(_));
        if told.nodes.apply(event) {
            told.spoken |= counts;
            drop(told);
            self.ring();
        }
    }

    /// Has the kernel thread end after the pass that it is in.
    pub fn stop(&self) {
        self.told().stop = true;
        self.ring();
    }

    /// What was told so far. Nothing else is heard while it is held.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        // The Nodes are whole again before anything in it could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of the ringing, so that the next one can be heard.
    pub fn answer(&self) {
        // Not having rung is no failure.
        let _ = self.bell.read();
    }

    fn ring(&self) {
        // It fails only when 2^64 rings were not answered.
        let _ = self.bell.write(1);
    }
}

impl AsFd for Inbox {
    /// Readable after a ring.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use tweed_core::object::node::Node;

    fn rings(inbox: &Inbox) -> bool {
        let mut fds = [PollFd::new(inbox.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    }

    fn node(name: &str) -> Node {
        Node {
            name: name.to_owned(),
            ..Node::default()
        }
    }

    #[test]
    fn it_rings_once_for_many_events_and_only_for_news() {
        let inbox = Inbox::new("a", false).unwrap();
        inbox.tell(Event::Init);
        inbox.tell(Event::InitApply(node("a")));
        assert!(!rings(&inbox), "a list that has not ended is no news");
        inbox.tell(Event::InitDone);
        inbox.tell(Event::Apply(node("b")));
        assert!(rings(&inbox));
        inbox.answer();
        assert!(!rings(&inbox));
        let version = inbox.told().nodes.version();
        inbox.tell(Event::Apply(node("b")));
        assert!(!rings(&inbox), "a heartbeat is no news");
        assert_eq!(inbox.told().nodes.version(), version);
        inbox.stop();
        assert!(rings(&inbox));
        assert!(inbox.told().stop);
    }

    #[test]
    fn a_source_that_cannot_be_read_has_spoken() {
        let inbox = Inbox::new("a", false).unwrap();
        assert!(!inbox.told().spoken);
        inbox.tell(Event::Lost("no such file".to_owned()));
        assert!(inbox.told().spoken);
        assert!(rings(&inbox));
    }
}
