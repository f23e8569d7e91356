//! Where agents run, and where they should. Pure.

use std::collections::BTreeMap;

use tweed_core::paths::DEFAULT_RUN_DIR;

use super::objects::{Container, ContainerStatus, NodeObject, PodObject};

/// The name of the agent's container.
const CONTAINER: &str = "agent";

/// A pod of tweed's DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its Node.
    pub node: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// The container of the agent.
    pub container: String,
    /// The agent's run folder in the container.
    pub run_dir: String,
    /// Whether its readiness probe succeeds.
    pub ready: bool,
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

/// The agents of these pods, one for each Node: the newest that is not on its way out.
pub fn agents(pods: Vec<PodObject>) -> Vec<Agent> {
    let mut newest: BTreeMap<String, PodObject> = BTreeMap::new();
    let age = |pod: &PodObject| {
        let stays = pod.metadata.deletion_timestamp.is_none();
        (stays, pod.metadata.creation_timestamp.clone())
    };
    for pod in pods {
        let node = pod.spec.node_name.clone();
        if newest.get(&node).is_none_or(|other| age(other) < age(&pod)) {
            newest.insert(node, pod);
        }
    }
    newest.into_values().map(agent).collect()
}

/// Each Node with its agent, and each agent without a Node, by name.
pub fn places(nodes: Vec<NodeObject>, agents: Vec<Agent>) -> Vec<Place> {
    let of_node = |node: NodeObject| {
        let unready = node.unready();
        let place = Place {
            node: node.metadata.name,
            unready,
            agent: None,
            pod_cidrs: node.spec.pod_cidrs,
        };
        (place.node.clone(), place)
    };
    let mut places: BTreeMap<String, Place> = nodes.into_iter().map(of_node).collect();
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

fn agent(pod: PodObject) -> Agent {
    let of_name = |one: &&Container| one.name == CONTAINER;
    let containers = &pod.spec.containers;
    let container = containers.iter().find(of_name).or(containers.first());
    let container = container.cloned().unwrap_or_default();
    let mut statuses = pod.status.container_statuses.iter();
    let status = statuses.find(|status| status.name == container.name);
    Agent {
        node: pod.spec.node_name.clone(),
        run_dir: run_dir(&container),
        ready: status.is_some_and(|status| status.ready),
        version: version(&container.image),
        down: down(&pod, status),
        container: container.name,
        namespace: pod.metadata.namespace,
        pod: pod.metadata.name,
    }
}

/// Why the container does not run.
fn down(pod: &PodObject, status: Option<&ContainerStatus>) -> Option<String> {
    let state = status.map(|status| &status.state);
    if state.is_some_and(|state| state.running.is_some()) {
        return None;
    }
    let reason = state.and_then(|state| state.waiting.as_ref().or(state.terminated.as_ref()));
    let (what, message) = match reason {
        Some(reason) => (&reason.reason, &reason.message),
        None => (&pod.status.phase, &pod.status.message),
    };
    let name = &pod.metadata.name;
    let more = if message.is_empty() { "" } else { ": " };
    Some(format!("pod {name} is {what}{more}{message}"))
}

/// The run folder of the agent, by the words and variables of its container.
fn run_dir(container: &Container) -> String {
    let mut words = container.command.iter().chain(&container.args);
    while let Some(word) = words.next() {
        match word.strip_prefix("--run-dir") {
            Some("") => return words.next().cloned().unwrap_or_default(),
            Some(rest) => return rest.trim_start_matches('=').to_owned(),
            None => {}
        }
    }
    let mut variables = container.env.iter();
    let variable = variables.find(|variable| variable.name == "TWEED_RUN_DIR");
    variable.map_or(DEFAULT_RUN_DIR.to_owned(), |found| found.value.clone())
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

    fn pod(node: &str, made: &str, state: Value) -> PodObject {
        let pod = json!({
            "metadata": { "name": format!("tweed-{made}"), "namespace": "kube-system", "creationTimestamp": made },
            "spec": { "nodeName": node, "containers": [
                { "name": "other", "image": "other:7" },
                { "name": "agent", "image": "registry:5000/tweed:0.1.0",
                  "command": ["/usr/bin/tweed-agent"], "args": ["--run-dir=/run/other"] },
            ] },
            "status": { "phase": "Running",
                "containerStatuses": [{ "name": "agent", "ready": true, "state": state }] },
        });
        serde_json::from_value(pod).unwrap()
    }

    fn running() -> Value {
        json!({ "running": { "startedAt": "2026-11-29T00:00:00Z" } })
    }

    #[test]
    fn an_agent_is_the_newest_pod_that_stays() {
        let mut leaving = pod("a", "3", running());
        leaving.metadata.deletion_timestamp = Some("4".to_owned());
        let found = agents(vec![
            pod("a", "1", running()),
            leaving,
            pod("a", "2", running()),
        ]);
        let agent = Agent {
            node: "a".to_owned(),
            namespace: "kube-system".to_owned(),
            pod: "tweed-2".to_owned(),
            container: "agent".to_owned(),
            run_dir: "/run/other".to_owned(),
            ready: true,
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
        let down = |state| agent(pod("a", "1", state)).down;
        assert_eq!(
            down(crash).unwrap(),
            "pod tweed-1 is CrashLoopBackOff: back-off 5m"
        );
        assert_eq!(down(ended).unwrap(), "pod tweed-1 is Error");
        let mut pending = pod("a", "1", json!({}));
        pending.status.phase = "Pending".to_owned();
        pending.status.container_statuses.clear();
        assert_eq!(agent(pending).down.unwrap(), "pod tweed-1 is Pending");
    }

    #[test]
    fn a_node_without_an_agent_and_an_agent_without_a_node_are_places_too() {
        let node = |name: &str, ready: &str| {
            let node = json!({
                "metadata": { "name": name },
                "spec": { "podCIDRs": ["10.244.0.0/24"] },
                "status": { "conditions": [{ "type": "Ready", "status": ready, "message": "so" }] },
            });
            serde_json::from_value::<NodeObject>(node).unwrap()
        };
        let agents = agents(vec![pod("b", "1", running()), pod("gone", "1", running())]);
        let places = places(vec![node("b", "True"), node("a", "Unknown")], agents);
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
        let of = |container: Value| run_dir(&serde_json::from_value(container).unwrap());
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
