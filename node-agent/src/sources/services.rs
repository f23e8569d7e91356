//! Runs the sources of what Services are made of.

use std::collections::BTreeSet;
use std::future::pending;
use std::net::SocketAddr;
use std::{sync::Arc, time::Instant};

use tokio::sync::watch;
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_watch::{Kind, Scope};

use super::{Sources, follow::follow};
use crate::index::services::Collection;
use crate::index::{Input, ServiceIndex};
use crate::serve::metrics::Metrics;
use crate::serve::services::sync::CountedObject;
use crate::{state::State, tasks::Tasks};

/// Has `tasks` run a source of each kind, and tell the index where they connect to.
pub fn spawn(tasks: &mut Tasks, sources: &impl Sources, state: &Arc<State>, metrics: &Metrics) {
    let services = (Collection::Services, "the source of Services");
    spawn_one::<Service>(tasks, services, sources, state, metrics);
    let slices = (Collection::EndpointSlices, "the source of EndpointSlices");
    spawn_one::<EndpointSlice>(tasks, slices, sources, state, metrics);
    let cidrs = (Collection::ServiceCidrs, "the source of ServiceCIDRs");
    spawn_one::<ServiceCidr>(tasks, cidrs, sources, state, metrics);
    if let Some(peers) = sources.peers() {
        let following = follow_peers(peers, Arc::clone(state));
        tasks.spawn(
            "the task that follows the API server's addresses",
            following,
        );
    }
}

/// Tells the index where the sources connect to. A name may lead elsewhere at any time: the
/// first connection to a new address may still be taken by a Service, and the next attempt
/// is not.
async fn follow_peers(mut peers: watch::Receiver<BTreeSet<SocketAddr>>, state: Arc<State>) {
    loop {
        let latest = peers.borrow_and_update().clone();
        let tell = move |index: &mut ServiceIndex| index.set_api_servers(&latest);
        state.update_index(tell).await;
        if peers.changed().await.is_err() {
            // The sources have ended too.
            return pending().await;
        }
    }
}

fn spawn_one<K: Kind + CountedObject + Input<Collection>>(
    tasks: &mut Tasks,
    (collection, name): (Collection, &'static str),
    sources: &impl Sources,
    state: &Arc<State>,
    metrics: &Metrics,
) {
    let source = sources.source::<K>(Scope::All);
    let (state, metrics) = (Arc::clone(state), metrics.clone());
    let sync = Arc::clone(&metrics.service_sync);
    let apply = move |index: &mut ServiceIndex, event| {
        let heard = sync.hear(&event);
        let changed = index.apply(&collection, event);
        if let Some(triggered) = heard
            && changed
        {
            sync.changed::<K>(triggered, Instant::now());
        }
        changed
    };
    tasks.spawn(name, follow(source, state, metrics, apply));
}
