//! Policies: what they allow and deny, between pods of one node and of several; what
//! probes, init containers, open connections and a restarted agent see; and what the
//! agents request of the API server for it.
//!
//! ```text
//! requests         what the agents request before there is a policy, and after
//! cast             the pods that take part
//! paths            waits until a path is open or closed
//! open_flows       open connections while policies and agents come and go
//! network_policy   NetworkPolicies: namespaces, named ports, egress, probes
//! explained        the answer of `tweedctl why`, and the log of dropped packets
//! cluster_policy   ClusterNetworkPolicies, whose definition is installed late
//! unsupported      a policy that cannot be carried out
//! readyz           what the agents say of it on their nodes
//! first_packet     a container that sends before its pod has been enforced
//! forbidden        agents that may not read one kind of policies
//! installation     agents with the log of dropped packets, and without policy
//! ```

mod cast;
mod cluster_policy;
mod explained;
mod first_packet;
mod forbidden;
mod installation;
mod network_policy;
mod open_flows;
mod paths;
mod readyz;
mod requests;
mod unsupported;

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
    let cleared = cast::remove(fixture).and(cluster_policy::remove(fixture));
    // After the last step they are as they were.
    let restored = match result {
        Ok(()) => Ok(()),
        Err(_) => installation::restore(fixture),
    };
    result.and(cleared).and(restored)
}

fn run_steps(fixture: &mut Fixture<'_>) -> anyhow::Result<()> {
    requests::none_before_a_policy(fixture).context("before there is a policy")?;
    let cast = Cast::start(fixture)?;
    open_flows::run(fixture, &cast).context("open connections")?;
    requests::absence_is_noted(fixture)?;
    // The agents look for the definition once or twice a minute, and write Events within
    // a minute: both go on during the next steps.
    let agents = cluster_policy::agents(fixture)?;
    cluster_policy::install(fixture)?;
    unsupported::create(fixture)?;
    network_policy::run(fixture, &cast).context("NetworkPolicies")?;
    requests::with_policies(fixture).context("with policies")?;
    cluster_policy::run(fixture, &cast, &agents).context("ClusterNetworkPolicies")?;
    forbidden::begin(fixture, &cast).context("a right that is missing")?;
    first_packet::run(fixture, &cast).context("the first packet")?;
    forbidden::end(fixture).context("a right that is given back")?;
    installation::without_policy(fixture, &cast).context("with policy off")
}
