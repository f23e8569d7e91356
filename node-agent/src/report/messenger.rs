//! Says things to an API server: a request or two for each.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::core::request::Error as RequestError;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::condition::{Condition, Found};
use super::ledger::Telling;
use tweed_watch::api::{Access, Failure, Server};

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(30);
/// Who writes, for the Node's `managedFields` and for Events.
const MANAGER: &str = "tweed-agent";
/// Where Events about objects without a namespace have to be.
const NAMESPACE: &str = "default";

const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// Speaks for one node.
#[derive(Debug)]
pub(super) struct Messenger {
    node_name: String,
    access: Access,
    /// Made when it is needed, and made anew when the credentials do not hold.
    server: Option<Server>,
}

/// What is read of a Node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeSeen {
    metadata: MetadataSeen,
    status: StatusSeen,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetadataSeen {
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusSeen {
    conditions: Vec<Found>,
}

/// What is read of an Event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EventSeen {
    count: i32,
}

impl Messenger {
    pub(super) fn new(node_name: &str, access: Access) -> Self {
        Self {
            node_name: node_name.to_owned(),
            access,
            server: None,
        }
    }

    /// Sees to it that the own Node has `condition`. Says whether the network
    /// counted as down, or as unknown, and is up from now on. A Node that is not
    /// there has nothing to agree to.
    pub(super) async fn agree(&mut self, condition: &Condition) -> Result<bool, Failure> {
        let Some(node) = self.own_node().await? else {
            return Ok(false);
        };
        let Some(write) = condition.to_write(&node.status.conditions, Timestamp::now()) else {
            return Ok(false);
        };
        let turned = write.last_transition_time.is_some();
        // Merged by type: the other conditions stay whose they are.
        let patch = Patch::Strategic(json!({ "status": { "conditions": [write] } }));
        let patch = nodes().patch_subresource("status", &self.node_name, &by_us(), &patch);
        let _: NodeSeen = self.ask(patch).await?;
        tracing::info!(
            unavailable = condition.unavailable,
            reason = condition.reason,
            "the Node's condition NetworkUnavailable is written"
        );
        Ok(turned && !condition.unavailable)
    }

    /// The own Node; none if it is not there.
    async fn own_node(&mut self) -> Result<Option<NodeSeen>, Failure> {
        let get = nodes().get(&self.node_name, &GetParams::default());
        match self.ask(get).await {
            Err(failure) if failure.is_answer(NOT_FOUND) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Writes an Event on the own Node, and gives its count. `uid` is the Node's,
    /// empty if it is not known.
    pub(super) async fn tell(&mut self, telling: &Telling, uid: &str) -> Result<i32, Failure> {
        let uid = &match uid {
            // Before the first list of Nodes.
            "" => {
                let node = self.own_node().await?;
                node.map_or_else(|| self.node_name.clone(), |node| node.metadata.uid)
            }
            uid => uid.to_owned(),
        };
        let name = event_name(&self.node_name, uid, &telling.reason);
        if telling.count.is_some() {
            match self.patch_event(&name, telling).await {
                // The API server has forgotten it.
                Err(failure) if failure.is_answer(NOT_FOUND) => {}
                answer => return answer,
            }
        }
        match self.create_event(&name, telling, uid).await {
            // An earlier run of the agent has written it.
            Err(failure) if failure.is_answer(CONFLICT) => self.patch_event(&name, telling).await,
            answer => answer,
        }
    }

    async fn create_event(
        &mut self,
        name: &str,
        telling: &Telling,
        uid: &str,
    ) -> Result<i32, Failure> {
        let now = Time(Timestamp::now());
        let node = self.node_name.clone();
        // The Node's own UID, as controllers do, and not its name, as the kubelet
        // does (`kubectl describe node` asks for both): a Node that is made again
        // under the same name does not inherit what was wrong with the other.
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(node.clone()),
                uid: Some(uid.to_owned()),
                ..ObjectReference::default()
            },
            type_: Some(if telling.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(telling.reason.clone()),
            message: Some(telling.message.clone()),
            count: Some(telling.count.unwrap_or(1)),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource {
                component: Some(MANAGER.to_owned()),
                host: Some(node.clone()),
            }),
            reporting_component: Some(MANAGER.to_owned()),
            reporting_instance: Some(node),
            ..Event::default()
        };
        let create = (serde_json::to_vec(&event).map_err(RequestError::SerializeBody))
            .and_then(|body| events().create(&PostParams::default(), body));
        let event: EventSeen = self.ask(create).await?;
        Ok(event.count)
    }

    async fn patch_event(&mut self, name: &str, telling: &Telling) -> Result<i32, Failure> {
        let mut news = json!({
            "message": telling.message,
            "lastTimestamp": Time(Timestamp::now()),
        });
        if let Some(count) = telling.count {
            news["count"] = json!(count);
        }
        let patch = events().patch(name, &by_us(), &Patch::Merge(news));
        let event: EventSeen = self.ask(patch).await?;
        Ok(event.count)
    }

    /// Sends a request and reads what is wanted of the answer.
    async fn ask<T: for<'a> Deserialize<'a>>(
        &mut self,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<T, Failure> {
        let request = request.map_err(|error| Failure::request(&error))?;
        let Server { client, url } = self.server().await?;
        let answer = tokio::time::timeout(ANSWER, client.request_text(request)).await;
        let failure = match answer {
            Ok(Ok(text)) => {
                return serde_json::from_str(&text).map_err(|e| Failure::garbage(&url, &e));
            }
            Ok(Err(error)) => Failure::answer(&url, &error),
            Err(_) => Failure::silent(&url, ANSWER),
        };
        if !matches!(
            failure,
            Failure::Answered { .. } | Failure::Forbidden { .. }
        ) {
            // Credentials and addresses change under a name.
            self.server = None;
        }
        Err(failure)
    }

    async fn server(&mut self) -> Result<Server, Failure> {
        if let Some(server) = &self.server {
            return Ok(server.clone());
        }
        let server = self.access.connect().await?;
        Ok(self.server.insert(server).clone())
    }
}

fn nodes() -> Request {
    Request::new("/api/v1/nodes")
}

fn events() -> Request {
    Request::new(format!("/api/v1/namespaces/{NAMESPACE}/events"))
}

fn by_us() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// The same for the same reason on the same Node, so that a restart of the agent
/// finds the Event that stands already.
fn event_name(node: &str, uid: &str, reason: &str) -> String {
    /// A name may have 253 characters.
    const ROOM: usize = 200;
    let mut hash = Sha256::new();
    for part in [node, uid, reason] {
        hash.update(part);
        hash.update([0]);
    }
    let digest: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|b| format!("{b:02x}"))
        .collect();
    let node: String = node.chars().take(ROOM).collect();
    let node = node.trim_end_matches(['.', '-']);
    format!("{node}.{digest}")
}

#[cfg(test)]
mod tests {
    use super::event_name;

    #[test]
    fn an_event_s_name_is_that_of_its_reason_and_fits() {
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
