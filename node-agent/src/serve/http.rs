//! The HTTP server: three paths, plain text.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;
use super::status::{Reporter, Status, StatusBoard};
use crate::problem::{Effect, Problem};

/// How long to wait before the address is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What the server reads.
#[derive(Debug)]
pub struct Sources {
    /// What is wrong.
    pub board: Arc<StatusBoard>,
    /// The numbers.
    pub metrics: Metrics,
    /// Where the numbers are registered.
    pub registry: Registry,
}

/// Serves on `addr` until `stop`. An address that cannot be had is reported on
/// the board and tried again.
pub async fn run(addr: SocketAddr, sources: Sources, stop: CancellationToken) {
    let board = Arc::clone(&sources.board);
    let app = router(sources);
    let forever = async {
        loop {
            let error = match TcpListener::bind(addr).await {
                Ok(listener) => {
                    board.report(Reporter::Serve, Vec::new(), Instant::now());
                    axum::serve(listener, app.clone()).await.err()
                }
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                let problem = cannot_listen(addr, &error);
                board.report(Reporter::Serve, vec![problem], Instant::now());
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = forever => {}
    }
}

fn cannot_listen(addr: SocketAddr, error: &std::io::Error) -> Problem {
    Problem::new(
        "metrics-addr",
        addr.to_string(),
        Effect::Warning,
        format!("cannot serve metrics and health checks on {addr}: {error}"),
        "free the port, or give --metrics-addr another address; it is tried again every 5 s",
    )
}

fn router(sources: Sources) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(sources))
}

async fn healthz(State(sources): State<Arc<Sources>>) -> Response {
    match sources.board.alive(Instant::now()) {
        Ok(()) => (StatusCode::OK, "ok\n").into_response(),
        Err(silent) => {
            let seconds = silent.as_secs();
            let body = format!("the agent's loop has not been round for {seconds} s\n");
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn readyz(State(sources): State<Arc<Sources>>) -> Response {
    let status = sources.board.status(Instant::now());
    let code = if status.ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, readyz_body(&status)).into_response()
}

/// One line on readiness, then one for each problem.
fn readyz_body(status: &Status) -> String {
    let word = if status.ready() { "ready" } else { "not ready" };
    let mut body = format!("{word} for {} s\n", status.unchanged_for.as_secs());
    for problem in &status.problems {
        let effect = match problem.effect {
            Effect::Warning => "warning",
            Effect::NewPods => "new pods are not served",
            Effect::RunningPods => "running pods are affected",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(body, "{effect}: {}: {problem}", problem.kind);
    }
    body
}

async fn metrics(State(sources): State<Arc<Sources>>) -> Response {
    let status = sources.board.status(Instant::now());
    sources.metrics.set_status(&status);
    let mut text = String::new();
    match encode(&mut text, &sources.registry) {
        Ok(()) => {
            let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, openmetrics)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
