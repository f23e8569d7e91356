//! Runs a source for each collection that the planner of policies needs.
//!
//! A source that is no longer needed runs on for [`LINGER`]: a policy that is
//! replaced, or a pod that is moved, does not have everything listed twice. A source
//! that ends without being stopped ends this task, and with it the agent
//! ([`crate::tasks`]).
//!
//! One policy can have every node list the pods of others, so the nodes spread these
//! lists over a time ([`list_delay`]). Whatever isolates the node's own pods is listed
//! at once.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::{namespace::Namespace, network_policy::NetworkPolicy, pod::Pod};
use tweed_planner::policy::{PodScope, Wants};
use tweed_watch::{Kind, Scope};

use super::{Sources, follow::follow};
use crate::index::{Input, PolicyIndex, policy::Collection};
use crate::serve::metrics::Metrics;
use crate::{spread, state::State};

/// Time for which a source runs on that is no longer needed.
const LINGER: Duration = Duration::from_secs(60);

/// Time for each Node of the cluster over which the nodes spread their lists of all pods,
/// which take that much work, and of the pods of one namespace.
const SPREAD_OF_ALL: Duration = Duration::from_millis(10);
const SPREAD_OF_NAMESPACE: Duration = Duration::from_millis(1);
/// Maximum time over which they are spread: a policy waits for what it lists.
const MAX_SPREAD: Duration = Duration::from_secs(20);

/// The sources that run, and what they need.
pub struct PolicyWatches<S> {
    sources: S,
    node_name: String,
    state: Arc<State>,
    metrics: Metrics,
    running: BTreeMap<Collection, Running>,
    tasks: JoinSet<()>,
    linger: Duration,
}

struct Running {
    task: AbortHandle,
    /// Cancelled when it is stopped: no event is applied after that.
    stop: CancellationToken,
    /// When it is stopped; none while it is needed.
    stop_at: Option<Instant>,
}

impl<S: Sources> PolicyWatches<S> {
    /// Runs nothing yet.
    pub fn new(sources: S, node_name: &str, state: Arc<State>, metrics: Metrics) -> Self {
        Self {
            sources,
            node_name: node_name.to_owned(),
            state,
            metrics,
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            linger: LINGER,
        }
    }

    /// Runs what `wants` says.
    pub async fn run(mut self, mut wants: watch::Receiver<Wants>) {
        loop {
            let wanted = wants.borrow_and_update().clone();
            self.adjust(&wanted, Instant::now()).await;
            let stops = self.running.values().filter_map(|one| one.stop_at);
            // The time of a sleep that is not waited for does not matter.
            let next = stops.min();
            let sleep = sleep_until(next.unwrap_or_else(Instant::now));
            tokio::select! {
                biased;
                changed = wants.changed() => if changed.is_err() {
                    return;
                },
                Some(ended) = self.tasks.join_next() => match ended {
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => resume_unwind(error.into_panic()),
                    Ok(()) => return,
                },
                () = sleep, if next.is_some() => {}
            }
        }
    }

    /// Starts what is wanted and does not run; stops what has not been wanted for long
    /// enough.
    async fn adjust(&mut self, wants: &Wants, now: Instant) {
        for running in self.running.values_mut() {
            running.stop_at.get_or_insert(now + self.linger);
        }
        for collection in Collection::wanted(wants) {
            match self.running.get_mut(&collection) {
                Some(running) => running.stop_at = None,
                None => {
                    let running = self.start(&collection);
                    self.running.insert(collection, running);
                }
            }
        }
        let is_over = |_: &Collection, one: &mut Running| one.stop_at.is_some_and(|at| at <= now);
        let over: Vec<_> = self.running.extract_if(.., is_over).collect();
        for (collection, mut running) in over {
            let (of, stop) = (collection.clone(), running.stop.clone());
            let forget = move |index: &mut PolicyIndex| {
                // What it lists may have come into use since `wants` was read.
                if Collection::wanted(&index.planner.wants()).any(|one| one == of) {
                    return false;
                }
                // Its last events may be waiting for the index, in a thread of their own.
                stop.cancel();
                index.forget(&of)
            };
            self.state.update_index(forget).await;
            if running.stop.is_cancelled() {
                running.task.abort();
                tracing::debug!(%collection, "no longer watched");
            } else {
                running.stop_at = Some(now + self.linger);
                self.running.insert(collection, running);
            }
        }
    }

