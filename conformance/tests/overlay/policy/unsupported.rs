//! Row 15: what a policy has that cannot be carried out allows nothing, is said, and
//! changes nothing for others.

use std::time::Duration;

use tweed_lab::{LabError, wait_until};

use super::cluster_policy;
use super::scene::{ALL, NONE, Scene, ingress};

/// A ClusterNetworkPolicy of the server's ingress with these rules.
fn admin(rules: &str) -> String {
    let spec = format!(
        "{{tier: Admin, priority: 1, subject: {{pods: {{namespaceSelector: {{}}, podSelector: \
         {{matchLabels: {{app: server}}}}}}}}, ingress: [{rules}]}}"
    );
    cluster_policy("newer", &spec)
}

/// Waits until `/readyz` of node `index` names these as not supported, and no others.
fn wait_said(scene: &mut Scene, index: u8, expected: &[&str]) -> Result<(), LabError> {
    let agent = scene.cluster.entry(index)?.agent.as_ref().unwrap();
    let what = format!("node{index} to say that it cannot carry out {expected:?}");
    wait_until(&what, Duration::from_secs(30), || {
        let (code, text) = agent.get("/readyz").map_err(|error| error.chain())?;
        let said: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("policy-unsupported"))
            .collect();
        let names_each = said.len() == expected.len()
            && said
                .iter()
                .zip(expected)
                .all(|(line, name)| line.contains(name));
        (code == 200 && names_each).then_some(()).ok_or(text)
    })
}

#[test]
fn what_cannot_be_carried_out_allows_nothing_and_is_said() -> Result<(), LabError> {
    let mut scene = Scene::new()?;
    let allow = ingress("allow", "[{}]");
    // A peer that is not known, in Accept: it is nobody, and the next rule decides.
    scene.with(&[
        allow.clone(),
        admin(
            "{action: Accept, from: [{galaxies: {}}]}, \
             {action: Deny, from: [{namespaces: {}}], \
              protocols: [{udp: {destinationPort: {range: {start: 7001, end: 7002}}}}]}",
        ),
    ])?;
    scene.becomes(&[vec![7003], vec![7003]])?;
    wait_said(&mut scene, 1, &["ClusterNetworkPolicy newer"])?;
    wait_said(&mut scene, 2, &[])?;

    // In Deny it is everybody, and other pods are as before: the flags of
    // `Scene::settle` are in force.
    scene.with(&[allow, admin("{action: Deny, from: [{galaxies: {}}]}")])?;
    scene.becomes(&[vec![], vec![]])?;

    // In a NetworkPolicy: an operator that is not known selects nobody. The pod is
    // isolated, and other policies allow what they allow.
    let newer = ingress(
        "newer",
        "[{from: [{podSelector: {matchExpressions: [{key: app, operator: Like, values: [near]}]}}]}]",
    );
    scene.with(std::slice::from_ref(&newer))?;
    // The ClusterNetworkPolicy is gone when it is not named any more.
    wait_said(&mut scene, 1, &["NetworkPolicy shop/newer"])?;
    assert_eq!(scene.reached()?, [NONE, NONE]);
    let far =
        "[{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}}]}]";
    scene.with(&[newer, ingress("far", far)])?;
    scene.becomes(&[vec![], ALL.to_vec()])?;
    scene.with(&[])?;
    wait_said(&mut scene, 1, &[])
}
