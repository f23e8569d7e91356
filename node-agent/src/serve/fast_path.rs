//! The metrics of the fast path, which its programs count themselves.

use std::fmt::Error;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use tweed_fastpath::{CounterReader, Counters};

/// The counters of the programs that are loaded, if any are. They are read at each scrape;
/// maps that are made anew begin at 0, as a counter may.
#[derive(Debug, Clone, Default)]
pub struct FastPathCounters(Arc<Mutex<Option<CounterReader>>>);

impl FastPathCounters {
    /// From now on these are read.
    pub fn set_counters(&self, counters: Option<CounterReader>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counters;
    }

    fn read(&self) -> Counters {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = counters.as_ref().map(CounterReader::read);
        // That they cannot be read is a problem of the next reconcile.
        read.and_then(Result::ok).unwrap_or_default()
    }
}

impl Collector for FastPathCounters {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let counters = self.read();
        let mut family =
            |name: &str, help: &str, label: &'static str, rows: Vec<(&'static str, u64)>| {
                let mut rows_of =
                    encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
                for (word, count) in rows {
                    let labels = [(label, word)];
                    ConstCounter::new(count).encode(rows_of.encode_family(&labels)?)?;
                }
                Ok::<_, Error>(())
            };
        let fast = counters.fast.iter();
        let packets = fast
            .clone()
            .map(|(way, traffic)| (way.word(), traffic.packets));
        let help = "Packets that skipped the host's stack, by way; several segments are one";
        family("fast_path_packets", help, "way", packets.collect())?;
        let bytes = fast.map(|(way, traffic)| (way.word(), traffic.bytes));
        let help = "Bytes that skipped the host's stack, by way";
        family("fast_path_bytes", help, "way", bytes.collect())?;
        let kernel = counters.kernel.iter();
        let reasons = kernel.clone().filter(|(why, _)| !why.is_refusal());
        let passed = reasons.map(|(why, count)| (why.word(), *count));
        let help = "Packets to pods and Services that took the kernel's path, by reason";
        family("fast_path_kernel_path", help, "why", passed.collect())?;
        let refusals = kernel.filter(|(why, _)| why.is_refusal());
        let refused = refusals.map(|(why, count)| (why.word(), *count));
        let admissions = refused.chain(Some(("admitted", counters.admitted)));
        let help = "Packets after the kernel's path, by whether their flow may skip it from now on";
        family("fast_path_admissions", help, "result", admissions.collect())
    }
}
