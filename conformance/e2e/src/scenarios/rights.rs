//! What an agent's token is good for, asked of the API server with the token
//! that a pod of the DaemonSet has.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Begins, Scenario};
use crate::stage::Stage;

pub const SCENARIO: Scenario = Scenario {
    name: "rights",
    shows: "an agent's token sets NetworkUnavailable of its own Node, and nothing else of any",
    begins: Begins::Ready,
    run,
};

const POD_LIMIT: Duration = Duration::from_secs(180);

/// The Service `kubernetes`: the first address of the cluster's Services.
const API: &str = "https://10.96.0.1";

/// A pod to ask from.
const CLIENT: &str = r"
apiVersion: v1
kind: Pod
metadata: { name: client }
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - { name: client, image: 'localhost/agnhost:lab', args: [pause] }
";

/// What the agent never writes: a name for it, and the patch.
fn forbidden() -> [(&'static str, Value); 6] {
    [
        (
            "another condition",
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }),
        ),
        (
            "an address",
            json!({ "status": { "addresses": [{ "type": "ExternalIP", "address": "198.51.100.7" }] } }),
        ),
        (
            "a capacity",
            json!({ "status": { "capacity": { "cpu": "99" } } }),
        ),
        (
            "a label",
            json!({ "metadata": { "labels": { "tweed-e2e": "x" } } }),
        ),
        (
            "an annotation",
            json!({ "metadata": { "annotations": { "tweed-e2e": "x" } } }),
        ),
        (
            "a finalizer",
            json!({ "metadata": { "finalizers": ["tweed.e2e/x"] } }),
        ),
    ]
}

fn run(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.apply(CLIENT)?;
    stage.wait_ready("client", POD_LIMIT)?;
    let (pod, own) = an_agent(stage)?;
    let other = another_node(stage, &own)?;
    let token = token(
        stage,
        &[
            "--bound-object-kind=Pod",
            &format!("--bound-object-name={pod}"),
        ],
    )?;

    let condition = condition(stage, &own)?;
    let answer = patch(stage, &token, &own, &condition)?;
    ensure!(answer.allowed(), "its own condition is refused: {answer:?}");
    let answer = patch(stage, &token, &other, &condition)?;
    ensure!(answer.refused_by_policy(), "{other} by {own}: {answer:?}");
    for (what, change) in forbidden() {
        let answer = patch(stage, &token, &own, &change)?;
        ensure!(answer.refused_by_policy(), "{what}: {answer:?}");
    }
    let of_no_node = self::token(stage, &[])?;
    let answer = patch(stage, &of_no_node, &own, &condition)?;
    ensure!(answer.refused_by_policy(), "a token of no node: {answer:?}");

    for path in ["/api/v1/pods", "/api/v1/secrets", "/api/v1/services"] {
        let answer = ask(stage, &token, path, &[])?;
        ensure!(answer.code == "403", "{path}: {answer:?}");
    }
    Ok(())
}

/// A pod of the DaemonSet, and its node.
fn an_agent(stage: &Stage<'_>) -> anyhow::Result<(String, String)> {
    let pods = "pods --namespace kube-system --selector app.kubernetes.io/name=tweed";
    let pods = stage.kubectl().list(pods)?;
    let pod = pods.first().context("no agent runs")?;
    let text = |pointer| pod.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").context("a pod without a name")?;
    let node = text("/spec/nodeName").context("the agent's pod is on no node")?;
    Ok((name.to_owned(), node.to_owned()))
}

fn another_node(stage: &Stage<'_>, own: &str) -> anyhow::Result<String> {
    let mut names = stage.cluster.nodes().map(|node| node.name().to_owned());
    let other = names.find(|name| name != own);
    other.context("one node is not enough for this")
}

/// A token of the agent's account, bound as these flags say.
fn token(stage: &Stage<'_>, flags: &[&str]) -> anyhow::Result<String> {
    let words = ["create", "token", "tweed", "--namespace", "kube-system"];
    let token = stage.kubectl().run(words.iter().chain(flags))?;
    Ok(token.trim().to_owned())
}

/// The condition of a Node as it is, as a patch: so that it stays.
fn condition(stage: &Stage<'_>, node: &str) -> anyhow::Result<Value> {
    let node = stage.kubectl().json(&format!("get node {node}"))?;
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let ours =
        conditions.and_then(|all| all.iter().find(|one| one["type"] == "NetworkUnavailable"));
    let ours = ours.context("the agent has not set NetworkUnavailable")?;
    Ok(json!({ "status": { "conditions": [ours] } }))
}

/// What the API server answered.
#[derive(Debug)]
struct Answer {
    code: String,
    body: String,
}

impl Answer {
    fn allowed(&self) -> bool {
        self.code == "200"
    }

    fn refused_by_policy(&self) -> bool {
        self.code == "403"
            && self
                .body
                .contains("ValidatingAdmissionPolicy 'tweed-own-node'")
    }
}

fn patch(stage: &Stage<'_>, token: &str, node: &str, change: &Value) -> anyhow::Result<Answer> {
    let path = format!("/api/v1/nodes/{node}/status");
    let kind = "Content-Type: application/strategic-merge-patch+json";
    let change = change.to_string();
    ask(
        stage,
        token,
        &path,
        &["--request", "PATCH", "--header", kind, "--data", &change],
    )
}

/// Asks the API server from a pod, with this token.
fn ask(stage: &Stage<'_>, token: &str, path: &str, more: &[&str]) -> anyhow::Result<Answer> {
    let url = format!("{API}{path}");
    let bearer = format!("Authorization: Bearer {token}");
    let mut words = vec!["curl", "--silent", "--insecure", "--max-time", "10"];
    words.extend(["--write-out", "\n%{http_code}", "--header", &bearer]);
    words.extend(more);
    words.push(&url);
    let text = stage.exec("client", words)?;
    let (body, code) = text.rsplit_once('\n').context("curl told no code")?;
    Ok(Answer {
        code: code.to_owned(),
        body: body.to_owned(),
    })
}
