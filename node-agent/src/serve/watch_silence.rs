//! The metric that says for how long each source has said nothing. It is computed
//! when it is asked for, so that it grows whatever else stands still.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use tweed_watch::LastContact;

/// A gauge for each watched kind of object. Clones share the sources. Where a kind
/// has several sources, the one that has said nothing for the longest time counts.
#[derive(Debug, Clone, Default)]
pub struct WatchSilence(Arc<Mutex<Sources>>);

#[derive(Debug, Default)]
struct Sources {
    /// The number that the last source got.
    last: u64,
    by_number: BTreeMap<u64, (&'static str, LastContact)>,
}

/// A source is shown until this is dropped.
#[derive(Debug)]
#[must_use = "the source is shown until this is dropped"]
pub struct Listening {
    sources: Arc<Mutex<Sources>>,
    number: u64,
}

impl WatchSilence {
    /// Shows a source of objects of this kind too.
    pub fn add(&self, kind: &'static str, last_contact: LastContact) -> Listening {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sources.last += 1;
        let number = sources.last;
        sources.by_number.insert(number, (kind, last_contact));
        Listening {
            sources: Arc::clone(&self.0),
            number,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.by_number.remove(&self.number);
    }
}

impl EncodeMetric for WatchSilence {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let mut silent: BTreeMap<&str, f64> = BTreeMap::new();
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, last_contact) in sources.by_number.values() {
            let longest = silent.entry(kind).or_default();
            *longest = longest.max(last_contact.age().as_secs_f64());
        }
        drop(sources);
        for (kind, seconds) in &silent {
            let kind = [("kind", *kind)];
            encoder.encode_family(&kind)?.encode_gauge(seconds)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    #[test]
    fn each_kind_is_one_series_as_long_as_one_of_its_sources_is_listened_to() {
        let silence = WatchSilence::default();
        let mut registry = Registry::default();
        registry.register("silence", "How long", silence.clone());
        let series = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let lines = text.lines().filter(|line| line.starts_with("silence{"));
            lines
                .filter_map(|line| Some(line.split_once(' ')?.0.to_owned()))
                .collect::<Vec<_>>()
        };
        let nodes = silence.add("Nodes", LastContact::default());
        let own = silence.add("Pods", LastContact::default());
        let others = silence.add("Pods", LastContact::default());
        let both = [r#"silence{kind="Nodes"}"#, r#"silence{kind="Pods"}"#];
        assert_eq!(series(), both);
        drop(own);
        assert_eq!(series(), both);
        drop(others);
        assert_eq!(series(), both[..1]);
        drop(nodes);
        assert_eq!(series(), [""; 0]);
    }
}
