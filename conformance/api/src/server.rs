//! The server: what is asked for, and who is told of changes.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tweed_lab::{Node, realtime};

use crate::encoding::{Object, Page};
use crate::port::{Identity, Port};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The collection of Nodes, as it ends a path.
pub const NODES: &str = "nodes";

/// What a server has, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    /// All kinds of objects, in JSON and over plain HTTP.
    All,
    /// Nodes alone, over TLS: in JSON, and in protobuf to those who ask for it.
    Nodes,
    /// Nodes alone, over TLS, in JSON whatever is asked for.
    NodesAsJson,
}

/// A running server; it ends when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    certificate: Option<String>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// The number of events so far.
    events: watch::Sender<usize>,
    serves: Serves,
}

#[derive(Default)]
struct State {
    /// By collection, namespace and name, as [`key`] writes them.
    objects: BTreeMap<String, Arc<Object>>,
    log: Vec<Event>,
}

struct Event {
    kind: &'static str,
    key: String,
    object: Arc<Object>,
}

/// The first version; events count from there.
const FIRST: usize = 1;

/// No name of Kubernetes has a `_`.
fn key(collection: &str, namespace: &str, name: &str) -> String {
    format!("{collection}_{namespace}_{name}")
}

impl Server {
    /// Serves objects of these collections on a port of the loopback address of `node`.
    pub fn start(
        node: &Node,
        serves: Serves,
        identity: Option<&Identity>,
        objects: impl IntoIterator<Item = (&'static str, Arc<Object>)>,
    ) -> anyhow::Result<Self> {
        let keyed = objects.into_iter().map(|(collection, object)| {
            let key = key(collection, &object.namespace, &object.name);
            (key, object)
        });
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                objects: keyed.collect(),
                log: Vec::new(),
            }),
            events: watch::Sender::new(0),
            serves,
        });
        let listener = (node.netns())
            .enter(|| std::net::TcpListener::bind("127.0.0.1:0"))?
            .context("the API server's port")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("a runtime")?;
        let tls = identity.map(|identity| identity.acceptor.clone());
        let answering = Arc::clone(&shared);
        let answer = move |method, uri, headers, body| {
            let shared = Arc::clone(&answering);
            async move { shared.answer(&method, &uri, &headers, body) }
        };
        let work = async move {
            let listener = TcpListener::from_std(listener)?;
            axum::serve(Port { listener, tls }, Router::new().fallback(answer)).await
        };
        // One thread answers all. When it ends, so do its connections.
        let thread = realtime::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    _ = work => {}
                }
            });
        })?;
        Ok(Self {
            shared,
            address,
            certificate: identity.map(|identity| identity.certificate.clone()),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Writes a kubeconfig by which programs on the node reach it.
    pub fn kubeconfig(&self, node: &Node) -> anyhow::Result<PathBuf> {
        let mut cluster = json!({ "server": format!("http://{}", self.address) });
        if let Some(certificate) = &self.certificate {
            let authority = node.folder().join("ca.pem");
            fs::write(&authority, certificate).context("the certificate")?;
            let server = format!("https://{}", self.address);
            cluster = json!({ "server": server, "certificate-authority": authority });
        }
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "contexts": [{ "name": "bench", "context": { "cluster": "bench", "user": "bench" } }],
            "clusters": [{ "name": "bench", "cluster": cluster }],
            "users": [{ "name": "bench", "user": { "token": "bench" } }],
        });
        let path = node.folder().join("kubeconfig");
        fs::write(&path, text.to_string()).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Adds or changes objects of a collection, all at once; gives the moment before
    /// watchers were woken.
    pub fn put(&self, collection: &str, objects: impl IntoIterator<Item = Value>) -> Instant {
        let mut state = self.shared.state();
        for mut object in objects {
            let version = state.version() + 1;
            object["metadata"]["resourceVersion"] = version.to_string().into();
            let object = Arc::new(Object::new(&object));
            let key = key(collection, &object.namespace, &object.name);
            let old = state.objects.insert(key.clone(), Arc::clone(&object));
            let kind = if old.is_none() { "ADDED" } else { "MODIFIED" };
            state.log.push(Event { kind, key, object });
        }
        self.shared.wake(state)
    }

    /// Deletes an object; gives the moment before watchers were woken.
    pub fn delete(&self, collection: &str, namespace: &str, name: &str) -> Instant {
        let mut state = self.shared.state();
        let key = key(collection, namespace, name);
        if let Some(object) = state.objects.remove(&key) {
            let kind = "DELETED";
            state.log.push(Event { kind, key, object });
        }
        self.shared.wake(state)
    }

    /// Whether somebody watches.
    pub fn is_watched(&self) -> bool {
        self.shared.events.receiver_count() > 0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An open listener would keep the whole namespace. The thread may have
        // ended by itself.
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Which objects a request is about.
#[derive(Debug, PartialEq)]
struct Selection {
    /// `v1`, or `GROUP/VERSION`.
    api_version: String,
    collection: String,
    /// How their keys begin; of a single object the whole key.
    start: String,
    is_single: bool,
    /// Only those of this node.
    node: Option<String>,
}

impl Selection {
    /// From the path and the query of a request.
    fn of(path: &str, query: &str) -> Self {
        let parts: Vec<&str> = path.split('/').collect();
        let (api_version, rest) = match parts.as_slice() {
            ["", "apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest),
            ["", _, version, rest @ ..] => ((*version).to_owned(), rest),
            _ => (String::new(), &[][..]),
        };
        let (collection, start, is_single) = match *rest {
            ["namespaces", namespace, collection] => {
                (collection, key(collection, namespace, ""), false)
            }
            ["namespaces", namespace, collection, name] => {
                (collection, key(collection, namespace, name), true)
            }
            [collection, name] => (collection, key(collection, "", name), true),
            [collection] => (collection, format!("{collection}_"), false),
            // It is about a group of the API, and there is nothing in it.
            _ => ("", "_".to_owned(), false),
        };
        let node = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("fieldSelector=spec.nodeName"))
            .map(|rest| rest.trim_start_matches("%3D").trim_start_matches('='));
        Self {
            api_version,
            collection: collection.to_owned(),
            start,
            is_single,
            node: node.map(ToOwned::to_owned),
        }
    }

    /// The kind of a list of this collection. Clients of Go read no other.
    fn list_kind(&self) -> &'static str {
        match self.collection.as_str() {
            "endpoints" => "EndpointsList",
            "namespaces" => "NamespaceList",
            "networkpolicies" => "NetworkPolicyList",
            NODES => "NodeList",
            "pods" => "PodList",
            "services" => "ServiceList",
            "endpointslices" => "EndpointSliceList",
            "servicecidrs" => "ServiceCIDRList",
            _ => "List",
        }
    }

    fn contains(&self, key: &str, object: &Object) -> bool {
        key.starts_with(&self.start) && self.node.as_ref().is_none_or(|node| *node == object.node)
    }
}

impl State {
    fn version(&self) -> usize {
        FIRST + self.log.len()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, state: MutexGuard<'_, State>) -> Instant {
        let events = state.log.len();
        let moment = Instant::now();
        drop(state);
        self.events.send_replace(events);
        moment
    }

    fn answer(
        self: Arc<Self>,
        method: &Method,
        uri: &Uri,
        head: &HeaderMap,
        body: Bytes,
    ) -> Response {
        let query = uri.query().unwrap_or_default();
        let selection = Selection::of(uri.path(), query);
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let query: BTreeMap<&str, &str> = pairs.collect();
        if method != Method::GET {
            // Events and patches of the own Node: taken, and sent back.
            return whole(StatusCode::OK, JSON, body);
        }
        if self.serves != Serves::All && selection.collection != NODES {
            return refusal(StatusCode::NOT_FOUND, "NotFound");
        }
        let asked = head.get(ACCEPT).map_or(&[][..], |accept| accept.as_bytes());
        let protobuf = self.serves == Serves::Nodes && asked.starts_with(PROTOBUF.as_bytes());
        match query.get("watch") {
            // A server may not stream lists (KEP-3157); then clients list.
            Some(&"true" | &"1") if query.contains_key("sendInitialEvents") => {
                refusal(StatusCode::UNPROCESSABLE_ENTITY, "Invalid")
            }
            Some(&"true" | &"1") => {
                let since = query.get("resourceVersion").and_then(|v| v.parse().ok());
                let next = since.unwrap_or(FIRST).saturating_sub(FIRST);
                self.watch(selection, next, protobuf)
            }
            _ if selection.is_single => match self.state().objects.get(&selection.start) {
                Some(object) => whole(StatusCode::OK, JSON, object.json()),
                None => refusal(StatusCode::NOT_FOUND, "NotFound"),
            },
            _ => self.list(&selection, &query, protobuf),
        }
    }

    /// What changes between the pages comes with the watch, from the version of the first on.
    fn list(
        &self,
        selection: &Selection,
        query: &BTreeMap<&str, &str>,
        protobuf: bool,
    ) -> Response {
        // Any version will do: then a real server answers from its cache, whole.
        let cached = query.get("resourceVersion") == Some(&"0");
        let asked = query.get("limit").and_then(|limit| limit.parse().ok());
        let limit: usize = asked.filter(|_| !cached).unwrap_or(usize::MAX);
        let state = self.state();
        // A token is the version of the first page and the last key.
        let token = query
            .get("continue")
            .and_then(|token| token.split_once('_'));
        let version = token.map_or_else(|| state.version().to_string(), |(v, _)| v.to_owned());
        let after = match token {
            None => Bound::Included(selection.start.as_str()),
            Some((_, key)) => Bound::Excluded(key),
        };
        let rest = state.objects.range::<str, _>((after, Bound::Unbounded));
        let mut own = rest
            .take_while(|(key, _)| key.starts_with(&selection.start))
            .filter(|(key, object)| selection.contains(key, object));
        let page: Vec<_> = own.by_ref().take(limit).collect();
        let last = page.last().filter(|_| own.next().is_some());
        let page = Page {
            kind: selection.list_kind(),
            api_version: &selection.api_version,
            token: &last.map_or_else(String::new, |(key, _)| format!("{version}_{key}")),
            version: &version,
            items: page.iter().map(|(_, object)| &***object).collect(),
        };
        if protobuf {
            whole(StatusCode::OK, PROTOBUF, page.protobuf())
        } else {
            whole(StatusCode::OK, JSON, page.json())
        }
    }

    fn watch(self: Arc<Self>, selection: Selection, next: usize, protobuf: bool) -> Response {
        let events = self.events.subscribe();
        let start = (self, events, selection, next);
        let frames =
            futures::stream::unfold(start, move |(shared, mut events, selection, next)| {
                async move {
                    // The sender is part of `shared`.
                    events.wait_for(|count| *count > next).await.ok()?;
                    let (frame, next) = {
                        let state = shared.state();
                        let new = state.log.get(next..).unwrap_or_default().iter();
                        let own = new.filter(|event| selection.contains(&event.key, &event.object));
                        let events = own.map(|event| event.object.event(event.kind, protobuf));
                        (events.collect::<Vec<_>>().concat(), state.log.len())
                    };
                    Some((
                        Ok::<_, axum::Error>(frame),
                        (shared, events, selection, next),
                    ))
                }
            });
        let kind = if protobuf {
            "application/vnd.kubernetes.protobuf;stream=watch"
        } else {
            JSON
        };
        whole(StatusCode::OK, kind, Body::from_stream(frames))
    }
}

fn whole(code: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    (code, [(CONTENT_TYPE, kind)], body.into()).into_response()
}

/// A refusal as the API writes one.
fn refusal(code: StatusCode, reason: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason,
        "reason": reason, "code": code.as_u16(),
    });
    whole(code, JSON, status.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_collection_and_sometimes_an_object() {
        let policies = "/apis/networking.k8s.io/v1/namespaces/bench/networkpolicies/p1";
        for (path, version, start, is_single) in [
            ("/api/v1/nodes", "v1", "nodes_", false),
            ("/api/v1/nodes/n1", "v1", "nodes__n1", true),
            ("/api/v1/namespaces/bench/pods", "v1", "pods_bench_", false),
            ("/api/v1/namespaces/bench", "v1", "namespaces__bench", true),
            (
                policies,
                "networking.k8s.io/v1",
                "networkpolicies_bench_p1",
                true,
            ),
            (
                "/apis/discovery.k8s.io/v1",
                "discovery.k8s.io/v1",
                "_",
                false,
            ),
            ("/version", "", "_", false),
        ] {
            let Selection {
                api_version,
                start: found,
                is_single: single,
                ..
            } = Selection::of(path, "");
            let found = (api_version.as_str(), found.as_str(), single);
            assert_eq!(found, (version, start, is_single), "{path}");
        }
        let of_node = Selection::of(
            "/api/v1/pods",
            "fieldSelector=spec.nodeName%3Dn1&watch=true",
        );
        assert_eq!(of_node.node.as_deref(), Some("n1"));
    }
}
