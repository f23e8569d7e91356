//! What monitoring expects of every process, under the name that client libraries of
//! Prometheus give it.

use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A registry with the metrics of a process that was started then.
#[must_use]
pub fn registry(started: SystemTime) -> Registry {
    let mut registry = Registry::with_prefix("process");
    let start_time: Gauge<f64, AtomicU64> = Gauge::default();
    let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    start_time.set(since.as_secs_f64());
    registry.register(
        "start_time_seconds",
        "When the process was started, in seconds since 1970",
        start_time,
    );
    registry
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::serve::exposition::Format;

    #[test]
    fn a_restart_is_another_time_under_the_usual_name() {
        let started = UNIX_EPOCH + Duration::from_millis(1_790_000_000_500);
        let text = Format::Prometheus.text(&[registry(started)]).unwrap();
        let series = "process_start_time_seconds 1790000000.5";
        assert!(text.lines().any(|line| line == series), "{text}");
    }
}
