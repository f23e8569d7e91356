//! Serves connections, with limits that keep one client from crowding out
//! another one: whoever can reach the port, such as any pod, could otherwise hold
//! connections open until nobody else is answered.
//!
//! A connection is for one request. When there are too many, the new one is
//! served and an old one is closed: an honest client needs a few milliseconds, so
//! the oldest connection is the one that is most likely held open on purpose.
//! Behind one address may be both, since a node masquerades what its pods send to
//! other nodes.
//!
//! A connection that is to be closed has its file descriptor for a moment more. So each
//! needs a slot before it is accepted, and however many come at once, there are never more
//! than the limit and one.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, task::Poll, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::tls::Identity;
use crate::descriptors::Shares;

/// The limits of one listener, or of several together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of connections from one address to one listener.
    pub(super) per_source: usize,
    /// Maximum number of connections.
    pub(super) total: usize,
    /// Maximum time until a client has sent its request.
    pub(super) header_read_timeout: Duration,
    /// Maximum lifetime of a connection: a client may read slowly.
    pub(super) max_lifetime: Duration,
}

/// The limits of the listeners for metrics and probes. A kubelet and two Prometheus
/// servers have about five connections; Prometheus gives a scrape 10 s.
pub(super) const LIMITS: Limits = Limits {
    per_source: 8,
    total: 64,
    header_read_timeout: Duration::from_secs(2),
    max_lifetime: Duration::from_secs(10),
};

/// The same, but no more connections than there are file descriptors for.
pub(super) fn limits() -> Limits {
    Limits {
        total: Shares::of_process().page_connections,
        ..LIMITS
    }
}

/// Maximum size of a request's header, and so of what a client makes the agent
/// keep in memory.
const MAX_HEADER: usize = 16 * 1024;

/// Says whether a local address is one to answer at.
pub(super) type AnswersAt = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// What is served on a listener.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) app: Router,
    /// Over TLS, if there is an identity.
    pub(super) tls: Option<Identity>,
    /// Where its connections are counted.
    pub(super) pool: Pool,
    /// Of the addresses that it listens on, those at which it answers; connections to
    /// others are closed. `None` is all.
    pub(super) answers_at: Option<AnswersAt>,
}

impl Service {
    /// Plain HTTP at every address, with connections of its own.
    pub(super) fn new(app: Router, limits: Limits) -> Self {
        Self {
            app,
            tls: None,
            pool: Pool::new(limits),
            answers_at: None,
        }
    }

    fn answers(&self, stream: &TcpStream) -> bool {
        let Some(answers_at) = &self.answers_at else {
            return true;
        };
        let local = stream.local_addr();
        // The client may have closed it already.
        local.is_ok_and(|local| answers_at(local.ip().to_canonical()))
    }
}

/// Serves until the listener fails, and returns why it did. Dropped, it closes its
/// connections.
pub(super) async fn serve(listener: TcpListener, service: Service) -> io::Error {
    let port = match listener.local_addr() {
        Ok(addr) => addr.port(),
        Err(error) => return error,
    };
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = service.pool.accept(&listener) => match accepted {
                Ok((slot, stream, peer)) => if service.answers(&stream) {
                    let service_there = service.clone();
                    let task = tasks.spawn(async move {
                        connection(stream, service_there).await;
                        drop(slot);
                    });
                    service.pool.add(Source::new(port, peer), task);
                },
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => return error,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// The open connections of one listener, or of several. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    open: Arc<Mutex<Connections<AbortHandle>>>,
    /// One for each connection, and one more: for it another one is closed.
    slots: Arc<Semaphore>,
}

impl Pool {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            open: Arc::new(Mutex::new(Connections::new(limits))),
            slots: Arc::new(Semaphore::new(limits.total + 1)),
        }
    }

    /// The next connection of a listener, and its slot. No slot is kept while nobody
    /// connects: there are more listeners than slots.
    async fn accept(
        &self,
        listener: &TcpListener,
    ) -> io::Result<(OwnedSemaphorePermit, TcpStream, SocketAddr)> {
        loop {
            // The semaphore is never closed.
            let mut slot = Arc::clone(&self.slots).acquire_owned().await.ok();
            let accepted = poll_fn(|cx| {
                let free = || Arc::clone(&self.slots).try_acquire_owned().ok();
                let Some(slot) = slot.take().or_else(free) else {
                    return Poll::Ready(None);
                };
                listener
                    .poll_accept(cx)
                    .map(|accepted| Some((slot, accepted)))
            });
            if let Some((slot, accepted)) = accepted.await {
                let (stream, peer) = accepted?;
                return Ok((slot, stream, peer));
            }
        }
    }

    /// Adds a connection, and closes the one that is too many.
    fn add(&self, source: Source, connection: AbortHandle) {
        let mut open = self.open();
        open.remove(AbortHandle::is_finished);
        if let Some(superseded) = open.add(source, connection) {
            superseded.abort();
        }
    }

    fn limits(&self) -> Limits {
        self.open().limits
    }

    fn open(&self) -> MutexGuard<'_, Connections<AbortHandle>> {
        // Nothing can panic between two changes that belong together.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether only this one connection failed, before it was accepted.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Answers one request. A client that broke off, or was too slow, is told so by