    fn start(&mut self, collection: &Collection) -> Running {
        tracing::debug!(%collection, "watched from now on");
        let everything = Scope::All;
        match collection {
            Collection::NetworkPolicies => self.spawn::<NetworkPolicy>(collection, everything),
            Collection::ClusterNetworkPolicies => {
                self.spawn::<ClusterNetworkPolicy>(collection, everything)
            }
            Collection::Namespaces => self.spawn::<Namespace>(collection, everything),
            Collection::Pods(scope) => {
                let scope = match scope {
                    PodScope::Own => Scope::Node(self.node_name.clone()),
                    PodScope::Namespace(name) => Scope::Namespace(name.clone()),
                    PodScope::All => everything,
                };
                self.spawn::<Pod>(collection, scope)
            }
        }
    }

    fn spawn<T: Kind + Input<Collection>>(
        &mut self,
        collection: &Collection,
        scope: Scope,
    ) -> Running {
        let source = self.sources.source::<T>(scope);
        let (state, metrics) = (Arc::clone(&self.state), self.metrics.clone());
        let stop = CancellationToken::new();
        let nodes = self.state.read().nodes.size();
        let delay = list_delay(collection, nodes, &self.node_name);
        let collection = collection.clone();
        let stopped = stop.clone();
        let apply = move |index: &mut PolicyIndex, event| {
            // What was stopped has been forgotten, or is about to be.
            !stopped.is_cancelled() && index.apply(&collection, event)
        };
        let follow = follow(source, state, metrics, apply);
        let task = async move {
            sleep(delay).await;
            follow.await;
        };
        Running {
            task: self.tasks.spawn(task),
            stop,
            stop_at: None,
        }
    }
}

