//! The text formats of `/metrics`: that of Prometheus, and OpenMetrics for a
//! client that asks for it.

use std::fmt::{self, Write as _};

use axum::http::{HeaderMap, header::ACCEPT};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// The text format of Prometheus, version 0.0.4, which everything reads.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// What the header `Accept` of a request asks for.
    pub(super) fn asked_for(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).into_iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let (mut prometheus, mut openmetrics) = (0.0_f32, 0.0_f32);
        for range in values
            .flat_map(|value| value.split(','))
            .map(MediaRange::of)
        {
            match (range.media_type, range.version) {
                ("application/openmetrics-text", None | Some("1.0.0")) => {
                    openmetrics = openmetrics.max(range.quality);
                }
                ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => {
                    prometheus = prometheus.max(range.quality);
                }
                _ => {}
            }
        }
        if openmetrics > 0.0 && openmetrics >= prometheus {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The value of the header `Content-Type`.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// All metrics of the registries.
    ///
    /// # Errors
    /// A metric cannot be encoded.
    pub(super) fn text(self, registries: &[Registry]) -> Result<String, fmt::Error> {
        let mut text = String::new();
        for registry in registries {
            encode_registry(&mut text, registry)?;
        }
        encode_eof(&mut text)?;
        match self {
            Self::OpenMetrics => Ok(text),
            Self::Prometheus => prometheus(&text),
        }
    }
}

/// One of the types that a client accepts.
struct MediaRange<'a> {
    media_type: &'a str,
    version: Option<&'a str>,
    quality: f32,
}

impl<'a> MediaRange<'a> {
    fn of(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self {
            media_type: parts.next().unwrap_or_default(),
            version: None,
            quality: 1.0,
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "version" => range.version = Some(value.trim().trim_matches('"')),
                "q" => range.quality = value.trim().parse().unwrap_or_default(),
                _ => {}
            }
        }
        range
    }
}

/// OpenMetrics text in the format of Prometheus: there the name of a type is that
/// of its series, with `_total` and `_info`, there is no type `info`, and the end
/// is not marked. The series are the same.
fn prometheus(openmetrics: &str) -> Result<String, fmt::Error> {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest;
        } else if let Some((name, kind)) = type_line(line) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            let help = help.strip_prefix(name).unwrap_or_default();
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

    fn asked_for(accept: &[&'static str]) -> Format {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        Format::asked_for(&headers)
    }

    macro_rules! asked {
        ($($name:ident: $accept:expr => $format:ident;)*) => {$(
            #[test]
            fn $name() {
                assert_eq!(asked_for(&$accept), Format::$format);
            }
        )*};
    }
    asked! {
        nothing: [] => Prometheus;
        curl: ["*/*"] => Prometheus;
        a_browser: ["text/html,application/xhtml+xml,*/*;q=0.8"] => Prometheus;
        prometheus_2: ["application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"] => OpenMetrics;
        prometheus_3: ["application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"] => OpenMetrics;
        prometheus_that_prefers_its_own: ["text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5"] => Prometheus;
        another_version_of_openmetrics: ["application/openmetrics-text;version=0.0.1"] => Prometheus;
        openmetrics_of_any_version: ["application/openmetrics-text"] => OpenMetrics;
        openmetrics_refused: ["application/openmetrics-text;q=0"] => Prometheus;
        two_headers: ["text/plain;q=0.5", "application/openmetrics-text; version=\"1.0.0\"; q=0.9"] => OpenMetrics;
        a_quality_that_is_no_number: ["application/openmetrics-text;q=x"] => Prometheus;
    }

    #[test]
    fn both_formats_have_the_same_series_each_with_the_types_that_it_knows() {
        let mut registry = Registry::with_prefix("a");
        let counter: Counter = Counter::default();
        registry.register("runs", "Runs", counter);
        let gauge: Gauge = Gauge::default();
        registry.register("ready", "Whether it is", gauge);
        registry.register("build", "Which", Info::new(vec![("version", "1")]));
        let histogram = Histogram::new([1.0]);
        registry.register("seconds", "How long", histogram);
        let prometheus = "\
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
        let registries = [registry];
        assert_eq!(Format::Prometheus.text(&registries).unwrap(), prometheus);
        let openmetrics = prometheus
            .replace("# HELP a_runs_total", "# HELP a_runs")
            .replace("# TYPE a_runs_total", "# TYPE a_runs")
            .replace("# HELP a_build_info", "# HELP a_build")
            .replace("# TYPE a_build_info gauge", "# TYPE a_build info")
            + "# EOF\n";
        assert_eq!(Format::OpenMetrics.text(&registries).unwrap(), openmetrics);
    }
}
