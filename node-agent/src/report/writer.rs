//! Writes the condition and the Events of one node to an API server: a request
//! or two for each.

use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::plan::condition::{Condition, Found};
use super::plan::events::EventWrite;
use super::plan::policies::PolicyEvent;
use tweed_watch::client::{ApiClient, Failure, Request, timestamp_now};

/// The writer's name in `managedFields` and in Events.
const MANAGER: &str = "tweed-agent";
/// Events about objects without a namespace belong into the namespace default.
const EVENTS: &str = "/api/v1/namespaces/default/events";

const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// Writes for one node.
#[derive(Debug)]
pub(super) struct Writer {
    node_name: String,
    /// Path of the own Node.
    node_path: String,
    client: ApiClient,
}

/// The fields of a Node, and of a policy, that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Node {
    metadata: Metadata,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Found>,
}

/// The fields of an Event that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    count: i32,
}

impl Writer {
    pub(super) fn new(node_name: &str, client: ApiClient) -> Self {
        Self {
            node_name: node_name.to_owned(),
            node_path: format!("/api/v1/nodes/{node_name}"),
            client,
        }
    }

    /// Writes `condition` unless the own Node has it already, or is missing.
    /// Returns whether the network became available by it.
    pub(super) async fn write_condition(&self, condition: &Condition) -> Result<bool, Failure> {
        let Some(node) = self.own_node().await? else {
            return Ok(false);
        };
        let Some(write) = condition.to_write(&node.status.conditions, &timestamp_now()) else {
            return Ok(false);
        };
        let turned = write.get("lastTransitionTime").is_some();
        let path = format!("{}/status?fieldManager={MANAGER}", self.node_path);
        // Conditions are merged by type: those of others stay as they are.
        let patch = Request::StrategicMerge(json!({ "status": { "conditions": [write] } }));
        let _: Node = self.client.send(&path, patch).await?;
        tracing::info!(
            unavailable = condition.unavailable,
            reason = condition.reason,
            "the Node's condition NetworkUnavailable is written"
        );
        Ok(turned && !condition.unavailable)
    }

    /// The own Node; `None` if it is missing.
    async fn own_node(&self) -> Result<Option<Node>, Failure> {
        match self.client.send(&self.node_path, Request::Get).await {
            Err(failure) if failure.is_answer(NOT_FOUND) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Writes an Event on the own Node and returns its count. `uid` is that of
    /// the Node, or empty if it is not known.
    pub(super) async fn write_event(&self, event: &EventWrite, uid: &str) -> Result<i32, Failure> {
        let uid = &match uid {
            // Before the first list of Nodes.
            "" => {
                let node = self.own_node().await?;
                node.map_or_else(|| self.node_name.clone(), |node| node.metadata.uid)
            }
            uid => uid.to_owned(),
        };
        let name = event_name(&self.node_name, uid, &event.reason);
        if event.count.is_some() {
            match self.patch_event(&name, event).await {
                // It has expired at the API server.
                Err(failure) if failure.is_answer(NOT_FOUND) => {}
                answer => return answer,
            }
        }
        match self.create_event(&name, event, uid).await {
            // An earlier run of the agent wrote it.
            Err(failure) if failure.is_answer(CONFLICT) => self.patch_event(&name, event).await,
            answer => answer,
        }
    }

    async fn create_event(
        &self,
        name: &str,
        event: &EventWrite,
        uid: &str,
    ) -> Result<i32, Failure> {
        let now = timestamp_now();
        // The Node's own UID, as controllers set it, and not its name, as the
        // kubelet does (`kubectl describe node` asks for both): a Node that is
        // created again under the same name does not inherit old Events.
        let object = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": "default" },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Node", "name": self.node_name, "uid": uid,
            },
            "type": if event.warning { "Warning" } else { "Normal" },
            "reason": event.reason,
            "message": event.message,
            "count": event.count.unwrap_or(1),
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": { "component": MANAGER, "host": self.node_name },
            "reportingComponent": MANAGER,
            "reportingInstance": self.node_name,
        });
        let created: Event = self.client.send(EVENTS, Request::Create(object)).await?;
        Ok(created.count)
    }

    async fn patch_event(&self, name: &str, event: &EventWrite) -> Result<i32, Failure> {
        let mut fields = json!({ "message": event.message, "lastTimestamp": timestamp_now() });
        if let Some(count) = event.count {
            fields["count"] = json!(count);
        }
        let path = format!("{EVENTS}/{name}?fieldManager={MANAGER}");
        let patched: Event = self.client.send(&path, Request::Merge(fields)).await?;
        Ok(patched.count)
    }
}

