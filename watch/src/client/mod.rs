//! The client of the API server: one request at a time, with refusals and
//! broken connections as [`Failure`]s that say what to look at.
//!
//! [`Access`] says which server to use. An [`ApiClient`] reads the files behind
//! it when it needs them, and again for each connection, because credentials and
//! addresses change while their paths and names stay.

mod access;
pub(crate) mod body;
mod connect;
mod failure;
mod kubeconfig;
mod objects;
mod peers;
pub(crate) mod proxy;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures::stream;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use prost::bytes::Bytes;
use tokio::sync::watch;

pub use access::{Access, Server, client_of_people};
pub use failure::{Failure, chain};
pub use http::Uri;
pub use objects::{Request, timestamp, timestamp_now};

use crate::{event::Status, protobuf};
pub(crate) use access::Connection;
use body::Body;
use connect::{PINGS, Pings};
use peers::Peers;
use proxy::ProxyVariables;

/// Maximum time until credentials are there, until a response begins, and between two pieces
/// of a page.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of the body of a refusal, in bytes: a Status is far smaller,
/// but a proxy may answer with a page of its own.
const MAX_REFUSAL: usize = 1 << 20;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PREFER_PROTOBUF: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf,application/json");
const ONLY_JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A client of one API server. Its clones share the connection.
#[derive(Debug, Clone)]
pub struct ApiClient {
    access: Access,
    pub(crate) proxies: ProxyVariables,
    /// Maximum time until credentials are there, and until a response begins.
    pub(crate) answer_timeout: Duration,
    pub(crate) pings: Pings,
    peers: Peers,
    state: Arc<Mutex<State>>,
    /// Whose turn it is to make a connection: a program that gives credentials and hangs must
    /// not be started again and again.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// Made with the first request.
    connection: Option<Arc<Connection>>,
    /// When the kubeconfig had changed last that it was made with.
    read_as_of: Option<SystemTime>,
    /// Whether the server refuses requests that prefer protobuf.
    only_json: bool,
}

/// A response of status 2xx whose body arrives.
pub struct Response {
    /// The server, for messages.
    pub url: String,
    /// Whether the body is protobuf; otherwise it is JSON.
    pub protobuf: bool,
    pub(crate) body: Body,
}

impl ApiClient {
    /// A client of the server that `access` leads to. Nothing is read yet: a
    /// kubeconfig may be missing until the first request, and then fails it.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            proxies: ProxyVariables::of_process(),
            answer_timeout: ANSWER_TIMEOUT,
            pings: PINGS,
            peers: Peers::default(),
            state: Arc::default(),
            turn: Arc::default(),
        }
    }

    /// The addresses and ports to which connections are made: the server's, or those of the
    /// proxy before it. They change when its name leads elsewhere, and are told before a
    /// connection is made to them. None before the first request.
    pub fn peers(&self) -> watch::Receiver<BTreeSet<SocketAddr>> {
        self.peers.subscribe()
    }

    /// Makes the next request read the address and the credentials again, unless it has
    /// another connection than this one by now: requests that were sent by one connection
    /// fail one after the other.
    fn leave(&self, connection: &Arc<Connection>) {
        let mut state = self.state();
        let is_current = |current: &Arc<Connection>| Arc::ptr_eq(current, connection);
        if state.connection.as_ref().is_some_and(is_current) {
            state.connection = None;
        }
    }

    /// The same for whatever connection there is, if the kubeconfig has changed since it was
    /// read.
    pub fn reconnect_if_changed(&self) {
        let changed = self.access.changed();
        let mut state = self.state();
        if changed != state.read_as_of {
            state.connection = None;
        }
    }

    /// Sends a request and returns the response once it has begun, and the connection by which
    /// it comes. The body may pause for at most `max_silence`. A status other than 2xx is a
    /// failure.
    pub(crate) async fn open(
        &self,
        request: http::Request<Vec<u8>>,
        max_silence: Duration,
    ) -> Result<(Response, Arc<Connection>), Failure> {
        let connection = self.connection().await?;
        match self.ask(&connection, request, max_silence).await {
            Ok(response) => Ok((response, connection)),
            Err(failure) => {
                self.leave_for(&connection, &failure);
                Err(failure)
            }
        }
    }

    /// Leaves a connection if this is a reason to.
    pub(crate) fn leave_for(&self, connection: &Arc<Connection>, failure: &Failure) {
        if failure.is_of_connection() {
            self.leave(connection);
        }
    }

    async fn ask(
        &self,
        connection: &Connection,
        request: http::Request<Vec<u8>>,
        max_silence: Duration,
    ) -> Result<Response, Failure> {
        let send = |request, accept| {
            let answer_timeout = self.answer_timeout;
            connection.send(request, accept, answer_timeout, max_silence)
        };
        if self.state().only_json {
            return send(request, ONLY_JSON).await;
        }
        let again = request.clone();
        match send(request, PREFER_PROTOBUF).await {
            Err(failure) if is_unacceptable(&failure) => {
                self.state().only_json = true;
                send(again, ONLY_JSON).await
            }
            response => response,
        }
    }

    /// The server, for messages; empty before the first connection.
    pub(crate) fn url(&self) -> String {
        let state = self.state();
        (state.connection.as_ref()).map_or_else(String::new, |c| c.url.clone())
    }

    async fn connection(&self) -> Result<Arc<Connection>, Failure> {
        if let Some(connection) = &self.state().connection {
            return Ok(Arc::clone(connection));
        }
        let connected = tokio::time::timeout(self.answer_timeout, self.connect()).await;
        connected.unwrap_or_else(|_| Err(self.access.too_slow(self.answer_timeout)))
    }

    async fn connect(&self) -> Result<Arc<Connection>, Failure> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        // Another watcher may have made it meanwhile.
        if let Some(connection) = &self.state().connection {
            return Ok(Arc::clone(connection));
        }
        // Before it is read: a later change is another time.
        let read_as_of = self.access.changed();
        let (proxies, peers) = (&self.proxies, &self.peers);
        let made = self
            .access
            .connect(proxies, self.pings, peers, turn)
            .await?;
        let (connection, _turn) = (Arc::new(made.0), made.1);
        *self.state() = State {
            connection: Some(Arc::clone(&connection)),
            read_as_of,
            only_json: false,
        };
        Ok(connection)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing can panic between two writes to it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the server does not offer the media types of the request.
