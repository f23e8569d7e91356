//! An API server for any kind of object, in JSON over plain HTTP: whole lists, watches,
//! single objects, and the selection of pods by node and by namespace: what the agent, and
//! what clients of Go ask for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde_json::Value;
use tokio::sync::watch;
use tweed_lab::Netns;

use crate::http::{Answer, HttpServer, JSON, status, stream, whole};

/// A running server; it ends when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    http: HttpServer,
}

struct Shared {
    state: Mutex<State>,
    /// The number of events so far.
    events: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    /// Objects by the name of their collection, as it ends a path, and their key.
    objects: BTreeMap<(&'static str, String), Value>,
    log: Vec<Event>,
}

struct Event {
    kind: &'static str,
    collection: &'static str,
    object: Value,
}

/// Which objects of a collection a request is about.
struct Selection {
    /// `v1`, or `GROUP/VERSION`.
    api_version: String,
    collection: String,
    namespace: Option<String>,
    /// Of a single object.
    name: Option<String>,
    node: Option<String>,
}

/// The first version; events count from there.
const FIRST: usize = 1;

impl Server {
    /// Serves nothing yet on a port of the loopback address of `netns`.
    pub fn start(netns: &Netns) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            events: watch::Sender::new(0),
        });
        let answering = Arc::clone(&shared);
        let http = HttpServer::start(netns, None, move |request| {
            Arc::clone(&answering).answer(request)
        })?;
        Ok(Self { shared, http })
    }

    /// Where it listens, inside the namespace.
    pub fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// Adds or changes objects of a collection, all at once; gives the moment before
    /// watchers were woken.
    pub fn put(
        &self,
        collection: &'static str,
        objects: impl IntoIterator<Item = Value>,
    ) -> Instant {
        let mut state = self.shared.state();
        for mut object in objects {
            let version = FIRST + state.log.len() + 1;
            object["metadata"]["resourceVersion"] = version.to_string().into();
            let key = (collection, key(&object));
            let is_new = state.objects.insert(key, object.clone()).is_none();
            let kind = if is_new { "ADDED" } else { "MODIFIED" };
            state.log.push(Event {
                kind,
                collection,
                object,
            });
        }
        self.shared.wake(state)
    }

    /// Deletes an object; gives the moment before watchers were woken.
    pub fn delete(&self, collection: &'static str, object: &Value) -> Instant {
        let mut state = self.shared.state();
        if let Some(object) = state.objects.remove(&(collection, key(object))) {
            state.log.push(Event {
                kind: "DELETED",
                collection,
                object,
            });
        }
        self.shared.wake(state)
    }
}

fn text<'a>(object: &'a Value, part: &str, field: &str) -> &'a str {
    object[part][field].as_str().unwrap_or_default()
}

fn key(object: &Value) -> String {
    let of = |field| text(object, "metadata", field);
    format!("{}/{}", of("namespace"), of("name"))
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
        let (namespace, collection, name) = match rest {
            ["namespaces", namespace, collection] => (Some(*namespace), *collection, None),
            ["namespaces", namespace, collection, name] => {
                (Some(*namespace), *collection, Some(*name))
            }
            [collection, name] => (None, *collection, Some(*name)),
            // Without a collection it is about a group of the API, and there is nothing in it.
            _ => (None, rest.first().copied().unwrap_or_default(), None),
        };
        let node = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("fieldSelector=spec.nodeName"))
            .map(|rest| rest.trim_start_matches("%3D").trim_start_matches('='));
        Self {
            api_version,
            collection: collection.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            name: name.map(ToOwned::to_owned),
            node: node.map(ToOwned::to_owned),
        }
    }

    /// The kind of a list of this collection. Clients of Go read no other.
    fn list_kind(&self) -> &'static str {
        match self.collection.as_str() {
            "endpoints" => "EndpointsList",
            "namespaces" => "NamespaceList",
            "networkpolicies" => "NetworkPolicyList",
            "nodes" => "NodeList",
            "pods" => "PodList",
            "services" => "ServiceList",
            "endpointslices" => "EndpointSliceList",
            "servicecidrs" => "ServiceCIDRList",
            _ => "List",
        }
    }

    fn contains(&self, collection: &str, object: &Value) -> bool {
        let is =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|w| w == value);
        collection == self.collection
            && is(&self.namespace, text(object, "metadata", "namespace"))
            && is(&self.name, text(object, "metadata", "name"))
            && is(&self.node, text(object, "spec", "nodeName"))
    }
}

