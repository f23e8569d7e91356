//! The numbers that `/metrics` shows, in the OpenMetrics text format.
//!
//! No label names a pod or a node: the count of series is that of kinds of
//! objects and of address ranges, whatever the size of the cluster.

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use ipnetwork::IpNetwork;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::status::Status;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Range {
    family: &'static str,
    range: String,
    state: &'static str,
}

/// How full a range of addresses is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeUse {
    /// The range's subnet.
    pub range: IpNetwork,
    /// Addresses that are given or otherwise taken.
    pub used: u128,
    /// Addresses that can still be given.
    pub free: u128,
}

/// Every metric of the agent.
#[derive(Debug, Clone)]
pub struct Metrics {
    ready: Gauge,
    nodes: Gauge,
    objects: Family<Kind, Gauge>,
    drift_repaired: Family<Kind, Counter>,
    reconcile_seconds: Histogram,
    reconcile_errors: Counter,
    kernel_changes: Counter,
    watch_restarts: Counter,
    addresses: Family<Range, Gauge<f64, AtomicU64>>,
    problems: Family<Kind, Gauge>,
    conflist_writes: Counter,
    swept: Counter,
}

impl Metrics {
    /// A registry in which every metric stands, and the metrics.
    #[must_use]
    pub fn register() -> (Registry, Self) {
        let metrics = Self {
            ready: Gauge::default(),
            nodes: Gauge::default(),
            objects: Family::default(),
            drift_repaired: Family::default(),
            // 100 µs to 6.5 s: a pass without work to one that meets 5,000 nodes.
            reconcile_seconds: Histogram::new(exponential_buckets(0.0001, 2.0, 17)),
            reconcile_errors: Counter::default(),
            kernel_changes: Counter::default(),
            watch_restarts: Counter::default(),
            addresses: Family::default(),
            problems: Family::default(),
            conflist_writes: Counter::default(),
            swept: Counter::default(),
        };
        let mut registry = Registry::with_prefix("tweed");
        registry.register(
            "build",
            "The version that runs",
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register(
            "ready",
            "1 when /readyz says ready, else 0",
            metrics.ready.clone(),
        );
        registry.register("nodes", "Nodes known", metrics.nodes.clone());
        registry.register(
            "objects",
            "Kernel objects that are as they should be, by kind",
            metrics.objects.clone(),
        );
        registry.register(
            "drift_repaired",
            "Kernel objects put back after something else changed them, by kind",
            metrics.drift_repaired.clone(),
        );
        registry.register(
            "reconcile_seconds",
            "How long a pass of the loop took",
            metrics.reconcile_seconds.clone(),
        );
        registry.register(
            "reconcile_errors",
            "Passes in which something failed",
            metrics.reconcile_errors.clone(),
        );
        registry.register(
            "kernel_changes",
            "rtnetlink messages sent that change something",
            metrics.kernel_changes.clone(),
        );
        registry.register(
            "watch_restarts",
            "Times that the Node source had to begin again",
            metrics.watch_restarts.clone(),
        );
        registry.register(
            "addresses",
            "Pod addresses of this node, by range and by whether they are used or free",
            metrics.addresses.clone(),
        );
        registry.register(
            "problems",
            "What /readyz lists, by kind",
            metrics.problems.clone(),
        );
        registry.register(
            "conflist_writes",
            "Times that the CNI config was written",
            metrics.conflist_writes.clone(),
        );
        registry.register(
            "swept",
            "Pod addresses taken back because nobody owned them any more",
            metrics.swept.clone(),
        );
        (registry, metrics)
    }

    /// How many Nodes are known.
    pub fn set_nodes(&self, count: usize) {
        self.nodes.set(gauge(count));
    }

    /// How many objects of `kind` are as they should be.
    pub fn set_objects(&self, kind: &str, count: usize) {
        self.objects.get_or_create(&label(kind)).set(gauge(count));
    }

    /// That `count` objects of `kind` were put back.
    pub fn drift_repaired(&self, kind: &str, count: u64) {
        self.drift_repaired
            .get_or_create(&label(kind))
            .inc_by(count);
    }

    /// Times a pass: from now until the timer is dropped.
    #[must_use]
    pub fn time_pass(&self) -> PassTimer {
        PassTimer {
            started: Instant::now(),
            seconds: self.reconcile_seconds.clone(),
        }
    }

    /// That something failed in a pass.
    pub fn pass_failed(&self) {
        self.reconcile_errors.inc();
    }

    /// That `count` messages were sent to rtnetlink that change something.
    pub fn kernel_changes(&self, count: u64) {
        self.kernel_changes.inc_by(count);
    }

    /// That the Node source had to begin again.
    pub fn watch_restarted(&self) {
        self.watch_restarts.inc();
    }

    /// That the CNI config was written.
    pub fn conflist_written(&self) {
        self.conflist_writes.inc();
    }

    /// That `count` addresses were taken back.
    pub fn swept(&self, count: u64) {
        self.swept.inc_by(count);
    }

    /// How full the ranges are; ranges not named are no longer shown.
    pub fn set_addresses(&self, ranges: &[RangeUse]) {
        self.addresses.clear();
        for RangeUse { range, used, free } in ranges {
            for (state, count) in [("used", used), ("free", free)] {
                let labels = Range {
                    family: if range.is_ipv4() { "ipv4" } else { "ipv6" },
                    range: range.to_string(),
                    state,
                };
                // Exact up to 2^53, which no node's pods reach.
                #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
                self.addresses.get_or_create(&labels).set(*count as f64);
            }
        }
    }

    /// What the board says. Called when the metrics are asked for.
    pub fn set_status(&self, status: &Status) {
        self.ready.set(i64::from(status.ready()));
        self.problems.clear();
        for problem in &status.problems {
            self.problems
                .get_or_create(&label(problem.kind.word()))
                .inc();
        }
    }
}

/// Records how long a pass took when it is dropped, however the pass ended.
#[derive(Debug)]
pub struct PassTimer {
    started: Instant,
    seconds: Histogram,
}

impl Drop for PassTimer {
    fn drop(&mut self) {
        self.seconds.observe(self.started.elapsed().as_secs_f64());
    }
}

fn label(kind: &str) -> Kind {
    Kind {
        kind: kind.to_owned(),
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
