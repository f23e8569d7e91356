//! Writes the condition and the Events of one node to an API server: a request
//! or two for each.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::condition::Condition;
use super::events::EventWrite;
use super::problems::Subject;
use tweed_core::text::hex;
use tweed_watch::client::{ApiClient, Failure, Request, timestamp_now};

/// The writer's name in `managedFields` and in Events.
const MANAGER: &str = "tweed-agent";

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

/// What an Event is about, and where the Event is.
struct Involved {
    object: Value,
    namespace: String,
    /// The Event's name.
    event: String,
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
        let Some(node) = self.get(&self.node_path).await? else {
            return Ok(false);
        };
        let Some(write) = condition.to_write(&node["status"]["conditions"], &timestamp_now())
        else {
            return Ok(false);
        };
        let turned = write.get("lastTransitionTime").is_some();
        let path = format!("{}/status?fieldManager={MANAGER}", self.node_path);
        // Conditions are merged by type: those of others stay as they are.
        let patch = Request::StrategicMerge(json!({ "status": { "conditions": [write] } }));
        let _: Value = self.client.send(&path, patch).await?;
        tracing::info!(
            unavailable = condition.unavailable,
            reason = condition.reason,
            "the Node's condition NetworkUnavailable is written"
        );
        Ok(turned && !condition.unavailable)
    }

    /// Writes an Event and returns its count. `uid` is that of the own Node, or empty if it is
    /// not known.
    pub(super) async fn write_event(&self, event: &EventWrite, uid: &str) -> Result<i32, Failure> {
        let Some(involved) = self.involved(event, uid).await? else {
            return Ok(0);
        };
        if event.count.is_some() {
            match self.patch_event(&involved, event).await {
                // It has expired at the API server.
                Err(failure) if failure.is_answer(NOT_FOUND) => {}
                answer => return answer,
            }
        }
        match self.create_event(&involved, event).await {
            Err(failure) if failure.is_answer(CONFLICT) => match event.subject {
                // An earlier run of the agent wrote it.
                Subject::Node => self.patch_event(&involved, event).await,
                // Another node wrote it.
                Subject::Policy { .. } => Ok(1),
            },
            answer => answer,
        }
    }

    /// The object of `event`, with its UID; `None` if it was deleted meanwhile.
    async fn involved(&self, event: &EventWrite, uid: &str) -> Result<Option<Involved>, Failure> {
        let (api, kind, namespace, name) = match &event.subject {
            Subject::Node => ("v1", "Node", "", &self.node_name),
            Subject::Policy {
                kind,
                namespace,
                name,
            } if namespace.is_empty() => ("policy.networking.k8s.io/v1alpha2", &**kind, "", name),
            Subject::Policy {
                kind,
                namespace,
                name,
            } => ("networking.k8s.io/v1", &**kind, &**namespace, name),
        };
        let (uid, text) = if event.subject != Subject::Node {
            let path = if namespace.is_empty() {
                format!("/apis/{api}/clusternetworkpolicies/{name}")
            } else {
                format!("/apis/{api}/namespaces/{namespace}/networkpolicies/{name}")
            };
            let Some(policy) = self.get(&path).await? else {
                return Ok(None);
            };
            let text = format!("{kind} {namespace} {} {}", event.reason, event.message);
            (uid_of(&policy), text)
        } else if uid.is_empty() {
            // Before the first list of Nodes.
            let node = self.get(&self.node_path).await?;
            let uid = node.map_or_else(|| name.clone(), |node| uid_of(&node));
            (uid, event.reason.to_owned())
        } else {
            (uid.to_owned(), event.reason.to_owned())
        };
        // The Node's own UID, as controllers set it, and not its name, as the
        // kubelet does (`kubectl describe node` asks for both): a Node that is
        // created again under the same name does not inherit old Events.
        let mut object = json!({ "apiVersion": api, "kind": kind, "name": name, "uid": uid });
        if !namespace.is_empty() {
            object["namespace"] = json!(namespace);
        }
        Ok(Some(Involved {
            object,
            // Events about objects without a namespace belong into the namespace default.
            namespace: if namespace.is_empty() {
                "default".to_owned()
            } else {
                namespace.to_owned()
            },
            event: event_name(name, &uid, &text),
        }))
    }

    async fn create_event(&self, involved: &Involved, event: &EventWrite) -> Result<i32, Failure> {
        let now = timestamp_now();
        let object = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": involved.event, "namespace": involved.namespace },
            "involvedObject": involved.object,
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
        let path = format!("/api/v1/namespaces/{}/events", involved.namespace);
        let created = self.client.send(&path, Request::Create(object)).await?;
        Ok(count_of(&created))
    }

    async fn patch_event(&self, involved: &Involved, event: &EventWrite) -> Result<i32, Failure> {
        let mut fields = json!({ "message": event.message, "lastTimestamp": timestamp_now() });
        if let Some(count) = event.count {
            fields["count"] = json!(count);
        }
        let Involved {
            namespace, event, ..
        } = involved;
        let path = format!("/api/v1/namespaces/{namespace}/events/{event}?fieldManager={MANAGER}");
        let patched = self.client.send(&path, Request::Merge(fields)).await?;
        Ok(count_of(&patched))
    }

    /// The object at `path`; `None` if it is missing.
    async fn get(&self, path: &str) -> Result<Option<Value>, Failure> {
        match self.client.send(path, Request::Get).await {
            Err(failure) if failure.is_answer(NOT_FOUND) => Ok(None),
            answer => answer.map(Some),
        }
    }
}

fn uid_of(object: &Value) -> String {
    let uid = object["metadata"]["uid"].as_str();
    uid.unwrap_or_default().to_owned()
}

fn count_of(event: &Value) -> i32 {
    let count = event["count"].as_i64();
    count.and_then(|count| count.try_into().ok()).unwrap_or(0)
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
    let digest = hex(&hash.finalize()[..8]);
    let start: String = node.chars().take(MAX_NODE).collect();
    let prefix = start.trim_end_matches(['.', '-']);
    format!("{prefix}.{digest}")
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
