//! ClusterNetworkPolicies: their definition is installed while the agents run, and removed
//! again; the Admin tier comes before NetworkPolicies, the Baseline tier after them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab::Programs;

use super::LIMIT;
use super::cast::Cast;
use super::network_policy::{all_open, all_paths};
use super::paths::{Path, become_open_and_closed};
use crate::fixture::Fixture;

/// The name of the definition.
const DEFINITION: &str = "clusternetworkpolicies.policy.networking.k8s.io";

/// A NetworkPolicy that allows everything to the servers.
const ALLOW_ALL: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: allow-all }
spec:
  podSelector: { matchLabels: { role: server } }
  ingress: [{}]
";

/// The namespace of friends may not reach the servers, whatever NetworkPolicies say.
const ADMIN_DENY: &str = r"
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: { name: e2e-policy-admin }
spec:
  tier: Admin
  priority: 10
  subject:
    pods:
      namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: e2e-policy } }
      podSelector: { matchLabels: { role: server } }
  ingress:
    - action: Deny
      from: [{ namespaces: { matchLabels: { team: friends } } }]
";

/// Where no NetworkPolicy decides, nothing reaches the servers.
const BASELINE_DENY: &str = r"
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: { name: e2e-policy-baseline }
spec:
  tier: Baseline
  priority: 10
  subject:
    pods:
      namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: e2e-policy } }
      podSelector: { matchLabels: { role: server } }
  ingress:
    - action: Deny
      from: [{ namespaces: {} }]
";

/// Runs all steps; afterwards there is no policy and no definition.
pub fn run(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    let agents = agents(fixture)?;
    fixture.apply(ALLOW_ALL)?;
    install(fixture)?;
    let friend = [
        Path::web(&cast.friend, &cast.server),
        Path::udp(&cast.friend, &cast.second),
    ];
    let others = [
        Path::web(&cast.near, &cast.server),
        Path::udp(&cast.far, &cast.server),
    ];
    fixture.kubectl().apply(ADMIN_DENY)?;
    become_open_and_closed(&others, &friend).context("Admin deny, NetworkPolicy allow")?;
    fixture.kubectl().apply(BASELINE_DENY)?;
    become_open_and_closed(&others, &friend).context("Baseline deny, NetworkPolicy allow")?;
    fixture.sh("delete networkpolicies --all")?;
    become_open_and_closed(&[], &all_paths(cast)).context("Baseline deny, no NetworkPolicy")?;
    fixture.log("Admin deny comes before a NetworkPolicy, Baseline deny after it");

    remove(fixture)?;
    all_open(cast).context("after the definition was removed")?;
    let now = self::agents(fixture)?;
    ensure!(
        now == agents,
        "agents were restarted meanwhile: {agents:?}, now {now:?}"
    );
    Ok(())
}

/// Installs the definition of the pinned version, and waits until it is served.
pub fn install(fixture: &Fixture<'_>) -> Result<()> {
    let file = definition()?;
    let text = fs::read_to_string(&file)
        .with_context(|| format!("{}: run `conformance/setup.sh e2e`", file.display()))?;
    fixture.kubectl().apply(&text)?;
    let limit = LIMIT.as_secs();
    let line = format!("wait crd/{DEFINITION} --for=condition=Established --timeout={limit}s");
    fixture.kubectl().sh(&line)?;
    Ok(())
}

/// Removes the definition and all ClusterNetworkPolicies, if there are any.
pub fn remove(fixture: &Fixture<'_>) -> Result<()> {
    let limit = LIMIT.as_secs();
    let line = format!("delete crd {DEFINITION} --ignore-not-found --timeout={limit}s");
    fixture.kubectl().sh(&line)?;
    Ok(())
}

/// The file of the definition, which `conformance/setup.sh e2e` takes from its Go module.
fn definition() -> Result<PathBuf> {
    let target = Programs::find()?.target().to_owned();
    Ok(target.join("tools/kubernetes/policy/clusternetworkpolicies.yaml"))
}

/// The agents' pods and how often their containers were restarted.
fn agents(fixture: &Fixture<'_>) -> Result<Vec<(Value, Value)>> {
    let pods = "pods --namespace kube-system --selector app.kubernetes.io/name=tweed";
    let mut agents: Vec<(Value, Value)> = fixture
        .kubectl()
        .list(pods)?
        .into_iter()
        .map(|mut pod| {
            let restarts = pod["status"]["containerStatuses"][0]["restartCount"].take();
            (pod["metadata"]["name"].take(), restarts)
        })
        .collect();
    agents.sort_by_key(|(name, _)| name.to_string());
    Ok(agents)
}
