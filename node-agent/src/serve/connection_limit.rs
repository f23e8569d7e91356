//! A listener that limits how many connections there are and how long they last:
//! otherwise whoever can reach the port could hold connections open until the
//! agent has no file descriptor left for its own work.

use std::task::{Context, Poll};
use std::{io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Maximum number of connections at one time; further ones wait in the kernel. A
/// kubelet and two Prometheus servers have about five.
const MAX_CONNECTIONS: usize = 64;
/// Maximum lifetime of a connection. A client that keeps its connection opens a
/// new one after that.
const MAX_LIFETIME: Duration = Duration::from_secs(30);

/// Accepts a limited number of connections at a time.
pub(super) struct LimitedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    max_lifetime: Duration,
}

impl LimitedListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self::with_limits(listener, MAX_CONNECTIONS, MAX_LIFETIME)
    }

    fn with_limits(listener: TcpListener, connections: usize, max_lifetime: Duration) -> Self {
        Self {
            listener,
            permits: Arc::new(Semaphore::new(connections)),
            max_lifetime,
        }
    }
}

impl Listener for LimitedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // It fails only if the semaphore is closed, which never happens.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let (stream, addr) = Listener::accept(&mut self.listener).await;
        let connection = Connection {
            stream,
            end: Box::pin(tokio::time::sleep(self.max_lifetime)),
            _permit: permit,
        };
        (connection, addr)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails once its lifetime is over.
pub(super) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// The stream, until the lifetime is over.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn an_idle_connection_is_closed_and_the_next_one_is_served() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let limited = LimitedListener::with_limits(listener, 1, Duration::from_millis(50));
        let app = Router::new().route("/", get(|| async { "hello" }));
        let test = async {
            let mut idle = TcpStream::connect(addr).await.unwrap();
            let mut next = TcpStream::connect(addr).await.unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            next.write_all(request).await.unwrap();
            let mut answer = String::new();
            next.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("hello"), "{answer}");
            assert_eq!(idle.read(&mut [0; 1]).await.unwrap_or(0), 0, "cut off");
        };
        tokio::select! {
            ended = async { axum::serve(limited, app).await } => panic!("{ended:?}"),
            tested = tokio::time::timeout(Duration::from_secs(60), test) => tested.unwrap(),
        }
    }
}
