//! An API server for Nodes alone: lists in pages, watches, JSON and protobuf, over
//! TLS.
//!
//! It answers as kube-apiserver does what an agent asks for, from bytes that are
//! ready beforehand: what is measured is the agent, not the server. All Nodes of a
//! list in pages are not of one moment here; what changes meanwhile comes with the
//! watch, from the version of the first page on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::ACCEPT;
use hyper::{Method, Request, StatusCode};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tweed_lab::Netns;

use super::fleet::{Encoded, FleetNode};
use super::protobuf;
use crate::http::{Answer, HttpServer, JSON, status, stream, whole};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What the server shows of itself.
#[derive(Clone)]
pub struct Identity {
    acceptor: TlsAcceptor,
    /// The certificate that a client has to trust.
    pub certificate: String,
}

impl Identity {
    /// A new key and its certificate for 127.0.0.1.
    pub fn new() -> anyhow::Result<Self> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).context("a certificate")?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            certificate: cert.pem(),
        })
    }
}

/// The encodings that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// JSON, and protobuf to those who ask for it.
    Both,
    /// JSON, whatever is asked for.
    Json,
}

/// A running server; it ends when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    http: HttpServer,
}

struct Shared {
    state: Mutex<State>,
    /// The number of events so far.
    events: watch::Sender<usize>,
    speaks: Speaks,
}

struct State {
    nodes: BTreeMap<String, (FleetNode, Encoded)>,
    /// The version of the first list.
    first: usize,
    /// An event for each version after that, in both encodings.
    log: Vec<Encoded>,
}

impl Server {
    /// Serves `nodes` on a port of the loopback address of `netns`.
    pub fn start(
        netns: &Netns,
        identity: &Identity,
        speaks: Speaks,
        nodes: impl IntoIterator<Item = (FleetNode, Encoded)>,
    ) -> anyhow::Result<Self> {
        let nodes = nodes.into_iter().map(|node| (node.0.name.clone(), node));
        let nodes: BTreeMap<_, _> = nodes.collect();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                first: 1 + nodes.len(),
                nodes,
                log: Vec::new(),
            }),
            events: watch::Sender::new(0),
            speaks,
        });
        let answering = Arc::clone(&shared);
        let tls = identity.acceptor.clone();
        let http = HttpServer::start(netns, Some(tls), move |request| {
            Arc::clone(&answering).answer(request)
        })?;
        Ok(Self { shared, http })
    }

    /// Where it listens, inside the namespace.
    pub fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// Adds or changes a Node; gives the moment before watchers were woken.
    pub fn put(&self, mut node: FleetNode) -> Instant {
        let next = self.shared.state().version() + 1;
        node.version = next;
        // Before the clock starts.
        let encoded = node.encode();
        let event = |kind| protobuf::watch_event(kind, &encoded);
        let events = [event("ADDED"), event("MODIFIED")];
        let start = Instant::now();
        let mut state = self.shared.state();
        let entry = (node.clone(), encoded);
        let is_new = state.nodes.insert(node.name, entry).is_none();
        let [added, modified] = events;
        self.shared
            .push(state, if is_new { added } else { modified });
        start
    }

    /// Whether somebody watches the Nodes.
    pub fn is_watched(&self) -> bool {
        self.shared.events.receiver_count() > 0
    }

    /// Deletes a Node.
    pub fn delete(&self, name: &str) {
        let mut state = self.shared.state();
        if let Some((_, node)) = state.nodes.remove(name) {
            let event = protobuf::watch_event("DELETED", &node);
            self.shared.push(state, event);
        }
    }
}