/// How long the node of this name waits before it lists a collection, in a cluster of so
/// many Nodes.
fn list_delay(collection: &Collection, nodes: usize, node_name: &str) -> Duration {
    let spread = match collection {
        Collection::Pods(PodScope::All) => SPREAD_OF_ALL,
        Collection::Pods(PodScope::Namespace(_)) => SPREAD_OF_NAMESPACE,
        Collection::Pods(PodScope::Own)
        | Collection::Namespaces
        | Collection::NetworkPolicies
        | Collection::ClusterNetworkPolicies => return Duration::ZERO,
    };
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    let over = spread.saturating_mul(nodes).min(MAX_SPREAD);
    spread::delay(node_name, &collection.to_string(), over)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::{sync::mpsc, time::timeout};
    use tweed_core::object::{Event, Loss, Object as _};
    use tweed_watch::{LastContact, Source};

    use super::*;

    /// Longer than any step takes.
    const STUCK: Duration = Duration::from_secs(60);

    /// The kinds of the sources that run. They say nothing.
    #[derive(Clone)]
    struct Quiet(watch::Sender<BTreeSet<&'static str>>);

    /// That a source of this kind runs.
    struct Runs {
        kinds: watch::Sender<BTreeSet<&'static str>>,
        kind: &'static str,
    }

    impl Runs {
        fn new(kinds: watch::Sender<BTreeSet<&'static str>>, kind: &'static str) -> Self {
            kinds.send_modify(|kinds| {
                kinds.insert(kind);
            });
            Self { kinds, kind }
        }
    }

    impl Drop for Runs {
        fn drop(&mut self) {
            self.kinds.send_modify(|kinds| {
                kinds.remove(self.kind);
            });
        }
    }

    impl Sources for Quiet {
        fn source<K: Kind>(&self, _scope: Scope) -> impl Source<K> {
            self.clone()
        }
    }

    impl<K: Kind> Source<K> for Quiet {
        fn last_contact(&self) -> LastContact {
            LastContact::default()
        }

        async fn run(self, _events: mpsc::Sender<Event<K>>) {
            let _runs = Runs::new(self.0, K::KINDS);
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn a_source_that_is_no_longer_needed_ends_and_nothing_else_does() {
        let config = crate::config::of_line("--node-name a");
        let state = Arc::new(State::new(&config, Vec::new()).unwrap());
        let (running, mut kinds) = watch::channel(BTreeSet::new());
        let metrics = Metrics::register().1;
        let mut watches = PolicyWatches::new(Quiet(running), "a", state, metrics);
        watches.linger = Duration::from_millis(1);
        let (wants, wanted) = watch::channel(Wants::default());
        let task = tokio::spawn(watches.run(wanted));
        for own_pods in [true, false, true] {
            wants.send_modify(|wants| {
                wants.pods = own_pods.then_some(PodScope::Own).into_iter().collect()
            });
            let follows = kinds.wait_for(|kinds| {
                kinds.contains(Pod::KINDS) == own_pods && kinds.contains(NetworkPolicy::KINDS)
            });
            let follows = timeout(STUCK, follows).await.unwrap();
            assert!(follows.is_ok(), "the task has ended");
        }
        assert!(!task.is_finished());
        task.abort();
    }

    /// The planner may want a source again before the task has been told so: what that has
    /// listed is in use, and would not be listed once more.
    #[tokio::test]
    async fn a_source_that_the_planner_wants_again_runs_on() {
        let config = crate::config::of_line("--node-name a");
        let state = Arc::new(State::new(&config, Vec::new()).unwrap());
        let (running, _kinds) = watch::channel(BTreeSet::new());
        let metrics = Metrics::register().1;
        let mut watches = PolicyWatches::new(Quiet(running), "a", Arc::clone(&state), metrics);
        let own = Collection::Pods(PodScope::Own);
        let wanted = Wants {
            pods: [PodScope::Own].into(),
            ..Wants::default()
        };
        let start = Instant::now();
        watches.adjust(&wanted, start).await;
        watches.adjust(&Wants::default(), start).await;
        let policy = NetworkPolicy::default();
        let key = policy.key();
        let apply = |event| {
            let state = Arc::clone(&state);
            async move {
                let of = Collection::NetworkPolicies;
                let apply = move |index: &mut PolicyIndex| index.apply(&of, event);
                state.update_index(apply).await;
            }
        };
        for event in [Event::Init, Event::InitApply(policy), Event::InitDone] {
            apply(event).await;
        }
        watches.adjust(&Wants::default(), start + LINGER).await;
        assert!(!watches.running[&own].stop.is_cancelled());
        apply(Event::Delete(key)).await;
        let loss = Loss {
            reason: "the server is away".to_owned(),
            forbidden: false,
        };
        let (of, lost) = (own.clone(), Event::<Pod>::Lost(loss));
        let lose = move |index: &mut PolicyIndex| index.apply(&of, lost);
        state.update_index(lose).await;
        watches.adjust(&Wants::default(), start + 2 * LINGER).await;
        assert!(!watches.running.contains_key(&own));
        let is_lost = state.policy().unwrap().any_lost();
        assert!(!is_lost, "nobody reads it any more");
    }

    /// The longest that any of these nodes waits.
    fn longest(collection: &Collection, nodes: usize) -> Duration {
        let names = (0..nodes).map(|n| format!("n{n}"));
        let delays = names.map(|name| list_delay(collection, nodes, &name));
        delays.max().unwrap()
    }

    #[test]
    fn the_nodes_spread_their_lists_of_others_pods_in_proportion() {
        let all = Collection::Pods(PodScope::All);
        let seconds = |collection, nodes| longest(collection, nodes).as_secs_f64();
        assert!((0.8..1.0).contains(&seconds(&all, 100)));
        assert!((8.0..10.0).contains(&seconds(&all, 1000)));
        assert!((19.0..20.0).contains(&seconds(&all, 5000)));
        let namespace = Collection::Pods(PodScope::Namespace("shop".to_owned()));
        assert!((0.8..1.0).contains(&seconds(&namespace, 1000)));
    }

    #[test]
    fn what_isolates_the_own_pods_is_listed_at_once() {
        for collection in [
            Collection::NetworkPolicies,
            Collection::ClusterNetworkPolicies,
            Collection::Namespaces,
            Collection::Pods(PodScope::Own),
        ] {
            assert_eq!(longest(&collection, 100), Duration::ZERO);
        }
    }
}
