//! A ClusterNetworkPolicy with something that tweed cannot carry out: an Event on it and
//! a warning of the nodes with a pod that it selects.

use anyhow::{Result, ensure};

use super::LIMIT;
use super::cast::Cast;
use crate::fixture::Fixture;

/// The name of the policy.
const NAME: &str = "e2e-policy-unsupported";

/// What it allows by its domain name is nobody, and it denies nothing.
const POLICY: &str = r"
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: { name: e2e-policy-unsupported }
spec:
  tier: Baseline
  priority: 900
  subject:
    pods:
      namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: e2e-policy } }
      podSelector: { matchLabels: { role: server } }
  egress:
    - action: Accept
      to: [{ domainNames: [example.org] }]
";

/// Creates the policy: the Event follows some time later, within a minute.
pub fn create(fixture: &Fixture<'_>) -> Result<()> {
    fixture.kubectl().apply(POLICY)?;
    Ok(())
}

/// Waits for the Event, and checks that the node with a server warns, and that no node
/// without one does.
pub fn check(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    let line = format!(
        "get events --namespace default \
         --field-selector reason=PolicyUnsupported,involvedObject.name={NAME}"
    );
    let events = fixture
        .kubectl()
        .wait_for(&format!("an Event on {NAME}"), LIMIT, || {
            let events = fixture.kubectl().sh(&line).map_err(|error| error.chain())?;
            let is_one = events.contains("Warning") && events.contains("domainNames");
            is_one.then_some(events.clone()).ok_or(events)
        })?;
    let text = events.lines().nth(1).unwrap_or_default();
    fixture.log(&format!("Event: {text}"));
    for node in fixture.cluster.nodes() {
        let has_server = [&cast.node, &cast.second_node].contains(&&node.name().to_owned());
        let state = node.sh("cat /run/tweed/agent.json")?;
        ensure!(
            state.contains(NAME) == has_server,
            "{}, with a server: {has_server}; its agent says {state}",
            node.name()
        );
    }
    Ok(())
}
