//! An API server for Nodes alone: lists in pages, watches, both encodings, TLS.
//!
//! It answers as `kube-apiserver` does what the agent asks for, with the bytes
//! ready beforehand: what is measured is who asks, not who answers. A list in
//! pages is none of a single moment here; what changes meanwhile comes with the
//! watch, from the version of the first page on.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Bound;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::socket::{Shutdown, shutdown};
use tweed_lab::Netns;

use super::fleet::{Encoded, FleetNode};
use super::http::{Asked, Chunks, PIECE, not_found, whole};
use super::tls::{Identity, Stream};
use super::wire::{Message, around, header, watch_frame};
use crate::first::spawn_first;

/// Between two bookmarks of a quiet watch.
const BOOKMARK: Duration = Duration::from_secs(60);

/// The encodings that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// JSON, and protobuf to those who ask for it.
    Both,
    /// JSON, whatever is asked for.
    Json,
}

/// A server; it serves until it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    listener: Arc<TcpListener>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    ended: AtomicBool,
    speaks: Speaks,
    identity: Identity,
    requests: AtomicU64,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, (FleetNode, Arc<Encoded>)>,
    version: u64,
    /// What happened since `first`, in order.
    log: Vec<Event>,
    first: u64,
}

#[derive(Clone)]
struct Event {
    kind: &'static str,
    node: Arc<Encoded>,
}

impl State {
    fn push(&mut self, kind: &'static str, node: Arc<Encoded>) {
        self.log.push(Event { kind, node });
    }
}

