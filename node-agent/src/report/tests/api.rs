//! What the API server of these tests holds: one Node's conditions, and Events.

use std::collections::BTreeMap;

use axum::http::Method;
use serde_json::{Value, json};

use crate::testing::Answers;

/// What the server holds.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The Node's conditions; none if there is no Node.
    pub conditions: Option<Vec<Value>>,
    pub events: BTreeMap<String, Value>,
    /// Answered to whatever concerns Events.
    pub refuse_events: Option<u16>,
    /// Answered to whatever concerns Events in this namespace.
    pub refuse_events_in: Option<(String, u16)>,
}

impl Answers for Held {
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> Result<(u16, Value), u16> {
        const EVENTS: &str = "/api/v1/namespaces/default/events";
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if path.starts_with(EVENTS)
            && let Some(code) = self.refuse_events
        {
            return Err(code);
        }
        if let Some((namespace, code)) = &self.refuse_events_in
            && path.starts_with(&format!("/api/v1/namespaces/{namespace}/events"))
        {
            return Err(*code);
        }
        match (method.as_str(), path, kind) {
            ("GET", "/api/v1/nodes/n1", _) => {}
            ("GET", path, _) if path.starts_with("/apis/") => {
                let policy = json!({"metadata": {"uid": format!("uid of {path}")}});
                return Ok((200, policy));
            }
            ("PATCH", "/api/v1/nodes/n1/status", "application/strategic-merge-patch+json") => {
                let conditions = self.conditions.as_mut().ok_or(404_u16)?;
                for change in body["status"]["conditions"].as_array().unwrap() {
                    let known = conditions.iter_mut().find(|c| c["type"] == change["type"]);
                    match known {
                        Some(known) => merge(known, change),
                        None => conditions.push(change.clone()),
                    }
                }
            }
            ("POST", EVENTS | "/api/v1/namespaces/shop/events", "application/json") => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                if self.events.contains_key(&name) {
                    return Err(409);
                }
                self.events.insert(name, body.clone());
                return Ok((201, body));
            }
            ("PATCH", path, "application/merge-patch+json") => {
                let name = path.strip_prefix(EVENTS).and_then(|p| p.strip_prefix('/'));
                let event = self.events.get_mut(name.unwrap()).ok_or(404_u16)?;
                merge(event, &body);
                return Ok((200, event.clone()));
            }
            other => panic!("{other:?}"),
        }
        let conditions = self.conditions.as_ref().ok_or(404_u16)?;
        let node = json!({"metadata": {"uid": "uid-1"}, "status": {"conditions": conditions}});
        Ok((200, node))
    }
}

fn merge(object: &mut Value, change: &Value) {
    for (key, value) in change.as_object().unwrap() {
        object[key] = value.clone();
    }
}
