//! How far the kernel is behind what was heard of Services: health checks and kube-proxy's
//! metrics are made from it.
//!
//! A change is *pending* from its event until it is planned, and *unwritten* until the
//! kernel has it. Events are told by who applies them, and plans and writes by the
//! reconciler, both while they have the index of Services, so that none overtakes another.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use prometheus_client::registry::Registry;
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Object, ObjectKey};
use tweed_planner::services::WithoutLocal;

use super::metrics::KubeProxyMetrics;

/// Time for which a change may be unwritten until the node counts as unhealthy:
/// kube-proxy's, twice its interval between two full runs.
const LATE_AFTER: Duration = Duration::from_secs(60);
/// Maximum number of changes whose latency is measured with one write. What is more is
/// not measured: a write that fails for hours must not fill the memory.
const MAX_TRIGGERS: usize = 4096;

/// What was heard of Services, planned and written.
#[derive(Debug)]
pub struct ServiceSync {
    metrics: KubeProxyMetrics,
    started: SystemTime,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The changes that are not planned.
    pending: Changes,
    /// Those that are planned and not written.
    planned: Changes,
    /// When the changes took place that the list of slices under way brings, as far as
    /// they are later than `newest`: others were measured when they were heard of.
    listed: Vec<Trigger>,
    /// When the last change took place that was heard of.
    newest: Option<SystemTime>,
    /// When the kernel last had all that was planned.
    written: Option<SystemTime>,
    /// Whether the kernel has Services, those of an earlier run among them.
    served: bool,
    /// Whether the node has no network of pods: it then reaches none of other nodes.
    isolated: bool,
}

#[derive(Debug, Default)]
struct Changes {
    /// When the first of them was heard of.
    since: Option<Instant>,
    /// When they took place, as far as it is known.
    triggered: Vec<Trigger>,
}

/// When a change of the endpoints of a Service took place.
pub type Trigger = (SystemTime, ObjectKey);

/// Which of kube-proxy's counters an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Those of Services.
    Service,
    /// Those of endpoints.
    Endpoints,
    /// None.
    Neither,
}

/// A kind of objects that Services are made of.
pub trait CountedObject: Object {
    /// The counters of its events.
    const COUNTED: Counted = Counted::Neither;

    /// When the change took place that the object was last changed for, and of which Service.
    fn triggered(&self) -> Option<Trigger> {
        None
    }
}

impl CountedObject for Service {
    const COUNTED: Counted = Counted::Service;
}

impl CountedObject for ServiceCidr {}

impl CountedObject for EndpointSlice {
    const COUNTED: Counted = Counted::Endpoints;

    fn triggered(&self) -> Option<Trigger> {
        let (namespace, name) = (self.namespace.clone(), self.service.clone());
        Some((self.triggered?, ObjectKey { namespace, name }))
    }
}

/// How it is about the writing of Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Whether no change is unwritten for too long.
    pub in_time: bool,
    /// When the kernel last had all that was planned; `None` if it never had in this run.
    pub written: Option<SystemTime>,
    /// Whether the kernel has Services, those of an earlier run among them, and the node
    /// leads to the pods behind them.
    pub served: bool,
}

impl ServiceSync {
    /// Before any event.
    #[must_use]
    pub fn new(now: SystemTime) -> Self {
        let metrics = KubeProxyMetrics::default();
        let queued = &metrics.sync_proxy_rules_last_queued_timestamp_seconds;
        queued.set(seconds(now));
        Self {
            metrics,
            started: now,
            inner: Mutex::default(),
        }
    }

