//! The metrics of kube-proxy that its dashboards and alerts read, with its names, types
//! and buckets.
//!
//! One write to the kernel is about both families, so the label `ip_family`, which most of
//! kube-proxy's have, is missing: sums over it are the same.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets, linear_buckets};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use prometheus_client::registry::Registry;

/// Time in seconds since 1970, or a duration.
pub(super) type Seconds = Gauge<f64, AtomicU64>;

/// The label of a series: its name and value.
type Label<T> = [(&'static str, T); 1];

macro_rules! metrics {
    ($($name:ident: $type:ty = $new:expr, $help:literal;)+) => {
        /// The metrics under kube-proxy's names. Clones share the values.
        #[derive(Debug, Clone)]
        pub struct KubeProxyMetrics {
            $(pub(super) $name: $type,)+
        }

        impl Default for KubeProxyMetrics {
            fn default() -> Self {
                Self { $($name: $new,)+ }
            }
        }

        impl KubeProxyMetrics {
            /// A new registry with all of them.
            #[must_use]
            pub fn registry(&self) -> Registry {
                let mut registry = Registry::with_prefix("kubeproxy");
                $(registry.register(stringify!($name), $help, self.$name.clone());)+
                registry
            }
        }
    };
}

// Name after the prefix `kubeproxy_`, and before `_total` of counters; type, initial
// value, help.
metrics! {
    sync_proxy_rules_duration_seconds: Histogram = Histogram::new(sync_buckets()),
        "How long one write of Services to the kernel took, planning included";
    sync_full_proxy_rules_duration_seconds: Histogram = Histogram::new(sync_buckets()),
        "The same of those that compared or wrote everything";
    sync_partial_proxy_rules_duration_seconds: Histogram = Histogram::new(sync_buckets()),
        "The same of those that wrote a change only";
    sync_proxy_rules_last_timestamp_seconds: Seconds = Seconds::default(),
        "When the kernel last had all that was planned";
    sync_proxy_rules_last_queued_timestamp_seconds: Seconds = Seconds::default(),
        "When a change was last heard of that the kernel must get";
    network_programming_duration_seconds: Histogram = Histogram::new(programming_buckets()),
        "Time from the change of a pod or Service to the write of the endpoints that follow from it";
    sync_proxy_rules_endpoint_changes: Counter = Counter::default(),
        "Events of EndpointSlices";
    sync_proxy_rules_endpoint_changes_pending: Gauge = Gauge::default(),
        "Changes of EndpointSlices that are not planned yet";
    sync_proxy_rules_service_changes: Counter = Counter::default(),
        "Events of Services";
    sync_proxy_rules_service_changes_pending: Gauge = Gauge::default(),
        "Changes of Services that are not planned yet";
    // A gauge all the same: kube-proxy's name.
    sync_proxy_rules_no_local_endpoints_total: Family<Label<&'static str>, Gauge> = Family::default(),
        "Service ports with a Local traffic policy and endpoints on other nodes only";
    sync_proxy_rules_nftables_sync_failures: Counter = Counter::default(),
        "Writes of Services to the kernel that failed";
    conntrack_reconciler_sync_duration_seconds: Histogram = Histogram::new(sync_buckets()),
        "How long it took to look for stale flows in conntrack";
    conntrack_reconciler_deleted_entries: Counter = Counter::default(),
        "Stale flows deleted from conntrack";
    proxy_healthz: Family<Label<u16>, Counter> = Family::default(),
        "Answers of /healthz on --services-health-addr, by status";
    proxy_livez: Family<Label<u16>, Counter> = Family::default(),
        "Answers of /livez on --services-health-addr, by status";
}

/// 1 ms to 16 s.
fn sync_buckets() -> impl Iterator<Item = f64> {
    exponential_buckets(0.001, 2.0, 15)
}

/// A quarter of a second to five minutes, as the service level objective of Kubernetes on
/// network programming has them.
fn programming_buckets() -> impl Iterator<Item = f64> {
    (linear_buckets(0.25, 0.25, 2))
        .chain(linear_buckets(1.0, 1.0, 59))
        .chain(linear_buckets(60.0, 5.0, 12))
        .chain(linear_buckets(120.0, 30.0, 7))
}
