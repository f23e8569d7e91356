//! The metrics that `/metrics` shows.
//!
//! No label names a pod or a node: the number of series depends on the kinds of
//! objects and the address ranges of the node, not on the size of the cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, atomic::AtomicU64};
use std::time::{Instant, SystemTime};

use ipnetwork::IpNetwork;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info};
use prometheus_client::registry::Registry;
use tweed_component::message;
use tweed_watch::LastContact;

use super::details::Details;
use super::drops::Drops;
use super::fast_path::FastPathCounters;
use super::services::sync::ServiceSync;
use super::status::Status;
use super::watch_silence::{Listening, WatchSilence};

/// The labels of a series: the name and the value of each.
type Labels<const N: usize> = [(&'static str, String); N];
type Count = Gauge<u64, AtomicU64>;

/// How many addresses of a range are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeUse {
    /// The range's subnet.
    pub range: IpNetwork,
    /// Addresses that are allocated or reserved.
    pub used: u128,
    /// Addresses that can be allocated.
    pub free: u128,
}

macro_rules! metrics {
    ($($name:ident: $type:ty = $new:expr, $help:literal;)+) => {
        /// Every metric of the agent.
        #[derive(Debug, Clone)]
        pub struct Metrics {
            /// How far the kernel is behind what was heard of Services. It has metrics of
            /// its own, in a registry of its own.
            pub service_sync: Arc<ServiceSync>,
            /// What people are told beside metrics.
            pub details: Arc<Details>,
            /// What the programs of the fast path count.
            pub fast_path: FastPathCounters,
            $(pub(crate) $name: $type,)+
        }

        impl Metrics {
            /// A registry with every metric, and the metrics.
            #[must_use]
            pub fn register() -> (Registry, Self) {
                let metrics = Self {
                    service_sync: Arc::new(ServiceSync::new(SystemTime::now())),
                    details: Arc::default(),
                    fast_path: FastPathCounters::default(),
                    $($name: $new,)+
                };
                let mut registry = Registry::with_prefix("tweed");
                let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("TWEED_COMMIT"));
                let build = Info::new(vec![("version", version), ("commit", commit)]);
                registry.register("build", "The running version, and its commit", build);
                $(registry.register(stringify!($name), $help, metrics.$name.clone());)+
                registry.register_collector(Box::new(Drops));
                registry.register_collector(Box::new(metrics.fast_path.clone()));
                (registry, metrics)
            }
        }
    };
}

// Name after the prefix `tweed_`, type, initial value, help.
metrics! {
    ready: Gauge = Gauge::default(), "1 when /readyz says ready, else 0";
    nodes: Count = Count::default(), "Nodes known";
    objects: Family<Labels<1>, Count> = Family::default(),
        "Kernel objects in their desired state, by kind";
    drift_repaired: Family<Labels<1>, Counter> = Family::default(),
        "Kernel objects restored after something else changed them, by kind";
    // 100 µs to 6.5 s: from a run without work to a first one with 5,000 nodes.
    reconcile_duration_seconds: Histogram = Histogram::new(exponential_buckets(0.0001, 2.0, 17)),
        "How long the loop took to reconcile once";
    reconcile_errors: Counter = Counter::default(),
        "Runs of the reconciler in which something failed";
    kernel_changes: Counter = Counter::default(),
        "rtnetlink messages sent to change something";
    watch_restarts: Counter = Counter::default(),
        "Number of times that a source of objects could not be read and started again";
    relists: Family<Labels<1>, Counter> = Family::default(),
        "Complete lists of a kind of objects after the first, by kind";
    watch_silence_seconds: WatchSilence = WatchSilence::default(),
        "Time since the source of a kind of objects was last heard of, bookmarks included";
    addresses: Family<Labels<3>, Gauge<f64, AtomicU64>> = Family::default(),
        "Pod addresses of this node, by range and by state: used or free";
    policies: Family<Labels<1>, Count> = Family::default(), "Policies known, by kind";
    policies_queued: Count = Count::default(), "Policies that wait for their turn";
    policed_pods: Family<Labels<1>, Count> = Family::default(),
        "Addresses of local pods that are subject to a policy, by direction";
    policy_elements: Count = Count::default(),
        "Elements of the sets and maps of policy in the kernel";
    policy_drops_logged: Family<Labels<2>, Counter> = Family::default(),
        "Dropped packets that were logged with --policy-log on, by the policy that decided";
    services: Count = Count::default(), "Services that are served, with --services on";
    services_queued: Count = Count::default(), "Services that have changed and wait for their turn";
    peers: Family<Labels<1>, Count> = Family::default(),
        "Other nodes, by what their answers to probes say";
    // 50 µs to 0.8 s: from the same rack to what counts as lost.
    peer_round_trip_seconds: Histogram = Histogram::new(exponential_buckets(0.00005, 2.0, 15)),
        "How long answers of other nodes to small probes took, over the way of pods' packets";
    fast_path_active: Family<Labels<1>, Gauge> = Family::default(),
        "1 while established flows between pods skip the host's stack; else 0, by reason";
    fast_path_hooks: Count = Count::default(),
        "Number of places at which a program of the fast path is attached";
    fast_path_invalidations: Family<Labels<1>, Counter> = Family::default(),
        "How often all flows had to pass the kernel's path again, by cause";
    problems: Family<Labels<1>, Gauge> = Family::default(), "What /readyz lists, by kind";
    conflist_writes: Counter = Counter::default(),
        "Number of times that the CNI config was written";
    stale_flows_deleted: Counter = Counter::default(),
        "Flows deleted from conntrack because they led to no serving endpoint of their Service";
    swept: Counter = Counter::default(),
        "Pod addresses freed because nobody owned them any more";
}

