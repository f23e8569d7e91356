//! The metric that says for how long each source has said nothing. It is computed
//! when it is asked for, so that it grows whatever else stands still.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use tweed_watch::LastWord;

/// A gauge for each watched kind of object. Clones share the kinds.
#[derive(Debug, Clone, Default)]
pub struct WatchSilence(Arc<Mutex<Vec<(Kind, LastWord)>>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

impl WatchSilence {
    /// Shows the source of objects of this kind too.
    pub fn add(&self, kind: &'static str, last_word: LastWord) {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.push((Kind { kind }, last_word));
    }
}

impl EncodeMetric for WatchSilence {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, last_word) in kinds.iter() {
            let seconds = last_word.age().as_secs_f64();
            encoder.encode_family(kind)?.encode_gauge(&seconds)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}
