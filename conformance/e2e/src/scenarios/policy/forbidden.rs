//! Agents that may not read one kind of policies, as with the ClusterRoles of an older
//! version: the other kind is followed, and every node names the right that is missing.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tweed_lab::run_with;

use super::cast::Cast;
use super::cluster_policy;
use super::installation::ROLE;
use super::network_policy::DEFAULT_DENY;
use super::paths::Path;
use super::readyz;
use crate::agents;
use crate::fixture::Fixture;

/// The group of the kind that they may not read.
const GROUP: &str = "policy.networking.k8s.io";

/// How `/readyz` begins the line about it: the node was ready in this boot.
const PROBLEM: &str = "warning: policies-forbidden: the ClusterNetworkPolicies cannot be read";

/// Takes the right away, and gives it back while the agents run. They try again within half
/// a minute, during which the next step can go on.
pub fn begin(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    cluster_policy::install(fixture)?;
    let mut role = fixture.kubectl().json(&format!("get clusterrole {ROLE}"))?;
    // It is replaced whatever its version is then.
    role["metadata"]["resourceVersion"].take();
    replace(fixture, &without(&role)?)?;
    agents::restart(fixture)?;
    let path = Path::web(&cast.far, &cast.server);
    fixture.apply(DEFAULT_DENY)?;
    path.becomes_closed()?;
    let answer = readyz::wait_for_all(fixture, "the right that is missing", |lines| {
        lines.iter().any(|line| line.starts_with(PROBLEM))
    })?;
    fixture.log(&format!("without the right to read {GROUP}: {answer}"));
    fixture.sh("delete networkpolicies --all")?;
    path.becomes_open()
        .context("NetworkPolicies are followed without the other kind")?;

    replace(fixture, &role)
}

/// Waits until no agent misses the right any more.
pub fn end(fixture: &Fixture<'_>) -> Result<()> {
    readyz::wait_for_all(fixture, "no right is missing", |lines| {
        !lines.iter().any(|line| line.contains("policies-forbidden"))
    })?;
    cluster_policy::remove(fixture)
}

/// The role without its rules for the group.
fn without(role: &Value) -> Result<Value> {
    let mut less = role.clone();
    let rules = less["rules"].as_array_mut().context("no rules")?;
    let all = rules.len();
    rules.retain(|rule| rule["apiGroups"] != serde_json::json!([GROUP]));
    ensure!(rules.len() == all - 1, "not one rule for {GROUP}: {role}");
    Ok(less)
}

fn replace(fixture: &Fixture<'_>, role: &Value) -> Result<()> {
    let words = ["replace", "--filename", "-"];
    run_with(&mut fixture.kubectl().command(words), &role.to_string())?;
    Ok(())
}