/// the closed connection.
async fn connection(stream: TcpStream, service: Service) {
    let limits = service.pool.limits();
    let answered = async {
        let Some(tls) = service.tls else {
            return answer(stream, service.app, limits).await;
        };
        let handshake = tls.acceptor.accept(stream);
        if let Ok(Ok(stream)) = timeout(limits.header_read_timeout, handshake).await {
            answer(stream, service.app, limits).await;
        }
    };
    let _ = timeout(limits.max_lifetime, answered).await;
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, app: Router, limits: Limits) {
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_buf_size(MAX_HEADER)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app))
        .await;
}

/// Who a connection is from, and the port of the listener that it is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    listener: u16,
    address: IpAddr,
}

impl Source {
    fn new(listener: u16, peer: SocketAddr) -> Self {
        Self {
            listener,
            // A listener on [::] sees IPv4 addresses as mapped ones.
            address: peer.ip().to_canonical(),
        }
    }
}

/// The open connections, the oldest first.
#[derive(Debug)]
struct Connections<T> {
    limits: Limits,
    open: VecDeque<(Source, T)>,
}

impl<T> Connections<T> {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: VecDeque::new(),
        }
    }

    /// Adds a connection, and takes out the one that has to be closed for it.
    fn add(&mut self, source: Source, connection: T) -> Option<T> {
        self.open.push_back((source, connection));
        let from = self.over_the_limit(source)?;
        let oldest = self.open.iter().position(|(other, _)| *other == from)?;
        self.open.remove(oldest).map(|(_, connection)| connection)
    }

    /// The source that has too many connections since `source` has another one:
    /// itself or, if there are too many in total, the one with the most.
    fn over_the_limit(&self, source: Source) -> Option<Source> {
        let mut counts: BTreeMap<Source, usize> = BTreeMap::new();
        for (source, _) in &self.open {
            *counts.entry(*source).or_default() += 1;
        }
        if counts.get(&source).copied() > Some(self.limits.per_source) {
            return Some(source);
        }
        if self.open.len() <= self.limits.total {
            return None;
        }
        let most = counts.values().copied().max();
        // Of several with the same number, the one that has the oldest connection.
        let mut sources = self.open.iter().map(|(source, _)| *source);
        sources.find(|source| counts.get(source).copied() == most)
    }

    /// Forgets the connections that have ended.
    fn remove(&mut self, has_ended: impl Fn(&T) -> bool) {
        self.open.retain(|(_, connection)| !has_ended(connection));
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// For a test in which nothing else is to close a connection.
    const AN_HOUR: Duration = Duration::from_secs(3600);

    fn connections(per_source: usize, total: usize) -> Connections<u32> {
        Connections::new(Limits {
            per_source,
            total,
            ..LIMITS
        })
    }

    fn source(last: u8) -> Source {
        Source::new(9116, SocketAddr::from(([192, 0, 2, last], 4711)))
    }

    #[test]
    fn one_source_too_many_closes_its_own_oldest() {
        let mut open = connections(2, 10);
        assert_eq!(open.add(source(1), 1), None);
        assert_eq!(open.add(source(2), 2), None);
        assert_eq!(open.add(source(1), 3), None);
        assert_eq!(open.add(source(1), 4), Some(1));
        let mapped = "[::ffff:192.0.2.1]:4712".parse().unwrap();
        assert_eq!(open.add(Source::new(9116, mapped), 5), Some(3));
        assert_eq!(open.add(Source::new(9117, mapped), 7), None);
        assert_eq!(open.add(source(2), 6), None);
    }

    #[test]
    fn too_many_in_total_close_the_oldest_of_who_has_the_most() {
        let mut open = connections(3, 4);
        for (from, number) in [(9, 0), (1, 1), (2, 2), (2, 3)] {
            assert_eq!(open.add(source(from), number), None);
        }
        assert_eq!(open.add(source(3), 4), Some(2));
        // Now everybody has one.
        assert_eq!(open.add(source(4), 5), Some(0));
    }

    #[test]
    fn what_has_ended_counts_no_longer() {
        let mut open = connections(1, 1);
        assert_eq!(open.add(source(1), 1), None);
        open.remove(|connection| *connection == 1);
        assert_eq!(open.add(source(1), 2), None);
    }

    /// Runs `test` against a server with these limits. Without the limit that a
    /// test is about, it would wait for ever.
    async fn with_limits<F: Future<Output = ()>>(
        limits: Limits,
        test: impl FnOnce(SocketAddr) -> F,
    ) {
        with_limits_over(None, limits, test).await;
    }

    /// The same over TLS, if there is an identity.
    async fn with_limits_over<F: Future<Output = ()>>(
        tls: Option<Identity>,
        limits: Limits,
        test: impl FnOnce(SocketAddr) -> F,
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let app = Router::new().route("/", get(|| async { "hello" }));
        let service = Service {
            tls,
            ..Service::new(app, limits)
        };
        tokio::select! {
            error = serve(listener, service) => panic!("{error}"),
            tested = timeout(Duration::from_secs(60), test(addr)) => tested.unwrap(),
        }
    }

    #[tokio::test]
    async fn a_client_that_sends_no_whole_header_is_disconnected() {
        let limits = Limits {
            header_read_timeout: Duration::from_millis(50),
            max_lifetime: AN_HOUR,
            ..LIMITS
        };
        with_limits(limits, |addr| async move {
            let mut idle = TcpStream::connect(addr).await.unwrap();
            let mut slow = TcpStream::connect(addr).await.unwrap();
            slow.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
            for stream in [&mut idle, &mut slow] {
                let mut answer = Vec::new();
                // Either a plain end or an answer of status 408, then the end.
                let _ = stream.read_to_end(&mut answer).await;
            }
        })
        .await;
    }

    #[tokio::test]
    async fn a_client_that_begins_no_tls_is_disconnected() {
        let limits = Limits {
            header_read_timeout: Duration::from_millis(50),
            max_lifetime: AN_HOUR,
            ..LIMITS
        };
        let identity = Identity::self_signed("n1").unwrap();
        with_limits_over(Some(identity), limits, |addr| async move {
            let mut idle = TcpStream::connect(addr).await.unwrap();
            assert_eq!(idle.read(&mut [0; 1]).await.unwrap_or(0), 0, "cut off");
        })
        .await;
    }

    #[tokio::test]
    async fn an_answered_connection_is_closed_although_the_client_would_keep_it() {
        let limits = Limits {
            header_read_timeout: AN_HOUR,
            max_lifetime: AN_HOUR,
            ..LIMITS
        };
        with_limits(limits, |addr| async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.contains("connection: close"), "{answer}");
            assert!(answer.ends_with("hello"), "{answer}");
        })
        .await;
    }

    #[tokio::test]
    async fn a_connection_ends_with_its_lifetime() {
        let limits = Limits {
            header_read_timeout: AN_HOUR,
            max_lifetime: Duration::from_millis(50),
            ..LIMITS
        };
        with_limits(limits, |addr| async move {
            let mut idle = TcpStream::connect(addr).await.unwrap();
            assert_eq!(idle.read(&mut [0; 1]).await.unwrap_or(0), 0, "cut off");
        })
        .await;
    }
}
