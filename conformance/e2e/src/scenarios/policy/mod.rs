//! Policies: what they allow and deny, between pods of one node and of several; what
//! probes, init containers, open connections and a restarted agent see; and what the
//! agents request of the API server for it.
//!
//! ```text
//! requests         what the agents request before there is a policy, and after
//! cast             the pods that take part
//! paths            waits until a path is open or closed
//! network_policy   NetworkPolicies: namespaces, named ports, egress, probes
//! first_packet     a container that sends before its pod has been judged
//! open_flows       open connections while policies and agents come and go
//! cluster_policy   ClusterNetworkPolicies, whose definition is installed late
//! ```

mod cast;
mod cluster_policy;
mod first_packet;
mod network_policy;
mod open_flows;
mod paths;
mod requests;

use std::time::Duration;

use anyhow::Context;

use super::{Precondition, Scenario};
use crate::fixture::Fixture;
use cast::Cast;
pub use cluster_policy::{install as install_definition, remove as remove_definition};

pub const SCENARIO: Scenario = Scenario {
    name: "policy",
    shows: "policies hold from a pod's first packet, cut only what they deny, and cost no watch of pods before they exist",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(180);

fn run(fixture: &mut Fixture<'_>) -> anyhow::Result<()> {
    let result = run_steps(fixture);
    // A failure is reported before anything is deleted.
    let result = fixture.report_failure(result);
    let cleared = cast::remove(fixture);
    let cleared = cleared.and(cluster_policy::remove(fixture));
    result.and(cleared)
}

fn run_steps(fixture: &mut Fixture<'_>) -> anyhow::Result<()> {
    requests::none_before_a_policy(fixture).context("before there is a policy")?;
    let cast = Cast::start(fixture)?;
    network_policy::run(fixture, &cast).context("NetworkPolicies")?;
    requests::with_policies(fixture).context("with policies")?;
    first_packet::run(fixture, &cast).context("the first packet")?;
    open_flows::run(fixture, &cast).context("open connections")?;
    cluster_policy::run(fixture, &cast).context("ClusterNetworkPolicies")
}