impl Metrics {
    /// The number of objects of `kind` in their desired state.
    pub fn set_objects(&self, kind: &str, count: usize) {
        self.objects
            .get_or_create(&label("kind", kind))
            .set(count as u64);
    }

    /// Counts `count` restored objects of `kind`, of which these names are known.
    pub fn drift_repaired(&self, kind: &'static str, names: &BTreeMap<String, u64>, count: u64) {
        let repaired = self.drift_repaired.get_or_create(&label("kind", kind));
        repaired.inc_by(count);
        self.details.put_back(kind, names, count);
    }

    /// Measures a run of the reconciler: from now until the timer is dropped.
    #[must_use]
    pub fn time_reconcile(&self) -> ReconcileTimer {
        ReconcileTimer {
            started: Instant::now(),
            seconds: self.reconcile_duration_seconds.clone(),
        }
    }

    /// Counts a complete list of `kind` that is not the first.
    pub fn listed_again(&self, kind: &str) {
        self.relists.get_or_create(&label("kind", kind)).inc();
    }

    /// Shows for how long a source of objects of `kind` has said nothing,
    /// until what it gives is dropped.
    pub fn listen_to(&self, kind: &'static str, last_contact: LastContact) -> Listening {
        self.watch_silence_seconds.add(kind, last_contact)
    }

    /// The number of policies of `kind` known.
    pub fn set_policies(&self, kind: &str, count: usize) {
        self.policies
            .get_or_create(&label("kind", kind))
            .set(count as u64);
    }

    /// The number of local addresses that are policed in this direction.
    pub fn set_policed(&self, direction: &'static str, count: usize) {
        let direction = label("direction", direction);
        self.policed_pods
            .get_or_create(&direction)
            .set(count as u64);
    }

    /// Counts a dropped packet that was logged. The caller bounds the number of policies.
    pub fn policy_drop_logged(&self, policy: &str, reason: &'static str) {
        let labels = [("policy", policy.to_owned()), ("reason", reason.to_owned())];
        self.policy_drops_logged.get_or_create(&labels).inc();
    }

    /// The number of other nodes in each state.
    pub fn set_peers(&self, counts: impl IntoIterator<Item = (&'static str, usize)>) {
        for (state, count) in counts {
            let state = label("state", state);
            self.peers.get_or_create(&state).set(count as u64);
        }
    }

    /// Why the fast path is off, in a word, or none if it is on; with how many programs.
    pub fn set_fast_path(&self, why: &'static str, hooks: usize) {
        self.fast_path_active.clear();
        let active = self.fast_path_active.get_or_create(&label("why", why));
        active.set(i64::from(why.is_empty()));
        self.fast_path_hooks.set(hooks as u64);
    }

    /// Counts that all flows have to pass the kernel's path again.
    pub fn flows_invalidated(&self, cause: &'static str) {
        let cause = label("cause", cause);
        self.fast_path_invalidations.get_or_create(&cause).inc();
    }

    /// Replaces the use of all ranges; ranges not given are no longer shown.
    pub fn set_addresses(&self, ranges: &[RangeUse]) {
        self.addresses.clear();
        // An IPv6 range has more addresses than that, and no node has more pods.
        let bounded = |count: u128| u64::try_from(count).unwrap_or(u64::MAX);
        let ranges_in_use = ranges.iter().map(|one| message::RangeUse {
            range: one.range.to_string(),
            used: bounded(one.used),
            free: bounded(one.free),
        });
        self.details.set_ranges(ranges_in_use.collect());
        for RangeUse { range, used, free } in ranges {
            let family = if range.is_ipv4() { "ipv4" } else { "ipv6" };
            for (state, count) in [("used", used), ("free", free)] {
                let labels = [
                    ("family", family.to_owned()),
                    ("range", range.to_string()),
                    ("state", state.to_owned()),
                ];
                // Exact up to 2^53: no node has more pods.
                #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
                self.addresses.get_or_create(&labels).set(*count as f64);
            }
        }
    }

    /// Updates the metrics that come from the board; called for each request.
    pub fn set_status(&self, status: &Status) {
        self.ready.set(i64::from(status.ready()));
        self.problems.clear();
        for problem in &status.problems {
            let kind = label("kind", problem.kind.word());
            self.problems.get_or_create(&kind).inc();
        }
    }
}

/// Records how long a run of the reconciler took when it is dropped, however
/// the run ended.
#[derive(Debug)]
pub struct ReconcileTimer {
    started: Instant,
    seconds: Histogram,
}

impl Drop for ReconcileTimer {
    fn drop(&mut self) {
        self.seconds.observe(self.started.elapsed().as_secs_f64());
    }
}

fn label(name: &'static str, value: &str) -> Labels<1> {
    [(name, value.to_owned())]
}
