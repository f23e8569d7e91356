//! The state that the two threads share: what the sources have described so far,
//! and whether to stop.
//!
//! How data goes through: the task of a source calls [`State::update`] with each
//! event; if that changes anything, the kernel thread wakes up and reads the
//! stores ([`State::read`]). It is level-triggered: however many events come
//! while the thread is busy, it wakes up once and reads the latest state, so
//! nothing can overflow and the order of events does not matter.
//!
//! The objects of each component besides the overlay have an [`Index`] and a lock of their
//! own: a plan of them may take long, and Nodes need not wait for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::sys::eventfd::{EfdFlags, EventFd};

use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tweed_component::peers::PeerStatus;
use tweed_core::agent_socket::message::Judge;
use tweed_core::object::Event;
use tweed_core::object::node::Node;
use tweed_planner::overlay::cluster::Cluster;
use tweed_planner::probe::Prober;

use crate::config::Config;
use crate::enforce::Verdict;
use crate::fast_path::FastPathSwitches;
use crate::index::{Collection, Index, PolicyIndex, ServiceIndex, policy, services};
use crate::members::{Line, Members};
use crate::waiting_pods::WaitingPods;

/// Shared by the tasks of the sources and the kernel thread.
#[derive(Debug)]
pub struct State {
    stores: Mutex<Stores>,
    /// None with `--policy off`.
    policy: Option<Mutex<PolicyIndex>>,
    /// None with `--services off`.
    services: Option<Mutex<ServiceIndex>>,
    waiting_pods: WaitingPods,
    /// None with `--probe-peers off`.
    probes: Option<Mutex<Prober>>,
    fast_path: FastPathSwitches,
    wake: EventFd,
}

/// The Nodes, and what the kernel thread is to do.
#[derive(Debug)]
pub struct Stores {
    /// The Nodes.
    pub nodes: Cluster,
    /// Whether their source has listed them or said that it cannot.
    pub nodes_reported: bool,
    /// Whether the kernel thread is to end.
    pub stop: bool,
}

/// The objects of a component whose index is in the state.
pub trait Indexed: Collection {
    /// The index in `state`; none if the component is switched off.
    fn lock(state: &State) -> Option<&Mutex<Index<Self>>>;
}

impl Indexed for policy::Collection {
    fn lock(state: &State) -> Option<&Mutex<PolicyIndex>> {
        state.policy.as_ref()
    }
}

impl Indexed for services::Collection {
    fn lock(state: &State) -> Option<&Mutex<ServiceIndex>> {
        state.services.as_ref()
    }
}

