//! Agents with other settings of policy, as users install them: the chart with the log of
//! dropped packets, and the kustomize component without policy.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tweed_lab::{Programs, run, run_with};

use super::cast::Cast;
use super::network_policy::DEFAULT_DENY;
use super::paths::Path;
use super::requests::Requests;
use crate::agents;
use crate::fixture::Fixture;

/// The names of the agents' ClusterRole for policy and of its binding.
pub const ROLE: &str = "tweed-policy";

/// What the agents may list for policy only: group and resource.
const FOR_POLICY: [(&str, &str); 4] = [
    ("", "pods"),
    ("", "namespaces"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy.networking.k8s.io", "clusternetworkpolicies"),
];

/// An overlay of a user, in a folder that contains the repository's `install`.
const WITHOUT_POLICY: &str = r"
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [install/kustomize/base]
components: [install/kustomize/without-policy]
";

/// Restarts the agents with the log of dropped packets, by the chart.
pub fn log_drops(fixture: &Fixture<'_>) -> Result<()> {
    let programs = Programs::find()?;
    let mut helm = Command::new(programs.target().join("tools/bin/helm"));
    helm.args(["template", "tweed"])
        .arg(programs.source().join("install/chart"))
        .args(["--namespace", "kube-system"])
        .args(["--set", "agent.policyLog=on"]);
    fixture.kubectl().apply(&run(&mut helm)?)?;
    agents::restart(fixture)
}

/// Installs tweed again as it was.
pub fn restore(fixture: &Fixture<'_>) -> Result<()> {
    fixture.cluster.install_tweed()?;
    agents::restart(fixture)
}

/// With `--policy off` a policy has no effect, and the agents have neither the rights nor
/// the watches of policy. When it is on again, the policy is in force.
pub fn without_policy(fixture: &Fixture<'_>, cast: &Cast) -> Result<()> {
    let path = Path::web(&cast.far, &cast.server);
    fixture.apply(DEFAULT_DENY)?;
    path.becomes_closed()?;
    check_rights(fixture, true)?;
    for kind in ["clusterrolebinding", "clusterrole"] {
        fixture.kubectl().sh(&format!("delete {kind} {ROLE}"))?;
    }
    fixture
        .kubectl()
        .apply(&without_policy_manifest(fixture)?)?;
    let since = Requests::now(fixture)?;
    agents::restart(fixture)?;
    path.becomes_open()?;
    check_rights(fixture, false)?;
    let table = fixture.cluster.node(&cast.node)?;
    let tables = table.sh("nft list tables")?;
    ensure!(
        !tables.contains("tweed-policy"),
        "with policy off there are {tables}"
    );
    since.check_none_of(&FOR_POLICY.map(|(_, resource)| resource))?;
    fixture.log("with policy off: no rules, no rights, no requests");

    restore(fixture)?;
    path.becomes_closed().context("policy is on again")?;
    fixture.sh("delete networkpolicies --all")?;
    Ok(())
}

/// What `kubectl kustomize` makes of the overlay.
fn without_policy_manifest(fixture: &Fixture<'_>) -> Result<String> {
    let folder = tempfile::tempdir()?;
    // kustomize refuses absolute paths.
    symlink(
        Programs::find()?.source().join("install"),
        folder.path().join("install"),
    )?;
    fs::write(folder.path().join("kustomization.yaml"), WITHOUT_POLICY)?;
    let words = ["kustomize".as_ref(), folder.path().as_os_str()];
    Ok(fixture.kubectl().run(words)?)
}

/// Checks whether the agents' account may list what only policy needs.
fn check_rights(fixture: &Fixture<'_>, expected: bool) -> Result<()> {
    for (group, resource) in FOR_POLICY {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "system:serviceaccount:kube-system:tweed",
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": { "verb": "list", "group": group, "resource": resource },
            },
        });
        let words = ["create", "--filename", "-", "--output", "json"];
        let answer = run_with(&mut fixture.kubectl().command(words), &review.to_string())?;
        let answer: Value = serde_json::from_str(&answer).context(answer)?;
        ensure!(
            answer["status"]["allowed"] == expected,
            "may the agents' account list {resource}: not {expected}, but {answer}"
        );
    }
    Ok(())
}
