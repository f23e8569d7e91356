//! What the API servers of the benchmarks have in common: a port in a network namespace,
//! the thread that answers on it, and answers.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tweed_lab::Netns;

use crate::realtime;

/// The type of contents in JSON.
pub const JSON: &str = "application/json";

pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A running server; it ends when it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Has `answer` answer on a port of the loopback address of `netns`: in plain HTTP, or
    /// over TLS.
    pub fn start<F, A>(netns: &Netns, tls: Option<TlsAcceptor>, answer: F) -> anyhow::Result<Self>
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = hyper::Result<Answer>> + Send + 'static,
    {
        let listener = netns
            .enter(|| std::net::TcpListener::bind("127.0.0.1:0"))?
            .context("the API server's port")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("a runtime")?;
        // One thread answers all. When it ends, so do its connections.
        let thread = realtime::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    _ = accept(listener, tls, answer) => {}
                }
            });
        })?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens, inside the namespace.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
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

async fn accept<F, A>(
    listener: std::net::TcpListener,
    tls: Option<TlsAcceptor>,
    answer: F,
) -> io::Result<()>
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = hyper::Result<Answer>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        let (tls, answer) = (tls.clone(), answer.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(connection, answer).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(connection).await {
                        serve(stream, answer).await;
                    }
                }
            }
        });
    }
}

async fn serve<F, A>(stream: impl AsyncRead + AsyncWrite + Unpin, answer: F)
where
    F: Fn(Request<Incoming>) -> A,
    A: Future<Output = hyper::Result<Answer>>,
{
    // A client that goes away ends its connection with an error.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

/// An answer that is there as a whole.
pub fn whole(code: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    answer(code, kind, Full::new(body.into()).boxed_unsync())
}

/// An answer that goes on as long as there are frames.
pub fn stream(
    kind: &'static str,
    frames: impl futures::Stream<Item = Bytes> + Send + 'static,
) -> Answer {
    use futures::StreamExt as _;
    let frames = frames.map(|bytes| Ok(Frame::data(bytes)));
    answer(StatusCode::OK, kind, StreamBody::new(frames).boxed_unsync())
}

/// A refusal as the API writes one.
pub fn status(code: StatusCode, reason: &str, message: &str) -> Answer {
    let json = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
        "reason": reason, "code": code.as_u16(),
    });
    whole(code, JSON, json.to_string())
}

fn answer(code: StatusCode, kind: &'static str, body: UnsyncBoxBody<Bytes, Infallible>) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
