//! What the rules of tweed's tables have dropped, as a metric.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// The counters of the tables, read at each scrape by a message for each table: the rules count,
/// and nothing else keeps a sum. A table that is made anew begins at 0, as a counter may.
#[derive(Debug)]
pub(super) struct Drops;

impl Collector for Drops {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Packets that tweed's rules have dropped or rejected, by reason";
        let mut packets =
            encoder.encode_descriptor("dropped_packets", help, None, MetricType::Counter)?;
        // A kernel that cannot be asked is a problem of the next reconcile.
        for dropped in tweed_nft::dropped().unwrap_or_default() {
            let reason = [("reason", dropped.reason.word())];
            ConstCounter::new(dropped.packets).encode(packets.encode_family(&reason)?)?;
        }
        Ok(())
    }
}
