//! The rights of an agent's token, tested with requests to the API server that use the
//! token of a pod of the DaemonSet.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Precondition, Scenario};
use crate::fixture::Fixture;

pub const SCENARIO: Scenario = Scenario {
    name: "rights",
    shows: "an agent's token can set NetworkUnavailable of its own Node, and change nothing else",
    precondition: Precondition::Ready,
    run,
};

/// Maximum time until the client's pod is Ready.
const POD_LIMIT: Duration = Duration::from_secs(180);

/// The Service `kubernetes`: the first address of the cluster's Services.
const API: &str = "https://10.96.0.1";

/// The pod of the client.
const CLIENT: &str = r"
apiVersion: v1
kind: Pod
metadata: { name: client }
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - { name: client, image: 'localhost/agnhost:lab', args: [pause] }
";

/// Changes that the agent must not make: a name and the patch.
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

fn run(fixture: &mut Fixture<'_>) -> anyhow::Result<()> {
    fixture.apply(CLIENT)?;
    fixture.wait_ready("client", POD_LIMIT)?;
    let (pod, own) = an_agent(fixture)?;
    let other = another_node(fixture, &own)?;
    let token = token(
        fixture,
        &[
            "--bound-object-kind=Pod",
            &format!("--bound-object-name={pod}"),
        ],
    )?;

    let condition = condition(fixture, &own)?;
    let answer = patch(fixture, &token, &own, &condition)?;
    ensure!(
        answer.allowed(),
        "the condition of its own Node is refused: {answer:?}"
    );
    let answer = patch(fixture, &token, &other, &condition)?;
    ensure!(
        answer.refused_by_policy(),
        "{other} with the token of {own}: {answer:?}"
    );
    for (what, change) in forbidden() {
        let answer = patch(fixture, &token, &own, &change)?;
        ensure!(answer.refused_by_policy(), "{what}: {answer:?}");
    }
    let of_no_node = self::token(fixture, &[])?;
    let answer = patch(fixture, &of_no_node, &own, &condition)?;
    ensure!(
        answer.refused_by_policy(),
        "a token without a node: {answer:?}"
    );

    for path in ["/api/v1/configmaps", "/api/v1/secrets", "/api/v1/services"] {
        let answer = ask(fixture, &token, path, &[])?;
        ensure!(answer.code == "403", "{path}: {answer:?}");
    }
    Ok(())
}

/// Name and node of a pod of the DaemonSet.
fn an_agent(fixture: &Fixture<'_>) -> anyhow::Result<(String, String)> {
    let pods = "pods --namespace kube-system --selector app.kubernetes.io/name=tweed";
    let pods = fixture.kubectl().list(pods)?;
    let pod = pods.first().context("no agent runs")?;
    let text = |pointer| pod.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").context("a pod without a name")?;
    let node = text("/spec/nodeName").context("the agent's pod is on no node")?;
    Ok((name.to_owned(), node.to_owned()))
}

fn another_node(fixture: &Fixture<'_>, own: &str) -> anyhow::Result<String> {
    let mut names = fixture.cluster.nodes().map(|node| node.name().to_owned());
    let other = names.find(|name| name != own);
    other.context("this needs two nodes")
}

/// A token of the agent's service account, bound by these flags.
fn token(fixture: &Fixture<'_>, flags: &[&str]) -> anyhow::Result<String> {
    let words = ["create", "token", "tweed", "--namespace", "kube-system"];
    let token = fixture.kubectl().run(words.iter().chain(flags))?;
    Ok(token.trim().to_owned())
}

/// A patch that sets NetworkUnavailable of a Node to its present value.
fn condition(fixture: &Fixture<'_>, node: &str) -> anyhow::Result<Value> {
    let node = fixture.kubectl().json(&format!("get node {node}"))?;
    let listed = node["status"]["conditions"].as_array();
    let mut conditions = listed.into_iter().flatten();
    let found = conditions.find(|one| one["type"] == "NetworkUnavailable");
    let ours = found.context("the agent has not set NetworkUnavailable")?;
    Ok(json!({ "status": { "conditions": [ours] } }))
}

/// The answer of the API server.
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

fn patch(fixture: &Fixture<'_>, token: &str, node: &str, change: &Value) -> anyhow::Result<Answer> {
    let path = format!("/api/v1/nodes/{node}/status");
    let kind = "Content-Type: application/strategic-merge-patch+json";
    let body = change.to_string();
    ask(
        fixture,
        token,
        &path,
        &["--request", "PATCH", "--header", kind, "--data", &body],
    )
}

/// Sends a request with this token to the API server, from a pod.
fn ask(fixture: &Fixture<'_>, token: &str, path: &str, more: &[&str]) -> anyhow::Result<Answer> {
    let url = format!("{API}{path}");
    let bearer = format!("Authorization: Bearer {token}");
    let mut words = vec!["curl", "--silent", "--insecure", "--max-time", "60"];
    words.extend(["--write-out", "\n%{http_code}", "--header", &bearer]);
    words.extend(more);
    words.push(&url);
    let text = fixture.exec("client", words)?;
    let (body, code) = text
        .rsplit_once('\n')
        .context("curl printed no status code")?;
    Ok(Answer {
        code: code.to_owned(),
        body: body.to_owned(),
    })
}