impl State {
    fn selected(&self, selection: &Selection) -> impl Iterator<Item = &Value> {
        let all = self.objects.iter();
        all.filter(|((collection, _), object)| selection.contains(collection, object))
            .map(|(_, object)| object)
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

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> hyper::Result<Answer> {
        let uri = request.uri().clone();
        let query = uri.query().unwrap_or_default();
        let selection = Selection::of(uri.path(), query);
        if request.method() != Method::GET {
            // Events and patches of the own Node: taken, and sent back.
            let body = request.into_body().collect().await?.to_bytes();
            return Ok(whole(StatusCode::OK, JSON, body));
        }
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find_map(|(key, value)| (key == name).then_some(value))
        };
        Ok(match value("watch") {
            // A server may not stream lists; then clients list.
            Some("true" | "1") if value("sendInitialEvents").is_some() => refuse_to_stream(),
            Some("true" | "1") => {
                let since = value("resourceVersion").and_then(|version| version.parse().ok());
                self.watch(selection, since.unwrap_or(FIRST))
            }
            _ if selection.name.is_some() => self.get(&selection),
            _ => self.list(&selection),
        })
    }

    fn get(&self, selection: &Selection) -> Answer {
        match self.state().selected(selection).next() {
            Some(object) => whole(StatusCode::OK, JSON, object.to_string()),
            None => status(StatusCode::NOT_FOUND, "NotFound", "no such object"),
        }
    }

    fn list(&self, selection: &Selection) -> Answer {
        let state = self.state();
        let items: Vec<&Value> = state.selected(selection).collect();
        let version = (FIRST + state.log.len()).to_string();
        let list = serde_json::json!({
            "kind": selection.list_kind(), "apiVersion": selection.api_version,
            "metadata": { "resourceVersion": version }, "items": items,
        });
        whole(StatusCode::OK, JSON, list.to_string())
    }

    fn watch(self: &Arc<Self>, selection: Selection, since: usize) -> Answer {
        let next = since.saturating_sub(FIRST);
        let start = (Arc::clone(self), self.events.subscribe(), selection, next);
        let frames =
            futures::stream::unfold(start, |(shared, mut events, selection, next)| async move {
                // The sender is part of `shared`.
                events.wait_for(|count| *count > next).await.ok()?;
                let (frame, next) = {
                    let state = shared.state();
                    let new = state.log.get(next..).unwrap_or_default();
                    let own = new
                        .iter()
                        .filter(|event| selection.contains(event.collection, &event.object));
                    let lines = own.map(|event| {
                        let Event { kind, object, .. } = event;
                        format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
                    });
                    (lines.collect::<String>(), state.log.len())
                };
                Some((Bytes::from(frame), (shared, events, selection, next)))
            });
        stream(JSON, frames)
    }
}

/// As a server without streamed lists answers (KEP-3157).
fn refuse_to_stream() -> Answer {
    let message = "sendInitialEvents is forbidden";
    status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_collection_and_sometimes_an_object() {
        let pods = "/api/v1/namespaces/bench/pods";
        for (path, version, namespace, collection, name) in [
            ("/api/v1/nodes", "v1", None, "nodes", None),
            ("/api/v1/nodes/n1", "v1", None, "nodes", Some("n1")),
            (pods, "v1", Some("bench"), "pods", None),
            (
                "/api/v1/namespaces/bench",
                "v1",
                None,
                "namespaces",
                Some("bench"),
            ),
            (
                "/apis/networking.k8s.io/v1/namespaces/bench/networkpolicies/p1",
                "networking.k8s.io/v1",
                Some("bench"),
                "networkpolicies",
                Some("p1"),
            ),
            (
                "/apis/discovery.k8s.io/v1",
                "discovery.k8s.io/v1",
                None,
                "",
                None,
            ),
            ("/version", "", None, "", None),
        ] {
            let selection = Selection::of(path, "");
            let found = (
                selection.api_version.as_str(),
                selection.namespace.as_deref(),
                selection.collection.as_str(),
                selection.name.as_deref(),
            );
            assert_eq!(found, (version, namespace, collection, name), "{path}");
        }
        let of_node = Selection::of(
            "/api/v1/pods",
            "fieldSelector=spec.nodeName%3Dn1&watch=true",
        );
        assert_eq!(of_node.node.as_deref(), Some("n1"));
    }
}
