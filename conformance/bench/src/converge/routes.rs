//! When routes were made and removed, by the kernel's own notifications.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
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

/// The moments of routes that are there, and of those that were removed.
#[derive(Default)]
struct Seen {
    made: BTreeMap<Ipv4Addr, Instant>,
    removed: BTreeMap<Ipv4Addr, Instant>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
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
        self.shared.seen().made.remove(&destination);
    }

    /// Waits until `count` destinations have a route; gives the moment of the last one.
    pub fn wait_for_all(&self, count: usize) -> anyhow::Result<Instant> {
        let last = self.wait(|seen| match seen.made.len() >= count {
            true => seen.made.values().max().copied(),
            false => None,
        });
        last.with_context(|| format!("waiting for {count} routes"))
    }

    /// Waits until the routes to all of `destinations` were removed; gives the moment of
    /// the last one.
    pub fn wait_for_removed(&self, destinations: &[Ipv4Addr]) -> anyhow::Result<Instant> {
        let last = self.wait(|seen| {
            let removed = destinations.iter().map(|one| seen.removed.get(one));
            removed
                .collect::<Option<Vec<_>>>()?
                .into_iter()
                .max()
                .copied()
        });
        last.with_context(|| format!("waiting for {} routes to go", destinations.len()))
    }

    /// Waits until there was a route to `destination`; gives that moment.
    pub fn wait_for(&self, destination: Ipv4Addr) -> anyhow::Result<Instant> {
        let made = self.wait(|seen| seen.made.get(&destination).copied());
        made.with_context(|| format!("waiting for the route to {destination}"))
    }

    fn wait(&self, find: impl Fn(&Seen) -> Option<Instant>) -> anyhow::Result<Instant> {
        let until = Instant::now() + LIMIT;
        let mut seen = self.shared.seen();
        loop {
            if let Some(found) = find(&seen) {
                return Ok(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("after {LIMIT:?} there are {} routes", seen.made.len());
            }
            let woken = self.shared.changed.wait_timeout(seen, left);
            seen = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, changes: &[Notification], protocol: u8, now: Instant) {
        let of = |route: &Route| match route.destination.ip() {
            IpAddr::V4(to) if route.protocol == protocol && route.kind == Kind::Unicast => Some(to),
            _ => None,
        };
        let mut seen = self.seen();
        for change in changes {
            match change {
                Notification::Route(route) => {
                    if let Some(to) = of(route) {
                        seen.made.insert(to, now);
                        seen.removed.remove(&to);
                    }
                }
                Notification::RouteRemoved(route) => {
                    if let Some(to) = of(route) {
                        seen.made.remove(&to);
                        seen.removed.insert(to, now);
                    }
                }
                _ => {}
            }
        }
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
