//! Where agents run, and where they should: what Nodes and pods say, as far as it is needed.
//! Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use tweed_core::paths::DEFAULT_RUN_DIR;

/// The name of the agent's container.
pub(super) const CONTAINER: &str = "agent";

/// A pod of tweed's DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its Node.
    pub node: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// The agent's run folder in the container.
    pub run_dir: String,
    /// Whether its readiness probe succeeds.
    pub ready: bool,
    /// Since when it does, or does not; empty if nobody says.
    pub since: String,
    /// The tag of its image.
    pub version: String,
    /// Why the container does not run; none if it does.
    pub down: Option<String>,
}

/// A Node, an agent, or mostly both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The Node's name.
    pub node: String,
    /// Why the Node is not well, as Kubernetes says; none if it is.
    pub unready: Option<String>,
    /// Its agent.
    pub agent: Option<Agent>,
    /// The Node's pod CIDRs.
    pub pod_cidrs: Vec<String>,
}

/// The text at this place of an object; empty if there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The agents of these pods, one for each Node: the newest that is not on its way out.
pub(super) fn agents(pods: &[Value]) -> Vec<Agent> {
    let mut newest: BTreeMap<&str, &Value> = BTreeMap::new();
    let age = |pod: &Value| {
        let stays = pod.pointer("/metadata/deletionTimestamp").is_none();
        (stays, text(pod, "/metadata/creationTimestamp").to_owned())
    };
    for pod in pods {
        let node = text(pod, "/spec/nodeName");
        if newest.get(node).is_none_or(|other| age(other) < age(pod)) {
            newest.insert(node, pod);
        }
    }
    newest.into_values().map(agent).collect()
}

/// Each Node with its agent, and each agent without a Node, by name.
pub(super) fn places(nodes: &[Value], agents: Vec<Agent>) -> Vec<Place> {
    let of_node = |node: &Value| {
        let cidrs = items(node, "/spec/podCIDRs").filter_map(Value::as_str);
        let place = Place {
            node: text(node, "/metadata/name").to_owned(),
            unready: unready(node),
            agent: None,
            pod_cidrs: cidrs.map(ToOwned::to_owned).collect(),
        };
        (place.node.clone(), place)
    };
    let mut places: BTreeMap<String, Place> = nodes.iter().map(of_node).collect();
    for agent in agents {
        // A pod that waits for a Node has the name of none.
        let place = places.entry(agent.node.clone()).or_insert_with(|| Place {
            node: agent.node.clone(),
            unready: Some("there is no such Node any more".to_owned()),
            agent: None,
            pod_cidrs: Vec::new(),
        });
        place.agent = Some(agent);
    }
    places.into_values().collect()
}

/// Why the kubelet does not count as ready.
fn unready(node: &Value) -> Option<String> {
    let mut conditions = items(node, "/status/conditions");
    let Some(ready) = conditions.find(|one| one["type"] == "Ready") else {
        return Some("it has no condition Ready".to_owned());
    };
    let (status, message) = (text(ready, "/status"), text(ready, "/message"));
    (status != "True").then(|| format!("Ready is {status}: {message}"))
}

fn agent(pod: &Value) -> Agent {
    let find = |pointer: &str, key: &str, value: &str| {
        let mut items = items(pod, pointer);
        items.find(|one| one[key] == value).unwrap_or(&Value::Null)
    };
    let container = find("/spec/containers", "name", CONTAINER);
    let condition = find("/status/conditions", "type", "Ready");
    let status = find("/status/containerStatuses", "name", CONTAINER);
    Agent {
        node: text(pod, "/spec/nodeName").to_owned(),
        namespace: text(pod, "/metadata/namespace").to_owned(),
        pod: text(pod, "/metadata/name").to_owned(),
        run_dir: run_dir(container),
        ready: status["ready"] == true,
        since: text(condition, "/lastTransitionTime").to_owned(),
        version: version(text(container, "/image")),
        down: down(pod, &status["state"]),
    }
}

/// Why the container with this state does not run.
fn down(pod: &Value, state: &Value) -> Option<String> {
    if state.get("running").is_some() {
        return None;
    }
    let reason = state.get("waiting").or(state.get("terminated"));
    let (what, message) = match reason {
        Some(reason) => (text(reason, "/reason"), text(reason, "/message")),
        None => (text(pod, "/status/phase"), text(pod, "/status/message")),
    };
    let name = text(pod, "/metadata/name");
    let more = if message.is_empty() { "" } else { ": " };
    Some(format!("pod {name} is {what}{more}{message}"))
}

