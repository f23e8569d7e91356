//! The text format of `/metrics`: that of Prometheus, version 0.0.4, which everything reads.

use std::fmt::{self, Write as _};

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

/// The value of the header `Content-Type`.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of the registries.
///
/// # Errors
/// A metric cannot be encoded.
pub(super) fn text(registries: &[Registry]) -> Result<String, fmt::Error> {
    let mut text = String::new();
    for registry in registries {
        encode_registry(&mut text, registry)?;
    }
    prometheus(&text)
}

/// OpenMetrics text, which the library writes, in the format of Prometheus: there the name of a
/// type is that of its series, with `_total` and `_info`, and there is no type `info`. The
/// series are the same.
fn prometheus(openmetrics: &str) -> Result<String, fmt::Error> {
    let mut text = String::with_capacity(openmetrics.len());
    let mut name_and_help = "";
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            name_and_help = rest;
        } else if let Some((name, kind)) = type_line(line) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            let help = name_and_help.strip_prefix(name).unwrap_or_default();
            writeln!(text, "# HELP {name}{suffix}{help}")?;
            writeln!(text, "# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            writeln!(text, "{line}")?;
        }
    }
    Ok(text)
}

/// Name and type of a `# TYPE` line.
fn type_line(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("# TYPE ")?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::{counter::Counter, gauge::Gauge, info::Info};

    use super::*;

    #[test]
    fn types_have_the_names_of_their_series() {
        let mut registry = Registry::with_prefix("a");
        let counter: Counter = Counter::default();
        registry.register("runs", "Runs", counter);
        let gauge: Gauge = Gauge::default();
        registry.register("ready", "Whether it is", gauge);
        registry.register("build", "Which", Info::new(vec![("version", "1")]));
        let histogram = Histogram::new([1.0]);
        registry.register("seconds", "How long", histogram);
        let expected = "\
# HELP a_runs_total Runs.
# TYPE a_runs_total counter
a_runs_total 0
# HELP a_ready Whether it is.
# TYPE a_ready gauge
a_ready 0
# HELP a_build_info Which.
# TYPE a_build_info gauge
a_build_info{version=\"1\"} 1
# HELP a_seconds How long.
# TYPE a_seconds histogram
a_seconds_sum 0.0
a_seconds_count 0
a_seconds_bucket{le=\"1.0\"} 0
a_seconds_bucket{le=\"+Inf\"} 0
";
        assert_eq!(text(&[registry]).unwrap(), expected);
    }
}
