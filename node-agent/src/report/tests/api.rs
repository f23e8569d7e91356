//! A small API server: one Node's conditions, Events, and what was asked of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

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

pub(super) struct Api {
    pub address: SocketAddr,
    held: Arc<Mutex<Held>>,
    asked: watch::Receiver<Vec<String>>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    held: Arc<Mutex<Held>>,
    ask: Arc<watch::Sender<Vec<String>>>,
}

impl Api {
    pub(super) async fn start(held: Held) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, held)
    }

    pub(super) fn on(listener: TcpListener, held: Held) -> Self {
        let address = listener.local_addr().unwrap();
        let held = Arc::new(Mutex::new(held));
        let (ask, asked) = watch::channel(Vec::new());
        let shared = Shared {
            held: Arc::clone(&held),
            ask: Arc::new(ask),
        };
        let app = Router::new().fallback(serve).with_state(shared);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            held,
            asked,
            task,
        }
    }

    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap()
    }

    /// The first `count` requests, once there are so many: method and path.
    pub(super) async fn asked(&mut self, count: usize) -> Vec<String> {
        let enough = self.asked.wait_for(|asked| asked.len() >= count);
        let asked = tokio::time::timeout(super::STUCK, enough).await;
        asked.expect("that many requests").unwrap()[..count].to_vec()
    }

    /// How many requests there were.
    pub(super) fn count(&self) -> usize {
        self.asked.borrow().len()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.map_or("", |kind| kind.to_str().unwrap());
    let answer = shared
        .held
        .lock()
        .unwrap()
        .answer(&method, uri.path(), kind, &body);
    let answer = answer.unwrap_or_else(|code| {
        let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"});
        (code, status)
    });
    // Last, so that a test that waits for it finds all of it done.
    let asked = format!("{method} {}", uri.path());
    shared.ask.send_modify(|all| all.push(asked));
    let code = StatusCode::from_u16(answer.0).unwrap();
    (code, answer.1.to_string())
}

impl Held {
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