    /// A registry with the metrics.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.metrics.registry()
    }

    /// When this was made: with the agent's start.
    #[must_use]
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Counts an event before it is applied. Returns the changes that it tells of, unless it
    /// says nothing for the kernel yet: the objects of a list count with its end.
    pub fn hear<T: CountedObject>(&self, event: &Event<T>) -> Option<Vec<Trigger>> {
        if let Some((total, _)) = self.counters(T::COUNTED)
            && matches!(
                event,
                Event::InitApply(_) | Event::Apply(_) | Event::Delete(_)
            )
        {
            total.inc();
        }
        let mut inner = self.inner();
        let of_endpoints = T::COUNTED == Counted::Endpoints;
        // What took place before the agent's start is no measure of the agent.
        let is_measured = |(at, _): &Trigger| *at > self.started;
        let triggered: Vec<Trigger> = match event {
            Event::Apply(object) => object.triggered().into_iter().filter(is_measured).collect(),
            Event::Delete(_) => Vec::new(),
            Event::Init if of_endpoints => {
                inner.listed.clear();
                return None;
            }
            Event::InitApply(object) => {
                let newest = inner.newest;
                let is_new = |trigger: &Trigger| is_measured(trigger) && Some(trigger.0) > newest;
                inner.listed.extend(object.triggered().filter(is_new));
                inner.listed.truncate(MAX_TRIGGERS);
                return None;
            }
            Event::InitDone if of_endpoints => mem::take(&mut inner.listed),
            Event::InitDone => Vec::new(),
            Event::Init | Event::Absent(_) | Event::Lost(_) | Event::Restored => return None,
        };
        let newest = triggered.iter().map(|(at, _)| *at).max();
        inner.newest = inner.newest.max(newest);
        Some(triggered)
    }

    /// What an event of objects of the kind `T` tells of was applied, and has changed
    /// something.
    pub fn changed<T: CountedObject>(&self, triggered: Vec<Trigger>, now: Instant) {
        let mut inner = self.inner();
        let known = inner.pending.triggered.len() + inner.planned.triggered.len();
        let room = MAX_TRIGGERS.saturating_sub(known);
        let pending = &mut inner.pending;
        pending.triggered.extend(triggered.into_iter().take(room));
        pending.since.get_or_insert(now);
        if let Some((_, pending)) = self.counters(T::COUNTED) {
            pending.inc();
        }
        let queued = &self.metrics.sync_proxy_rules_last_queued_timestamp_seconds;
        queued.set(seconds(SystemTime::now()));
    }

    /// The number of events, and of those that are not planned.
    fn counters(&self, counted: Counted) -> Option<(&Counter, &Gauge)> {
        let metrics = &self.metrics;
        match counted {
            Counted::Service => Some((
                &metrics.sync_proxy_rules_service_changes,
                &metrics.sync_proxy_rules_service_changes_pending,
            )),
            Counted::Endpoints => Some((
                &metrics.sync_proxy_rules_endpoint_changes,
                &metrics.sync_proxy_rules_endpoint_changes_pending,
            )),
            Counted::Neither => None,
        }
    }

    /// The kernel has Services, those of an earlier run among them, or none.
    pub fn set_served(&self, served: bool) {
        self.inner().served = served;
    }

    /// Whether the node has a network of pods, that of an earlier run too. Without one it
    /// serves what is on the hosts' network, and is nothing for load balancers.
    pub fn set_network(&self, has_one: bool) {
        self.inner().isolated = !has_one;
    }

    /// What was heard cannot be planned before the API server has listed the rest. That is
    /// not the kernel being late.
    pub fn held(&self) {
        self.inner().pending.since = None;
    }

    /// What is planned is not to be written yet, as the table that an earlier run has left
    /// stays until the node has a network.
    /// That is not the kernel being late: the time begins anew.
    pub fn waits(&self, now: Instant) {
        let mut inner = self.inner();
        inner.pending.since = inner.pending.since.map(|_| now);
        inner.planned.since = inner.planned.since.map(|_| now);
    }

    /// All that was heard is in the plan.
    pub fn planned(&self) {
        self.metrics.sync_proxy_rules_service_changes_pending.set(0);
        let pending = &self.metrics.sync_proxy_rules_endpoint_changes_pending;
        pending.set(0);
        self.planned_but(|_| false);
    }

    /// What was heard is in the plan, but for the Services that wait for their turn. That is
    /// not the kernel being late.
    pub fn planned_but(&self, waits: impl Fn(&ObjectKey) -> bool) {
        let mut inner = self.inner();
        let Changes { since, triggered } = mem::take(&mut inner.pending);
        let waits = |(_, service): &Trigger| waits(service);
        let (waiting, planned): (Vec<_>, Vec<_>) = triggered.into_iter().partition(waits);
        inner.pending.triggered = waiting;
        inner.planned.since = inner.planned.since.or(since);
        inner.planned.triggered.extend(planned);
    }

    /// The kernel has all that is planned already.
    pub fn unchanged(&self) {
        let mut inner = self.inner();
        inner.planned = Changes::default();
        self.has_all(&mut inner);
    }

    /// The kernel has all that is planned at this moment, which is returned.
    fn has_all(&self, inner: &mut Inner) -> SystemTime {
        let now = SystemTime::now();
        let last = &self.metrics.sync_proxy_rules_last_timestamp_seconds;
        last.set(seconds(now));
        inner.written = Some(now);
        now
    }

    /// The kernel has all that is planned. It took that long; `full`: everything was
    /// written or compared, and not a change alone.
    pub fn written(&self, took: Duration, full: bool, without_local: WithoutLocal) {
        let metrics = &self.metrics;
        let seconds = took.as_secs_f64();
        metrics.sync_proxy_rules_duration_seconds.observe(seconds);
        let of_kind = if full {
            &metrics.sync_full_proxy_rules_duration_seconds
        } else {
            &metrics.sync_partial_proxy_rules_duration_seconds
        };
        of_kind.observe(seconds);
        for (traffic_policy, count) in [
            ("internal", without_local.internal),
            ("external", without_local.external),
        ] {
            let gauges = &metrics.sync_proxy_rules_no_local_endpoints_total;
            let gauge = gauges.get_or_create(&[("traffic_policy", traffic_policy)]);
            gauge.set(i64::from(count));
        }
        let mut inner = self.inner();
        let now = self.has_all(&mut inner);
        inner.served = true;
        for (triggered, _) in mem::take(&mut inner.planned).triggered {
            // Clocks of two machines may differ.
            let latency = now.duration_since(triggered).unwrap_or_default();
            let latencies = &metrics.network_programming_duration_seconds;
            latencies.observe(latency.as_secs_f64());
        }
    }

    /// The kernel does not have all that is planned.
    pub fn failed(&self, now: Instant) {
        self.metrics.sync_proxy_rules_nftables_sync_failures.inc();
        let mut inner = self.inner();
        inner.planned.since.get_or_insert(now);
    }

    /// How it is about the writing.
    #[must_use]
    pub fn health(&self, now: Instant) -> Health {
        let inner = self.inner();
        let late = |changes: &Changes| {
            let since = changes
                .since
                .map(|since| now.saturating_duration_since(since));
            since >= Some(LATE_AFTER)
        };
        Health {
            in_time: !late(&inner.pending) && !late(&inner.planned),
            written: inner.written,
            served: inner.served && !inner.isolated,
        }
    }

    /// Stale flows were looked for, and that many deleted.
    pub fn conntrack_reconciled(&self, took: Duration, deleted: u64) {
        let durations = &self.metrics.conntrack_reconciler_sync_duration_seconds;
        durations.observe(took.as_secs_f64());
        let entries = &self.metrics.conntrack_reconciler_deleted_entries;
        entries.inc_by(deleted);
    }

    pub(super) fn healthz_answered(&self, code: u16) {
        let answers = &self.metrics.proxy_healthz;
        answers.get_or_create(&[("code", code)]).inc();
    }

    pub(super) fn livez_answered(&self, code: u16) {
        let answers = &self.metrics.proxy_livez;
        answers.get_or_create(&[("code", code)]).inc();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing can panic between two changes that belong together.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64()
}

#[cfg(test)]
mod tests;