impl State {
    fn version(&self) -> usize {
        self.first + self.log.len()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, mut state: MutexGuard<'_, State>, event: Encoded) {
        state.log.push(event);
        let events = state.log.len();
        drop(state);
        self.events.send_replace(events);
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> hyper::Result<Answer> {
        let accept = request.headers().get(ACCEPT);
        let accept = accept.map_or(&[][..], |accept| accept.as_bytes());
        let protobuf = self.speaks == Speaks::Both && accept.starts_with(PROTOBUF.as_bytes());
        let uri = request.uri().clone();
        let query = uri.query().unwrap_or_default().split('&');
        let query: BTreeMap<&str, &str> = query.filter_map(|pair| pair.split_once('=')).collect();
        Ok(match (request.method(), uri.path()) {
            (&Method::GET, "/api/v1/nodes") if query.contains_key("watch") => {
                self.watch(&query, protobuf)
            }
            (&Method::GET, "/api/v1/nodes") => self.list(&query, protobuf),
            (&Method::GET, path) => match self.node(path) {
                Some(json) => whole(StatusCode::OK, JSON, json),
                None => status(StatusCode::NOT_FOUND, "NotFound", "NotFound"),
            },
            // Events and patches of the own Node: taken, and sent back.
            _ => {
                let body = request.into_body().collect().await?.to_bytes();
                whole(StatusCode::OK, JSON, body)
            }
        })
    }

    fn node(&self, path: &str) -> Option<Bytes> {
        let name = path.strip_prefix("/api/v1/nodes/")?;
        let state = self.state();
        state.nodes.get(name).map(|(_, node)| node.json.clone())
    }

    fn list(&self, query: &BTreeMap<&str, &str>, protobuf: bool) -> Answer {
        // Any version will do: then a real server answers from its cache, whole.
        let cached = query.get("resourceVersion") == Some(&"0");
        let limit = query.get("limit").and_then(|limit| limit.parse().ok());
        let limit: usize = limit.filter(|_| !cached).unwrap_or(usize::MAX);
        let state = self.state();
        // A token is the version of the first page and the last name.
        let token = query
            .get("continue")
            .and_then(|token| token.split_once('_'));
        let version = token.and_then(|(version, _)| version.parse().ok());
        let version = version.unwrap_or_else(|| state.version());
        let after = token.map_or(Bound::Unbounded, |(_, name)| Bound::Excluded(name));
        let mut rest = state.nodes.range::<str, _>((after, Bound::Unbounded));
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let more = rest.next().is_some();
        let last = page.last().filter(|_| more).map(|(name, _)| name);
        let token = last.map_or_else(String::new, |name| format!("{version}_{name}"));
        let items = page.into_iter().map(|(_, (_, encoded))| encoded);
        if protobuf {
            let items = items.map(|node| node.protobuf.clone()).collect();
            let list = protobuf::node_list(&version.to_string(), &token, items);
            return whole(StatusCode::OK, PROTOBUF, list);
        }
        let mut json = format!(
            r#"{{"kind":"NodeList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":["#
        )
        .into_bytes();
        for (at, node) in items.enumerate() {
            json.extend_from_slice(if at > 0 { b"," } else { b"" });
            json.extend_from_slice(&node.json);
        }
        json.extend_from_slice(b"]}\n");
        whole(StatusCode::OK, JSON, json)
    }

    fn watch(self: &Arc<Self>, query: &BTreeMap<&str, &str>, protobuf: bool) -> Answer {
        let since = query.get("resourceVersion").and_then(|v| v.parse().ok());
        let since: usize = since.unwrap_or_default();
        let Some(next) = since.checked_sub(self.state().first) else {
            return status(StatusCode::GONE, "Expired", "Expired");
        };
        let start = (Arc::clone(self), self.events.subscribe(), next);
        let frames = futures::stream::unfold(start, move |(shared, mut events, next)| async move {
            // The sender is part of `shared`.
            events.wait_for(|count| *count > next).await.ok()?;
            let (frame, next) = {
                let state = shared.state();
                let new = state.log.get(next..).unwrap_or_default();
                let encoding = |event: &Encoded| match protobuf {
                    true => event.protobuf.clone(),
                    false => event.json.clone(),
                };
                let frame: Vec<Bytes> = new.iter().map(encoding).collect();
                (frame.concat(), state.log.len())
            };
            Some((Bytes::from(frame), (shared, events, next)))
        });
        let kind = match protobuf {
            true => "application/vnd.kubernetes.protobuf;stream=watch",
            false => JSON,
        };
        stream(kind, frames)
    }
}
