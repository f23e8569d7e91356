//! Runs a source and gives its events to an index of the shared state.

use std::{mem, sync::Arc};

use tokio::sync::mpsc;
use tweed_core::object::Event;
use tweed_watch::{Kind, Source};

use super::MAX_EVENTS;
use super::count::SourceCount;
use crate::index::Index;
use crate::serve::metrics::Metrics;
use crate::state::{Indexed, State};

/// Runs `source`. `apply` gives an event to the index and says whether anything changed by
/// it.
pub async fn follow<K: Kind, C: Indexed>(
    source: impl Source<K>,
    state: Arc<State>,
    metrics: Metrics,
    apply: impl Fn(&mut Index<C>, Event<K>) -> bool + Clone + Send + 'static,
) {
    let (sender, mut events) = mpsc::channel(MAX_EVENTS);
    let _listening = metrics.listen_to(K::KINDS, source.last_contact());
    let apply_all = async {
        let mut count = SourceCount::new(metrics);
        let mut batch = Vec::new();
        while events.recv_many(&mut batch, MAX_EVENTS).await > 0 {
            batch.iter().for_each(|event| count.note(event));
            let (batch, apply) = (mem::take(&mut batch), apply.clone());
            let apply_batch = move |index: &mut Index<C>| {
                let mut changed = false;
                for event in batch {
                    changed |= apply(index, event);
                }
                changed
            };
            state.update_index(apply_batch).await;
        }
    };
    tokio::join!(source.run(sender), apply_all);
}
