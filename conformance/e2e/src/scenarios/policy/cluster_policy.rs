//! ClusterNetworkPolicies: their definition is installed while the agents run, and removed
//! again; the Admin tier comes before NetworkPolicies, the Baseline tier after them.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tweed_lab::Programs;

use super::LIMIT;
use super::cast::Cast;
use super::network_policy::{all_open, all_paths};
use super::paths::{Path, become_open_and_closed};
use super::unsupported;
use crate::fixture::Fixture;

/// The name of the definition.
const DEFINITION: &str = "clusternetworkpolicies.policy.networking.k8s.io";

/// The version of the API that tweed reads, and one that nobody knows.
const VERSION: &str = "v1alpha2";
pub const UNKNOWN_VERSION: &str = "v1alpha99";

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

/// Runs all steps; afterwards there is no policy and no definition. The definition is
/// installed before, while these agents run.
pub fn run(fixture: &Fixture<'_>, cast: &Cast, agents: &Agents) -> Result<()> {
    fixture.apply(ALLOW_ALL)?;
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

    unsupported::check(fixture, cast).context("a policy that cannot be carried out")?;
    remove(fixture)?;
    all_open(cast).context("after the definition was removed")?;
    let now = self::agents(fixture)?;
    ensure!(
        now == *agents,
        "agents were restarted meanwhile: {agents:?}, now {now:?}"
    );
    Ok(())
}

/// Installs the definition of the pinned version, and waits until it is served.
pub fn install(fixture: &Fixture<'_>) -> Result<()> {
    install_text(fixture, &definition()?)
}

/// Installs it in a version that nobody knows, and in no other.
pub fn install_unknown_version(fixture: &Fixture<'_>) -> Result<()> {
    let name = |version: &str| format!("    name: {version}\n");
    let (known, unknown) = (name(VERSION), name(UNKNOWN_VERSION));
    let text = definition()?;
    ensure!(
        text.matches(&known).count() == 1,
        "the definition has not one version {VERSION}"
    );
    install_text(fixture, &text.replace(&known, &unknown))
}

fn install_text(fixture: &Fixture<'_>, definition: &str) -> Result<()> {
    fixture.kubectl().apply(definition)?;
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

/// The definition, which `conformance/setup.sh e2e` takes from its Go module.
fn definition() -> Result<String> {
    let file = Programs::find()?
        .target()
        .join("tools/kubernetes/policy/clusternetworkpolicies.yaml");
    fs::read_to_string(&file)
        .with_context(|| format!("{}: run `conformance/setup.sh e2e`", file.display()))
}

/// The agents' pods and how often their containers were restarted.
pub type Agents = Vec<(Value, Value)>;

/// Those that run now.
pub fn agents(fixture: &Fixture<'_>) -> Result<Agents> {
    let pods = "pods --namespace kube-system --selector app.kubernetes.io/name=tweed";
    let mut agents: Agents = fixture
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
