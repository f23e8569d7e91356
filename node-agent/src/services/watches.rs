//! Runs the sources of what Services are made of.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_watch::Scope;

use super::index::{ServiceIndex, ServiceObject};
use crate::serve::metrics::Metrics;
use crate::sources::{Sources, follow::follow};
use crate::{state::State, tasks::Tasks};

/// Has `tasks` run a source of each kind until `stop` is cancelled.
pub fn spawn(
    tasks: &mut Tasks,
    sources: &impl Sources,
    state: &Arc<State>,
    metrics: &Metrics,
    stop: &CancellationToken,
) {
    let (services, slices) = ("the source of Services", "the source of EndpointSlices");
    spawn_one::<Service>(tasks, services, sources, state, metrics, stop);
    spawn_one::<EndpointSlice>(tasks, slices, sources, state, metrics, stop);
    let cidrs = "the source of ServiceCIDRs";
    spawn_one::<ServiceCidr>(tasks, cidrs, sources, state, metrics, stop);
}

fn spawn_one<K: ServiceObject>(
    tasks: &mut Tasks,
    name: &'static str,
    sources: &impl Sources,
    state: &Arc<State>,
    metrics: &Metrics,
    stop: &CancellationToken,
) {
    let source = sources.source::<K>(Scope::All);
    let (state, metrics, stop) = (Arc::clone(state), metrics.clone(), stop.clone());
    let apply = |index: &mut ServiceIndex, event| index.apply::<K>(event);
    tasks.spawn(name, follow(source, state, metrics, stop, apply));
}
