//! How often a source was lost or had to list everything again: neither is a problem by
//! itself, but often it costs the API server more than the node.

use tweed_core::object::Event;
use tweed_watch::Kind;

use crate::serve::metrics::Metrics;

/// Counts what the events of one source say of it.
pub struct SourceCount {
    metrics: Metrics,
    /// Whether a list has begun.
    listed: bool,
    lost: bool,
}

impl SourceCount {
    /// Of a source that has said nothing yet.
    pub fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            listed: false,
            lost: false,
        }
    }

    /// Takes note of the next event.
    pub fn note<K: Kind>(&mut self, event: &Event<K>) {
        match event {
            Event::Init if self.listed => self.metrics.listed_again(K::KINDS),
            Event::Init => self.listed = true,
            Event::Lost(_) if !self.lost => {
                self.lost = true;
                self.metrics.watch_restarts.inc();
            }
            Event::Restored => self.lost = false,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use tweed_core::object::Loss;
    use tweed_core::object::node::Node;

    use super::*;

    #[test]
    fn lists_after_the_first_and_losses_are_counted_each_once() {
        let (registry, metrics) = Metrics::register();
        let mut count = SourceCount::new(metrics);
        let lost = || {
            Event::Lost(Loss {
                reason: "away".to_owned(),
                forbidden: false,
            })
        };
        let mut note = |events: &[Event<Node>]| {
            events.iter().for_each(|event| count.note(event));
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let value = |name: &str| {
                let mut lines = text.lines();
                let line = lines.find_map(|line| line.strip_prefix(name));
                line.map_or(0, |value| value.trim().parse::<u32>().unwrap())
            };
            (
                value("tweed_relists_total{kind=\"Nodes\"}"),
                value("tweed_watch_restarts_total"),
            )
        };
        assert_eq!(note(&[Event::Init, Event::InitDone]), (0, 0));
        // Expired versions, which the API server says without any failure.
        assert_eq!(note(&[Event::Init, Event::Init, Event::InitDone]), (2, 0));
        assert_eq!(note(&[lost(), lost(), Event::Restored]), (2, 1));
        assert_eq!(note(&[lost()]), (2, 2));
    }
}
