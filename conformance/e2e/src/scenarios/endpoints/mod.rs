//! Endpoints of Services come and go under load, with tweed in place of kube-proxy: rolling
//! updates, and as many changes of EndpointSlices as a large cluster has.

mod api;
mod churn;
mod health_checks;
mod rollouts;

use std::time::Duration;

use anyhow::{Context, Result};
use tweed_lab_kubernetes::{CONTROL, ProxyMode};

use super::{Precondition, Scenario};
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::pods;
use crate::service_proxy;

pub const SCENARIO: Scenario = Scenario {
    name: "endpoints",
    shows: "rolling updates and a thousand endpoint changes a second fail no connection through tweed",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(180);

const OBJECTS: &str = include_str!("objects.yaml");

/// The clients of the Services.
struct Clients {
    /// A pod on the control-plane node, where there are no servers.
    pod: Endpoint,
    /// The host outside the cluster.
    outside: Endpoint,
}

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    let proxy = fixture.cluster.proxy();
    let result = run_steps(fixture);
    let result = fixture.report_failure(result);
    let restored = service_proxy::set(fixture, proxy);
    result.and(restored)
}

fn run_steps(fixture: &mut Fixture<'_>) -> Result<()> {
    fixture.apply(OBJECTS)?;
    service_proxy::set(fixture, ProxyMode::Tweed)?;
    let clients = Clients {
        pod: pods::start(fixture, "client", CONTROL)?,
        outside: Endpoint::outside(fixture.cluster),
    };
    rollouts::run(fixture, &clients).context("rolling updates")?;
    churn::run(fixture, &clients).context("changes of EndpointSlices")
}
