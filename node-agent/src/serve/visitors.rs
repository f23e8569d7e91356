//! A listener whose connections are few and end: whoever can reach the port
//! could else hold connections open until the agent has no file descriptor
//! left for its own work.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections at one time; more wait in the kernel. A kubelet and two
/// Prometheus servers have about five.
const MOST: usize = 64;
/// How long one may last. A client that keeps its connection makes a new one.
const LONGEST: Duration = Duration::from_secs(30);

/// Accepts at most so many connections at a time.
pub(super) struct Visitors {
    listener: TcpListener,
    places: Arc<Semaphore>,
    longest: Duration,
}

impl Visitors {
    pub(super) fn at(listener: TcpListener) -> Self {
        Self::limited(listener, MOST, LONGEST)
    }

    fn limited(listener: TcpListener, most: usize, longest: Duration) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(most)),
            longest,
        }
    }
}

impl Listener for Visitors {
    type Io = Visitor;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visitor, SocketAddr) {
        // It fails only once the semaphore is closed, which it never is.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (stream, addr) = Listener::accept(&mut self.listener).await;
        let visitor = Visitor {
            stream,
            end: Box::pin(tokio::time::sleep(self.longest)),
            _place: place,
        };
        (visitor, addr)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails once its time is over.
pub(super) struct Visitor {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Visitor {
    /// The stream, while there is time.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Visitor {
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
    async fn one_who_only_holds_the_line_is_cut_off_and_the_next_is_served() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let visitors = Visitors::limited(listener, 1, Duration::from_millis(50));
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
            ended = async { axum::serve(visitors, app).await } => panic!("{ended:?}"),
            tested = tokio::time::timeout(Duration::from_secs(60), test) => tested.unwrap(),
        }
    }
}