impl State {
    /// The state of the configured node before any event; `nodes` are those that an
    /// earlier run knew last: [`Cluster::resumed`].
    ///
    /// # Errors
    /// When the kernel gives no event file descriptor.
    pub fn new(config: &Config, nodes: Vec<Node>) -> io::Result<Self> {
        let node_name = &config.overlay.node_name;
        let policy = config
            .policy
            .then(|| Mutex::new(PolicyIndex::new(node_name)));
        let options = config.services.clone();
        let services = options.map(|options| Mutex::new(ServiceIndex::new(options)));
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            stores: Mutex::new(Stores {
                nodes: Cluster::new(node_name).resumed(nodes),
                nodes_reported: false,
                stop: false,
            }),
            policy,
            services,
            waiting_pods: WaitingPods::default(),
            probes: config.probe_peers.then(Mutex::default),
            fast_path: FastPathSwitches::default(),
            wake: EventFd::from_value_and_flags(0, flags)?,
        })
    }

    /// Applies an event of the source of Nodes, and wakes the kernel thread if that changes
    /// anything. Says whether it does.
    pub fn update(&self, event: Event<Node>) -> bool {
        let reports = matches!(event, Event::InitDone | Event::Lost(_));
        let mut stores = self.read();
        let members = Members::before(&stores.nodes, &event);
        let changed = stores.nodes.apply(event);
        stores.nodes_reported |= changed && reports;
        let lines = members
            .filter(|_| changed)
            .map(|members| members.after(&stores.nodes));
        drop(stores);
        lines.iter().flatten().for_each(Line::write);
        if changed {
            self.wake();
        }
        changed
    }

    /// An index; none if it is switched off. No event of it is applied while it is
    /// borrowed. The kernel thread has it for as long as a plan takes and the program
    /// `nft` runs, so the runtime's thread does not wait for it: [`State::with_index`].
    pub fn index<C: Indexed>(&self) -> Option<MutexGuard<'_, Index<C>>> {
        // What a panic leaves of the index is not used: it ends the agent.
        C::lock(self).map(|index| index.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What policies are made of; none with `--policy off`.
    pub fn policy(&self) -> Option<MutexGuard<'_, PolicyIndex>> {
        self.index()
    }

    /// What Services are made of; none with `--services off`.
    pub fn services(&self) -> Option<MutexGuard<'_, ServiceIndex>> {
        self.index()
    }

    /// Changes an index, and wakes the kernel thread if `change` says that anything
    /// changed. Once it was polled the change comes, even if it is dropped.
    pub async fn update_index<C: Indexed>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Index<C>) -> bool + Send + 'static,
    ) {
        let state = Arc::clone(self);
        let changed = self.with_index(move |index| {
            if change(index) {
                state.wake();
            }
        });
        changed.await;
    }

    /// What `then` makes of an index, for which it waits in a thread of its own; none if
    /// it is switched off.
    pub async fn with_index<C: Indexed, T: Send + 'static>(
        self: &Arc<Self>,
        then: impl FnOnce(&mut Index<C>) -> T + Send + 'static,
    ) -> Option<T> {
        let then = |state: &Self| state.index::<C>().map(|mut index| then(&mut index));
        self.in_thread(then).await
    }

    /// What `then` makes of the state in a thread of its own, in which it may wait.
    pub async fn in_thread<T: Send + 'static>(
        self: &Arc<Self>,
        then: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> T {
        let state = Arc::clone(self);
        let done = spawn_blocking(move || then(&state));
        match done.await.map_err(JoinError::try_into_panic) {
            Ok(result) => result,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime is being shut down.
            Err(Err(_cancelled)) => std::future::pending().await,
        }
    }

    /// Has the kernel thread enforce the policies for a pod that was added, and gives what becomes of it.
    pub fn enforce(&self, judge: Judge) -> watch::Receiver<Verdict> {
        let verdict = self.waiting_pods.ask(judge);
        self.wake();
        verdict
    }

    /// The pods that wait to be enforced.
    pub fn waiting_pods(&self) -> &WaitingPods {
        &self.waiting_pods
    }

    /// What is known of the ways to other nodes; none with `--probe-peers off`.
    pub fn probes(&self) -> Option<MutexGuard<'_, Prober>> {
        // Each change of it is whole before anything could panic.
        let probes = self.probes.as_ref()?;
        Some(probes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What other nodes answer to probes: a row for each way to one, by node; none with
    /// `--probe-peers off`.
    pub fn peers(&self) -> Option<Vec<PeerStatus>> {
        Some(self.probes()?.status(Instant::now()))
    }

    /// What people have said of the fast path, and how it is.
    pub fn fast_path(&self) -> &FastPathSwitches {
        &self.fast_path
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

    /// Wakes the kernel thread.
    pub fn wake(&self) {
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
    use std::pin::pin;
    use std::sync::mpsc;
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use tokio::sync::oneshot;
    use tokio::time::timeout;
    use tweed_core::object::network_policy::NetworkPolicy;

    use super::*;
    use crate::index::policy::Collection;

    fn state() -> State {
        State::new(&crate::config::of_line("--node-name a"), Vec::new()).unwrap()
    }

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
        let state = state();
        state.update(Event::Init);
        state.update(Event::InitApply(node("a")));
        assert!(!wakes(&state), "a list that has not ended changes nothing");
        state.update(Event::InitDone);
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

    #[tokio::test]
    async fn an_event_waits_for_a_slow_plan_and_the_runtime_does_not() {
        let state = Arc::new(state());
        let (planning, plans) = oneshot::channel();
        let (end, ended) = mpsc::channel::<()>();
        let kernel_thread = std::thread::spawn({
            let state = Arc::clone(&state);
            move || {
                let _index = state.policy();
                planning.send(()).unwrap();
                ended.recv().unwrap();
            }
        });
        plans.await.unwrap();
        let lost = Event::<NetworkPolicy>::Lost("no such file".into());
        let change = |index: &mut PolicyIndex| index.apply(&Collection::NetworkPolicies, lost);
        let mut applied = pin!(state.update_index(change));
        let passed = timeout(Duration::from_millis(10), &mut applied).await;
        assert!(passed.is_err(), "the plan is still being made");
        assert!(!wakes(&state));
        end.send(()).unwrap();
        applied.await;
        assert!(wakes(&state));
        assert!(state.policy().unwrap().any_lost());
        kernel_thread.join().unwrap();
    }

    #[test]
    fn a_source_that_cannot_be_read_has_reported() {
        let state = state();
        assert!(!state.read().nodes_reported);
        state.update(Event::Lost("no such file".into()));
        assert!(state.read().nodes_reported);
        assert!(wakes(&state));
    }
}