fn is_unacceptable(failure: &Failure) -> bool {
    failure.is_answer(StatusCode::NOT_ACCEPTABLE.as_u16())
        || failure.is_answer(StatusCode::UNSUPPORTED_MEDIA_TYPE.as_u16())
}

impl Connection {
    async fn send(
        &self,
        request: http::Request<Vec<u8>>,
        accept: HeaderValue,
        answer_timeout: Duration,
        max_silence: Duration,
    ) -> Result<Response, Failure> {
        let mut outgoing = request.map(kube::client::Body::from);
        outgoing.headers_mut().insert(ACCEPT, accept);
        if let Some(file) = &self.token_file {
            let credentials = |why| Failure::Credentials {
                url: self.url.clone(),
                why,
            };
            let bearer = access::bearer(file).map_err(credentials)?;
            outgoing.headers_mut().insert(AUTHORIZATION, bearer);
        }
        let answer = tokio::time::timeout(answer_timeout, self.client.send(outgoing))
            .await
            .map_err(|_| Failure::silent(&self.url, answer_timeout))?
            .map_err(|error| Failure::unreachable(&self.url, &error))?;
        let status = answer.status();
        let content_type = answer.headers().get(CONTENT_TYPE);
        let retry_after = answer.headers().get(RETRY_AFTER).cloned();
        let mut response = Response {
            url: self.url.clone(),
            protobuf: content_type.is_some_and(|t| t.as_bytes().starts_with(PROTOBUF.as_bytes())),
            body: Body::new(answer.into_body().into_data_stream(), max_silence),
        };
        if status.is_success() {
            Ok(response)
        } else {
            let failure = response.refusal(status).await;
            Err(failure.with_retry_after(retry_after.as_ref()))
        }
    }
}

impl Response {
    /// A response without a server, whose body is all there.
    pub fn of_pieces(protobuf: bool, pieces: Vec<Bytes>) -> Self {
        Self {
            url: "the answer".to_owned(),
            protobuf,
            body: Body::new(stream::iter(pieces.into_iter().map(Ok)), ANSWER_TIMEOUT),
        }
    }

    /// The failure that a response with a status other than 2xx describes.
    async fn refusal(&mut self, status: StatusCode) -> Failure {
        let rest = tokio::time::timeout(ANSWER_TIMEOUT, self.body.rest(MAX_REFUSAL)).await;
        let text = match rest {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => return error.of_answer(&self.url),
            Err(_) => return Failure::silent(&self.url, ANSWER_TIMEOUT),
        };
        let read = if self.protobuf {
            protobuf::status(Bytes::copy_from_slice(text)).ok()
        } else {
            serde_json::from_slice::<Status>(text).ok()
        };
        // A proxy may answer in a format of its own: then the code is that of
        // HTTP, and the message is the body as it came.
        let message = match read {
            Some(Status { message, .. }) if !message.is_empty() => message,
            _ => String::from_utf8_lossy(text).into_owned(),
        };
        Failure::status(&self.url, status.as_u16(), &message)
    }
}
