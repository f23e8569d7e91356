//! When routes were made, by the kernel's own notifications.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, poll};
use tweed_lab::{Netns, realtime};
use tweed_netlink::route::Kind;
use tweed_netlink::{Monitor, Notification};

/// Room for the unread notifications of 15,000 Nodes, in bytes.
const ROOM: usize = 64 << 20;
/// How long a route may take, in any measurement.
const LIMIT: Duration = Duration::from_secs(60);
/// How often the thread looks whether it is to end, in milliseconds.
const LOOK: u8 = 100;

/// Watches the routes of one protocol in a network namespace.
pub struct RouteWatch {
    /// When a route was made, or that it was removed.
    changes: mpsc::Receiver<(Ipv4Addr, Option<Instant>)>,
    /// When the routes that are there were made.
    made: BTreeMap<Ipv4Addr, Instant>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RouteWatch {
    /// Listens in `netns` from now on.
    pub fn start(netns: &Netns, protocol: u8) -> anyhow::Result<Self> {
        let mut monitor = netns.enter(|| Monitor::with_room(ROOM))??;
        let (tell, changes) = mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&ended);
        let thread = realtime::spawn(move || {
            while !ending.load(Ordering::Relaxed) {
                let mut ready = [PollFd::new(monitor.as_fd(), PollFlags::POLLIN)];
                // A failure here shows as a route that is waited for until the limit.
                let _ = poll(&mut ready, LOOK);
                let now = Instant::now();
                for change in monitor.drain().unwrap_or_default() {
                    let (route, at) = match &change {
                        Notification::Route(route) => (route, Some(now)),
                        Notification::RouteRemoved(route) => (route, None),
                        _ => continue,
                    };
                    if let IpAddr::V4(to) = route.destination.ip()
                        && route.protocol == protocol
                        && route.kind == Kind::Unicast
                    {
                        // Who waits may have gone.
                        let _ = tell.send((to, at));
                    }
                }
            }
        })?;
        Ok(Self {
            changes,
            made: BTreeMap::new(),
            ended,
            thread: Some(thread),
        })
    }

    /// Waits until `count` destinations have a route; gives the moment of the last one.
    pub fn wait_for_all(&mut self, count: usize) -> anyhow::Result<Instant> {
        let last = self.wait(|made| {
            let is_whole = made.len() >= count;
            made.values().max().filter(|_| is_whole).copied()
        });
        last.with_context(|| format!("waiting for {count} routes"))
    }

    /// Waits until there was a route to `destination` after `start`; gives that moment.
    pub fn wait_for(&mut self, destination: Ipv4Addr, start: Instant) -> anyhow::Result<Instant> {
        let made = self.wait(|made| made.get(&destination).filter(|at| **at > start).copied());
        made.with_context(|| format!("waiting for the route to {destination}"))
    }

    fn wait(
        &mut self,
        find: impl Fn(&BTreeMap<Ipv4Addr, Instant>) -> Option<Instant>,
    ) -> anyhow::Result<Instant> {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(found) = find(&self.made) {
                return Ok(found);
            }
            let left = end.saturating_duration_since(Instant::now());
            let change = self.changes.recv_timeout(left);
            let routes = self.made.len();
            match change.with_context(|| format!("after {LIMIT:?} there are {routes} routes"))? {
                (to, Some(at)) => self.made.insert(to, at),
                (to, None) => self.made.remove(&to),
            };
        }
    }
}

impl Drop for RouteWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It gives nothing.
            let _ = thread.join();
        }
    }
}
