//! The HTTP server: three paths, plain text, on two listeners.

use std::time::{Duration, Instant};
use std::{fmt::Write as _, io, net::SocketAddr, sync::Arc};

use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use prometheus_client::registry::Registry;
use serde_json::json;
use tweed_core::problem::{Effect, Problem, ProblemKind};

use super::connections::{Limits, Service, limits};
use super::listener::{RETRY, listen};
use super::status::{Reporter, StatusBoard};
use super::{exposition, metrics::Metrics};
use super::{review, review::Reviewer, tls::Identity};

/// What the server reads.
#[derive(Debug)]
pub struct Sources {
    /// For `/healthz` and `/readyz`.
    pub board: Arc<StatusBoard>,
    /// For `/metrics`.
    pub metrics: Metrics,
    /// In which the metrics are registered.
    pub registries: Vec<Registry>,
}

/// Where a server with two listeners listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// For whoever collects metrics; others may reach it too.
    pub metrics: SocketAddr,
    /// For the probes or load balancers, with limits of its own: what is done to the other
    /// listener never fails a probe.
    pub health: SocketAddr,
}

/// What keeps the metrics from others: TLS, and the API server's word.
pub struct Guard {
    /// What the listener shows of itself.
    pub identity: Identity,
    /// Who may read.
    pub reviewer: Arc<Reviewer>,
}

/// Serves on both addresses, for ever. If it cannot listen on one of them, it
/// reports that on the board and tries again.
pub async fn run(addresses: Addresses, sources: Arc<Sources>, guard: Option<Guard>) {
    listen_on(addresses, sources, guard, RETRY, limits()).await;
}

/// Continues after every error.
async fn listen_on(
    addresses: Addresses,
    sources: Arc<Sources>,
    guard: Option<Guard>,
    retry: Duration,
    limits: Limits,
) {
    let board = Arc::clone(&sources.board);
    let (metrics, health) = apps(sources);
    let metrics = match guard {
        None => Service::new(metrics, limits),
        Some(guard) => Service {
            tls: Some(guard.identity),
            ..Service::new(review::guarded(metrics, guard.reviewer), limits)
        },
    };
    let health = Service::new(health, limits);
    let metrics_report = reporter(&board, ProblemKind::MetricsAddr, addresses.metrics);
    let health_report = reporter(&board, ProblemKind::HealthAddr, addresses.health);
    tokio::join!(
        listen(addresses.metrics, metrics, retry, metrics_report),
        listen(addresses.health, health, retry, health_report)
    );
}

/// Reports on the board whether an address is listened on.
pub(super) fn reporter(
    board: &Arc<StatusBoard>,
    kind: ProblemKind,
    addr: SocketAddr,
) -> impl FnMut(Option<io::Error>) + use<> {
    let board = Arc::clone(board);
    move |error| {
        let problem = error.map(|error| {
            let message = format!("cannot listen on {addr}: {error}");
            Problem::new(kind, addr.to_string(), message)
        });
        let problems = problem.into_iter().collect();
        board.report(Reporter::Listener(kind), problems, Instant::now());
    }
}

/// What the listeners for metrics and for probes serve.
fn apps(sources: Arc<Sources>) -> (Router, Router) {
    let health = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz));
    let with_metrics = health.clone().route("/metrics", get(metrics));
    let metrics = with_metrics.with_state(Arc::clone(&sources));
    (metrics, health.with_state(sources))
}

async fn healthz(State(sources): State<Arc<Sources>>) -> (StatusCode, String) {
    match sources.board.alive(Instant::now()) {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(silent) => {
            let seconds = silent.as_secs();
            let body = format!("the agent's loop has not run for {seconds} s\n");
            (StatusCode::SERVICE_UNAVAILABLE, body)
        }
    }
}

/// A line on readiness, then a line for each problem; with `?format=json` the same for
/// programs.
async fn readyz(State(sources): State<Arc<Sources>>, RawQuery(query): RawQuery) -> Response {
    let status = sources.board.status(Instant::now());
    let (code, word) = if status.ready() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    };
    if query.is_some_and(|query| query.split('&').any(|one| one == "format=json")) {
        let body = json!({
            "ready": status.ready(),
            "unchangedForSeconds": status.unchanged_for.as_secs(),
            "problems": status.problems,
            "notes": status.notes,
        });
        let content_type = [(header::CONTENT_TYPE, "application/json")];
        return (code, content_type, format!("{body}\n")).into_response();
    }
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
    for note in &status.notes {
        let _ = writeln!(body, "note: {note}");
    }
    (code, body).into_response()
}

impl Sources {
    /// All metrics in the text format of Prometheus.
    ///
    /// # Errors
    /// One cannot be encoded.
    pub fn metrics_text(&self) -> Result<String, std::fmt::Error> {
        self.metrics.set_status(&self.board.status(Instant::now()));
        exposition::text(&self.registries)
    }
}

async fn metrics(State(sources): State<Arc<Sources>>) -> Response {
    answer(sources.metrics_text())
}

/// All metrics, as they were encoded.
pub(super) fn answer(text: Result<String, std::fmt::Error>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests;