impl Server {
    /// Serves `nodes` on a port of `netns`' loopback address.
    pub fn start(
        netns: &Netns,
        identity: &Identity,
        speaks: Speaks,
        nodes: &[(FleetNode, Arc<Encoded>)],
    ) -> anyhow::Result<Self> {
        let listener = netns
            .enter(|| TcpListener::bind("127.0.0.1:0"))?
            .context("the API server's port")?;
        let address = listener.local_addr()?;
        let nodes: BTreeMap<_, _> = nodes
            .iter()
            .map(|(node, encoded)| (node.name.clone(), (node.clone(), Arc::clone(encoded))))
            .collect();
        let version = 1 + nodes.len() as u64;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                nodes,
                version,
                first: version,
                ..State::default()
            }),
            changed: Condvar::new(),
            ended: AtomicBool::new(false),
            speaks,
            identity: identity.clone(),
            requests: AtomicU64::new(0),
        });
        let listener = Arc::new(listener);
        let (serving, listening) = (Arc::clone(&shared), Arc::clone(&listener));
        // And with it the threads that answer.
        let accepting = spawn_first(move || {
            for connection in listening.incoming() {
                if serving.ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(connection) = connection else { continue };
                let shared = Arc::clone(&serving);
                // A client that goes away ends its thread with an error.
                thread::spawn(move || shared.serve(connection));
            }
        })?;
        Ok(Self {
            shared,
            listener,
            address,
            accepting: Some(accepting),
        })
    }

    /// Where it listens, inside the namespace.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests it has had.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// A Node joins or changes; gives the moment at which it was told.
    pub fn put(&self, mut node: FleetNode) -> Instant {
        let next = self.shared.state().version + 1;
        node.version = next;
        // Before the clock starts.
        let encoded = Arc::new(node.encode());
        let told = Instant::now();
        let mut state = self.shared.state();
        let entry = (node.clone(), Arc::clone(&encoded));
        let old = state.nodes.insert(node.name, entry);
        state.version = next;
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        state.push(kind, encoded);
        drop(state);
        self.shared.changed.notify_all();
        told
    }

    /// A Node leaves; gives the moment at which it was told.
    pub fn remove(&self, name: &str) -> Instant {
        let told = Instant::now();
        let mut state = self.shared.state();
        if let Some((_, encoded)) = state.nodes.remove(name) {
            state.version += 1;
            state.push("DELETED", encoded);
        }
        drop(state);
        self.shared.changed.notify_all();
        told
    }

    /// The Nodes as they are.
    pub fn nodes(&self) -> Vec<FleetNode> {
        let state = self.shared.state();
        state.nodes.values().map(|(node, _)| node.clone()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        // It ends the wait for the next client. An open listener would keep the
        // whole namespace, with all that is in its kernel tables.
        let ended = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        if let Some(accepting) = self.accepting.take().filter(|_| ended.is_ok()) {
            // It has nothing to say.
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, connection: TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let mut stream = BufReader::with_capacity(PIECE, self.identity.accept(connection)?);
        while let Some(asked) = Asked::read(&mut stream)? {
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.answer(&asked, stream.get_mut())?;
        }
        Ok(())
    }

    fn answer(&self, asked: &Asked, out: &mut Stream) -> io::Result<()> {
        let protobuf = asked.accepts_protobuf && self.speaks == Speaks::Both;
        match (asked.method.as_str(), asked.path.as_str()) {
            ("GET", "/api/v1/nodes") if asked.query.contains_key("watch") => {
                self.watch(asked, protobuf, out)
            }
            ("GET", "/api/v1/nodes") => self.list(asked, protobuf, out),
            // Events and patches of the own Node: taken, and said back.
            ("POST" | "PATCH" | "PUT", _) => whole(out, "200 OK", &asked.body),
            ("GET", path) => match self.node(path) {
                Some(node) => whole(out, "200 OK", &node.json),
                None => not_found(out),
            },
            _ => not_found(out),
        }
    }

    /// The Node that such a path names.
    fn node(&self, path: &str) -> Option<Arc<Encoded>> {
        let name = path.strip_prefix("/api/v1/nodes/")?;
        let state = self.state();
        state.nodes.get(name).map(|(_, node)| Arc::clone(node))
    }

    fn list(&self, asked: &Asked, protobuf: bool, out: &mut Stream) -> io::Result<()> {
        let number = |key| asked.query.get(key).and_then(|value| value.parse().ok());
        // Any version will do: then a real one answers from its cache, whole.
        let cached = asked.query.get("resourceVersion").is_some_and(|v| v == "0");
        let limit = number("limit").filter(|_| !cached).unwrap_or(usize::MAX);
        let (items, version, next) = {
            let state = self.state();
            // A token is the version of the first page and the last name.
            let token = asked.query.get("continue").and_then(|t| t.split_once('_'));
            let version = token.map_or(state.version, |(v, _)| v.parse().unwrap_or_default());
            let after = token.map_or(Bound::Unbounded, |(_, name)| Bound::Excluded(name));
            let mut rest = state.nodes.range::<str, _>((after, Bound::Unbounded));
            let page: Vec<_> = rest.by_ref().take(limit).collect();
            let more = rest.next().is_some();
            let last = page.last().filter(|_| more).map(|(name, _)| name.as_str());
            let next = last.map(|name| format!("{version}_{name}"));
            let items: Vec<Arc<Encoded>> = page
                .into_iter()
                .map(|(_, (_, encoded))| Arc::clone(encoded))
                .collect();
            (items, version, next.unwrap_or_default())
        };
        let mut body = Chunks::start(out, protobuf, "")?;
        if protobuf {
            let metadata = Message::default()
                .text(1, "")
                .text(2, &version.to_string())
                .text(3, &next);
            let metadata = Message::default().message(1, metadata).into_bytes();
            let headers: Vec<_> = (items.iter())
                .map(|node| header(2, node.protobuf.len()))
                .collect();
            let nodes = || headers.iter().zip(&items);
            let length: usize = nodes()
                .map(|(header, node)| header.len() + node.protobuf.len())
                .sum();
            let (head, tail) = around("NodeList", metadata.len() + length);
            body.write(&head)?;
            body.write(&metadata)?;
            for (header, node) in nodes() {
                body.write(header)?;
                body.write(&node.protobuf)?;
            }
            body.write(&tail)?;
        } else {
            let head = format!(
                r#"{{"kind":"NodeList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":["#
            );
            body.write(head.as_bytes())?;
            for (at, node) in items.iter().enumerate() {
                if at > 0 {
                    body.write(b",")?;
                }
                body.write(&node.json)?;
            }
            body.write(b"]}\n")?;
        }
        body.end()
    }

    fn watch(&self, asked: &Asked, protobuf: bool, out: &mut Stream) -> io::Result<()> {
        let since = asked.query.get("resourceVersion");
        let since: u64 = since.and_then(|v| v.parse().ok()).unwrap_or_default();
        let mut next = {
            let state = self.state();
            let Some(next) = since.checked_sub(state.first) else {
                drop(state);
                return whole(
                    out,
                    "410 Gone",
                    br#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#,
                );
            };
            next as usize
        };
        let mut body = Chunks::start(out, protobuf, ";stream=watch")?;
        body.flush()?;
        loop {
            let (events, version) = {
                let state = self.state();
                let quiet = |state: &mut State| {
                    state.log.len() <= next && !self.ended.load(Ordering::Relaxed)
                };
                let (state, _) = self
                    .changed
                    .wait_timeout_while(state, BOOKMARK, quiet)
                    .unwrap_or_else(PoisonError::into_inner);
                let events = state.log.get(next..).unwrap_or_default().to_vec();
                (events, state.version)
            };
            if self.ended.load(Ordering::Relaxed) {
                return body.end();
            }
            if events.is_empty() {
                body.write(&bookmark(protobuf, version))?;
            }
            for Event { kind, node } in &events {
                if protobuf {
                    body.write(&watch_frame(kind, &node.protobuf))?;
                } else {
                    body.write(format!(r#"{{"type":"{kind}","object":"#).as_bytes())?;
                    body.write(&node.json)?;
                    body.write(b"}\n")?;
                }
            }
            next += events.len();
            body.flush()?;
        }
    }
}

fn bookmark(protobuf: bool, version: u64) -> Vec<u8> {
    if protobuf {
        let metadata = Message::default().text(6, &version.to_string());
        let node = Message::default().message(1, metadata).into_bytes();
        watch_frame("BOOKMARK", &node)
    } else {
        format!(
            r#"{{"type":"BOOKMARK","object":{{"kind":"Node","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}}}}}}{}"#,
            '\n'
        )
        .into_bytes()
    }
}
