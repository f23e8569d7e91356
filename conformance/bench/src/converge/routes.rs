//! When routes were made, by the kernel's own notifications.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, poll};
use tweed_lab::Netns;
use tweed_netlink::route::{Kind, Route};
use tweed_netlink::{Monitor, Notification};

use crate::realtime;

/// Room for the unread notifications of 15,000 Nodes, in bytes.
const ROOM: usize = 64 << 20;
/// How long a route may take, in any measurement.
const LIMIT: Duration = Duration::from_secs(60);
/// How often the thread looks whether it is to end, in milliseconds.
const LOOK: u8 = 100;

/// Watches the routes of one protocol in a network namespace.
pub struct RouteWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// When the routes that are there were made.
    made: Mutex<BTreeMap<Ipv4Addr, Instant>>,
    changed: Condvar,
    ended: AtomicBool,
}

impl RouteWatch {
    /// Listens in `netns` from now on.
    pub fn start(netns: &Netns, protocol: u8) -> anyhow::Result<Self> {
        let mut monitor = netns.enter(|| Monitor::with_room(ROOM))??;
        let shared = Arc::new(Shared::default());
        let noting = Arc::clone(&shared);
        let thread = realtime::spawn(move || {
            while !noting.ended.load(Ordering::Relaxed) {
                let mut ready = [PollFd::new(monitor.as_fd(), PollFlags::POLLIN)];
                // A failure here shows as a route that is waited for until the limit.
                let _ = poll(&mut ready, LOOK);
                let now = Instant::now();
                let changes = monitor.drain().unwrap_or_default();
                noting.note(&changes, protocol, now);
            }
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Forgets the route to `destination`, so that the next one is waited for.
    pub fn forget(&self, destination: Ipv4Addr) {
        self.shared.made().remove(&destination);
    }

    /// Waits until `count` destinations have a route; gives the moment of the last one.
    pub fn wait_for_all(&self, count: usize) -> anyhow::Result<Instant> {
        let last = self.wait(|made| {
            let is_whole = made.len() >= count;
            made.values().max().filter(|_| is_whole).copied()
        });
        last.with_context(|| format!("waiting for {count} routes"))
    }

    /// Waits until there was a route to `destination`; gives that moment.
    pub fn wait_for(&self, destination: Ipv4Addr) -> anyhow::Result<Instant> {
        let made = self.wait(|made| made.get(&destination).copied());
        made.with_context(|| format!("waiting for the route to {destination}"))
    }

    fn wait(
        &self,
        find: impl Fn(&BTreeMap<Ipv4Addr, Instant>) -> Option<Instant>,
    ) -> anyhow::Result<Instant> {
        let changed = &self.shared.changed;
        let woken =
            changed.wait_timeout_while(self.shared.made(), LIMIT, |made| find(made).is_none());
        let (made, _) = woken.unwrap_or_else(PoisonError::into_inner);
        find(&made).with_context(|| format!("after {LIMIT:?} there are {} routes", made.len()))
    }
}

impl Shared {
    fn made(&self) -> MutexGuard<'_, BTreeMap<Ipv4Addr, Instant>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, changes: &[Notification], protocol: u8, now: Instant) {
        let of = |route: &Route| match route.destination.ip() {
            IpAddr::V4(to) if route.protocol == protocol && route.kind == Kind::Unicast => Some(to),
            _ => None,
        };
        let mut made = self.made();
        for change in changes {
            match change {
                Notification::Route(route) => made.extend(of(route).map(|to| (to, now))),
                Notification::RouteRemoved(route) => {
                    of(route).and_then(|to| made.remove(&to));
                }
                _ => {}
            }
        }
        drop(made);
        self.changed.notify_all();
    }
}

impl Drop for RouteWatch {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It gives nothing.
            let _ = thread.join();
        }
    }
}