impl Writer {
    /// Writes an Event on a policy, unless another node has written it already.
    pub(super) async fn write_policy_event(&self, event: &PolicyEvent) -> Result<(), Failure> {
        let PolicyEvent {
            kind,
            namespace,
            name,
            ..
        } = event;
        let (api, path) = match namespace.as_str() {
            "" => (
                "policy.networking.k8s.io/v1alpha2",
                format!("clusternetworkpolicies/{name}"),
            ),
            namespace => (
                "networking.k8s.io/v1",
                format!("namespaces/{namespace}/networkpolicies/{name}"),
            ),
        };
        let policy: Node = match self
            .client
            .send(&format!("/apis/{api}/{path}"), Request::Get)
            .await
        {
            // Deleted meanwhile.
            Err(failure) if failure.is_answer(NOT_FOUND) => return Ok(()),
            answer => answer?,
        };
        let uid = policy.metadata.uid;
        let key = format!("{kind} {namespace} {} {}", event.reason, event.message);
        let now = timestamp_now();
        let within = match namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let mut regarding = json!({"apiVersion": api, "kind": kind, "name": name, "uid": uid});
        if !namespace.is_empty() {
            regarding["namespace"] = json!(namespace);
        }
        let object = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": event_name(name, &uid, &key), "namespace": within },
            "involvedObject": regarding,
            "type": "Warning",
            "reason": event.reason,
            "message": event.message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": { "component": MANAGER },
            "reportingComponent": MANAGER,
            "reportingInstance": self.node_name,
        });
        let path = format!("/api/v1/namespaces/{within}/events");
        match self
            .client
            .send::<Event>(&path, Request::Create(object))
            .await
        {
            Err(failure) if !failure.is_answer(CONFLICT) => Err(failure),
            _ => Ok(()),
        }
    }
}

/// The name of the Event with `reason` on the object `node` with `uid`. It is the
/// same after a restart of the agent, which so finds the Event that exists.
fn event_name(node: &str, uid: &str, reason: &str) -> String {
    /// Maximum part of the Node's name, in characters: an object's name may have
    /// 253.
    const MAX_NODE: usize = 200;
    let mut hash = Sha256::new();
    for part in [node, uid, reason] {
        hash.update(part);
        hash.update([0]);
    }
    let digest = hash.finalize();
    let digest: String = (digest.iter().take(8))
        .map(|b| format!("{b:02x}"))
        .collect();
    let node: String = node.chars().take(MAX_NODE).collect();
    let node = node.trim_end_matches(['.', '-']);
    format!("{node}.{digest}")
}

#[cfg(test)]
mod tests {
    use super::event_name;

    #[test]
    fn the_name_of_an_event_depends_on_its_reason_and_fits() {
        let name = event_name;
        assert_eq!(name("n1", "u", "NoPodCidr"), name("n1", "u", "NoPodCidr"));
        assert_ne!(name("n1", "u", "NoPodCidr"), name("n1", "v", "NoPodCidr"));
        assert_ne!(name("n1", "u", "NoPodCidr"), name("n1", "u", "Nftables"));
        assert!(name("n1", "u", "NoPodCidr").starts_with("n1."));
        assert_eq!(name(&"n".repeat(253), "u", "r").len(), 217);
        let dotted = name(&format!("{}.{}", "n".repeat(199), "m"), "u", "r");
        assert!(!dotted.contains(".."), "{dotted}");
    }
}
