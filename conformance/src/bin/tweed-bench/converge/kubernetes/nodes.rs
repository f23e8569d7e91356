//! What the bench asks of the API server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use anyhow::Context;
use serde_json::{Value, json};
use tweed_lab::Netns;

use super::client::{Client, JSON, Request, Way};
use crate::converge::fleet::FleetNode;
use crate::converge::http::PROTOBUF;
use crate::converge::wire::envelope;

/// All Nodes.
pub const NODES: &str = "/api/v1/nodes";
/// Nodes in a page, as tweed-agent asks for them.
pub const PAGE: usize = 250;

const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";
/// Nodes are created by so many at once.
const CREATORS: usize = 4;
/// Between two lines on how far that has come.
const TOLD: usize = 1000;

/// What a Node is created by. It keeps its status: the kubelet registers its
/// Node with one, too.
pub fn creation(node: &FleetNode) -> Vec<u8> {
    let mut node = node.clone();
    node.version = 0;
    envelope("Node", &node.protobuf())
}

/// Creates all of these, on several connections.
pub fn create_all(
    way: &Way,
    netns: &Netns,
    nodes: &[FleetNode],
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..CREATORS {
            let (tell, next) = (tell.clone(), &next);
            scope.spawn(move || {
                let mut client = way.connect(netns);
                while let Some(node) = nodes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let created = match &mut client {
                        Ok(client) => create(client, &creation(node)),
                        Err(error) => Err(anyhow::anyhow!("{error:#}")),
                    };
                    let failed = created.is_err();
                    // Nobody listens after the first failure.
                    if tell.send(created).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(tell);
        for (created, count) in told.into_iter().zip(1..) {
            created?;
            if count % TOLD == 0 {
                say(&format!("  {count} of {} Nodes are created", nodes.len()));
            }
        }
        Ok(())
    })
}

/// Creates the Node of this [`creation`].
pub fn create(client: &mut Client, creation: &[u8]) -> anyhow::Result<()> {
    let request = Request {
        method: "POST",
        // As which it goes on in `managedFields`.
        target: "/api/v1/nodes?fieldManager=kubelet",
        accept: PROTOBUF,
        body: Some((PROTOBUF, creation)),
    };
    client.ask(&request)?.drain()?;
    Ok(())
}

/// Deletes a Node.
pub fn delete(client: &mut Client, name: &str) -> anyhow::Result<()> {
    let target = format!("{NODES}/{name}");
    let request = Request {
        method: "DELETE",
        ..Request::get(&target)
    };
    client.ask(&request)?.drain()?;
    Ok(())
}

/// Tells that a Node lives, as its kubelet does.
pub fn beat(client: &mut Client, node: &FleetNode) -> anyhow::Result<()> {
    let patch = node.status_patch();
    let target = format!("{NODES}/{}/status?fieldManager=kubelet", node.name);
    let request = Request {
        method: "PATCH",
        body: Some((STRATEGIC_MERGE, patch.as_bytes())),
        ..Request::get(&target)
    };
    client.ask(&request)?.drain()?;
    Ok(())
}

/// Reads what is there, as JSON.
pub fn look(client: &mut Client, target: &str) -> anyhow::Result<Value> {
    let request = Request {
        accept: JSON,
        ..Request::get(target)
    };
    let body = client.ask(&request)?.whole()?;
    serde_json::from_slice(&body).with_context(|| target.to_owned())
}

/// The version to watch Nodes from.
pub fn version(client: &mut Client) -> anyhow::Result<String> {
    let list = look(client, "/api/v1/nodes?limit=1")?;
    let version = list["metadata"]["resourceVersion"].as_str();
    Ok(version.context("a list without a version")?.to_owned())
}

/// What an agent may do: flannel's patches its own Node too. As JSON.
pub fn rights(user: &str) -> String {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": user},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
            {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [role, binding]}).to_string()
}