/// The run folder of the agent, by the words and variables of its container.
fn run_dir(container: &Value) -> String {
    let listed = items(container, "/command").chain(items(container, "/args"));
    let mut words = listed.filter_map(Value::as_str);
    while let Some(word) = words.next() {
        match word.strip_prefix("--run-dir") {
            Some("") => return words.next().unwrap_or_default().to_owned(),
            Some(rest) => return rest.trim_start_matches('=').to_owned(),
            None => {}
        }
    }
    let variable = items(container, "/env").find(|one| one["name"] == "TWEED_RUN_DIR");
    let value = variable.map_or(DEFAULT_RUN_DIR, |one| text(one, "/value"));
    value.to_owned()
}

/// The tag of an image; without one, the first digits of its digest.
fn version(image: &str) -> String {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag.to_owned(),
        None if digest.is_empty() => "latest".to_owned(),
        None => digest.chars().take(19).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(node: &str, made: &str, state: Value) -> Value {
        json!({
            "metadata": { "name": format!("tweed-{made}"), "namespace": "kube-system", "creationTimestamp": made },
            "spec": { "nodeName": node, "containers": [
                { "name": "other", "image": "other:7" },
                { "name": "agent", "image": "registry:5000/tweed:0.1.0",
                  "command": ["/usr/bin/tweed-agent"], "args": ["--run-dir=/run/other"] },
            ] },
            "status": { "phase": "Running",
                "conditions": [{ "type": "Ready", "lastTransitionTime": "2026-11-30T01:00:00Z" }],
                "containerStatuses": [{ "name": "agent", "ready": true, "state": state }] },
        })
    }

    fn running() -> Value {
        json!({ "running": { "startedAt": "2026-11-29T00:00:00Z" } })
    }

    #[test]
    fn an_agent_is_the_newest_pod_that_stays() {
        let mut leaving = pod("a", "3", running());
        leaving["metadata"]["deletionTimestamp"] = "4".into();
        let found = agents(&[pod("a", "1", running()), leaving, pod("a", "2", running())]);
        let agent = Agent {
            node: "a".to_owned(),
            namespace: "kube-system".to_owned(),
            pod: "tweed-2".to_owned(),
            run_dir: "/run/other".to_owned(),
            ready: true,
            since: "2026-11-30T01:00:00Z".to_owned(),
            version: "0.1.0".to_owned(),
            down: None,
        };
        assert_eq!(found, [agent]);
    }

    #[test]
    fn a_container_that_does_not_run_says_why() {
        let crash =
            json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 5m" } });
        let ended = json!({ "terminated": { "reason": "Error" } });
        let down = |state| agent(&pod("a", "1", state)).down;
        assert_eq!(
            down(crash).unwrap(),
            "pod tweed-1 is CrashLoopBackOff: back-off 5m"
        );
        assert_eq!(down(ended).unwrap(), "pod tweed-1 is Error");
        let mut pending = pod("a", "1", json!({}));
        pending["status"] = json!({ "phase": "Pending" });
        assert_eq!(agent(&pending).down.unwrap(), "pod tweed-1 is Pending");
    }

    #[test]
    fn a_node_without_an_agent_and_an_agent_without_a_node_are_places_too() {
        let node = |name: &str, ready: &str| {
            json!({
                "metadata": { "name": name },
                "spec": { "podCIDRs": ["10.244.0.0/24"] },
                "status": { "conditions": [{ "type": "Ready", "status": ready, "message": "so" }] },
            })
        };
        let agents = agents(&[pod("b", "1", running()), pod("gone", "1", running())]);
        let places = places(&[node("b", "True"), node("a", "Unknown")], agents);
        let found = places.iter().map(|place| {
            let unready = place.unready.as_deref().unwrap_or("well");
            (place.node.as_str(), unready, place.agent.is_some())
        });
        let expected = [
            ("a", "Ready is Unknown: so", false),
            ("b", "well", true),
            ("gone", "there is no such Node any more", true),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_run_folder_is_that_of_the_agents_flags() {
        let of = |container: Value| run_dir(&container);
        let variable = json!([{ "name": "TWEED_RUN_DIR", "value": "/run/v" }]);
        assert_eq!(of(json!({})), "/run/tweed");
        assert_eq!(of(json!({ "env": variable })), "/run/v");
        let args = ["--run-dir", "/run/f"];
        assert_eq!(of(json!({ "env": variable, "args": args })), "/run/f");
    }

    #[test]
    fn a_version_is_the_tag_or_the_digest() {
        for (image, expected) in [
            ("localhost/tweed:0.1.0", "0.1.0"),
            ("registry:5000/tweed", "latest"),
            ("tweed@sha256:0123456789abcdef0123", "sha256:0123456789ab"),
            ("tweed:1@sha256:0123", "1"),
        ] {
            assert_eq!(version(image), expected, "{image}");
        }
    }
}
