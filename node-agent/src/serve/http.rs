//! The HTTP server: three paths, plain text.

use std::time::{Duration, Instant};
use std::{fmt::Write as _, net::SocketAddr, sync::Arc};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, extract::State, routing::get};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tweed_core::problem::{Effect, Problem, ProblemKind};

use super::status::{Reporter, StatusBoard};
use super::{connection_limit::LimitedListener, metrics::Metrics};

/// Time between two attempts to listen on the address.
const RETRY: Duration = Duration::from_secs(1);

/// What the server reads.
#[derive(Debug)]
pub struct Sources {
    /// For `/healthz` and `/readyz`.
    pub board: Arc<StatusBoard>,
    /// For `/metrics`.
    pub metrics: Metrics,
    /// In which the metrics are registered.
    pub registry: Registry,
}

/// Serves on `addr` until `stop`. If it cannot listen there, it reports that on
/// the board and tries again.
pub async fn run(addr: SocketAddr, sources: Sources, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = listen(addr, sources, RETRY) => {}
    }
}

/// Continues after every error.
async fn listen(addr: SocketAddr, sources: Sources, retry: Duration) {
    let board = Arc::clone(&sources.board);
    let app = router(sources);
    loop {
        let error = match TcpListener::bind(addr).await {
            Ok(listener) => {
                board.report(Reporter::Serve, Vec::new(), Instant::now());
                let listener = LimitedListener::new(listener);
                axum::serve(listener, app.clone()).await.err()
            }
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            let problem = cannot_listen(addr, &error);
            board.report(Reporter::Serve, vec![problem], Instant::now());
        }
        tokio::time::sleep(retry).await;
    }
}

fn cannot_listen(addr: SocketAddr, error: &std::io::Error) -> Problem {
    Problem::new(
        ProblemKind::MetricsAddr,
        addr.to_string(),
        format!("cannot serve metrics and health checks on {addr}: {error}"),
    )
}

fn router(sources: Sources) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(sources))
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

/// A line on readiness, then a line for each problem.
async fn readyz(State(sources): State<Arc<Sources>>) -> (StatusCode, String) {
    let status = sources.board.status(Instant::now());
    let (code, word) = match status.ready() {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
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
    (code, body)
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::serve::metrics::RangeUse;

    struct Server {
        addr: SocketAddr,
        board: Arc<StatusBoard>,
        metrics: Metrics,
    }

    /// Runs `test` against a server on a free port.
    fn with_server<F: Future<Output = ()>>(test: impl FnOnce(Server) -> F) {
        let (registry, metrics) = Metrics::register();
        let board = Arc::new(StatusBoard::new(Instant::now()));
        let sources = Sources {
            board: Arc::clone(&board),
            metrics: metrics.clone(),
            registry,
        };
        block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let server = Server {
                addr,
                board,
                metrics,
            };
            tokio::select! {
                ended = async { axum::serve(listener, router(sources)).await } => panic!("{ended:?}"),
                () = test(server) => {}
            }
        });
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(future)
    }

    async fn get(addr: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn problem(effect: Effect) -> Problem {
        Problem::new(ProblemKind::NoPodCidr, "alpha", "it broke")
            .with_effect(effect)
            .with_cure("mend it")
    }

    #[test]
    fn readyz_says_why_it_is_not_ready_one_problem_a_line() {
        with_server(|server| async move {
            let before = get(server.addr, "/readyz").await;
            assert!(before.starts_with("HTTP/1.1 503 "), "{before}");
            assert!(before.contains("starting"), "{before}");
            let both = vec![
                problem(Effect::Warning),
                Problem {
                    kind: ProblemKind::VxlanPortTaken,
                    effect: Effect::RunningPods,
                    ..problem(Effect::Warning)
                },
            ];
            server.board.report(Reporter::Pass, both, Instant::now());
            let body = get(server.addr, "/readyz").await;
            let lines = "running pods are affected: vxlan-port-taken: it broke (alpha): mend it\n\
                         warning: no-pod-cidr: it broke (alpha): mend it\n";
            assert!(body.starts_with("HTTP/1.1 503 "), "{body}");
            assert!(body.ends_with(lines), "{body}");
        });
    }

    #[test]
    fn a_warning_is_listed_and_leaves_it_ready() {
        with_server(|server| async move {
            let warning = vec![problem(Effect::Warning)];
            server.board.report(Reporter::Pass, warning, Instant::now());
            let body = get(server.addr, "/readyz").await;
            assert!(body.starts_with("HTTP/1.1 200 "), "{body}");
            assert!(body.contains("\r\n\r\nready for "), "{body}");
            assert!(body.contains("warning: no-pod-cidr: "), "{body}");
        });
    }

    #[test]
    fn healthz_does_not_depend_on_readiness() {
        with_server(|server| async move {
            let answer = get(server.addr, "/healthz").await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        });
    }

    #[test]
    fn metrics_are_openmetrics_and_show_what_was_counted() {
        with_server(|server| async move {
            let metrics = &server.metrics;
            metrics.set_nodes(3);
            metrics.set_objects("route", 7);
            metrics.drift_repaired("fdb", 2);
            metrics.watch_restarted();
            metrics.kernel_changes(5);
            metrics.reconcile_failed();
            metrics.conflist_written();
            drop(metrics.time_reconcile());
            let range = RangeUse {
                range: "10.244.1.0/24".parse().unwrap(),
                used: 4,
                free: 250,
            };
            metrics.set_addresses(&[range]);
            let two = vec![
                problem(Effect::NewPods),
                Problem {
                    object: "beta".to_owned(),
                    ..problem(Effect::NewPods)
                },
            ];
            server.board.report(Reporter::Pass, two, Instant::now());
            let answer = get(server.addr, "/metrics").await;
            for line in [
                "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8",
                concat!(
                    "tweed_build_info{version=\"",
                    env!("CARGO_PKG_VERSION"),
                    "\"} 1"
                ),
                "tweed_ready 0",
                "tweed_nodes 3",
                "tweed_objects{kind=\"route\"} 7",
                "tweed_drift_repaired_total{kind=\"fdb\"} 2",
                "tweed_reconcile_seconds_count 1",
                "tweed_reconcile_errors_total 1",
                "tweed_watch_restarts_total 1",
                "tweed_kernel_changes_total 5",
                "tweed_conflist_writes_total 1",
                "tweed_addresses{family=\"ipv4\",range=\"10.244.1.0/24\",state=\"used\"} 4.0",
                "tweed_addresses{family=\"ipv4\",range=\"10.244.1.0/24\",state=\"free\"} 250.0",
                "tweed_problems{kind=\"no-pod-cidr\"} 2",
            ] {
                assert!(answer.lines().any(|l| l == line), "no {line} in:\n{answer}");
            }
            server
                .board
                .report(Reporter::Pass, Vec::new(), Instant::now());
            let mended = get(server.addr, "/metrics").await;
            assert!(mended.contains("\ntweed_ready 1\n"), "{mended}");
            assert!(!mended.contains("no-pod-cidr"), "{mended}");
        });
    }

    #[test]
    fn a_port_that_is_taken_is_reported_and_had_once_it_is_free() {
        block_on(async {
            let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = taken.local_addr().unwrap();
            let (registry, metrics) = Metrics::register();
            let board = Arc::new(StatusBoard::new(Instant::now()));
            board.report(Reporter::Pass, Vec::new(), Instant::now());
            let sources = Sources {
                board: Arc::clone(&board),
                metrics,
                registry,
            };
            let test = async {
                let status = loop {
                    let status = board.status(Instant::now());
                    if !status.problems.is_empty() {
                        break status;
                    }
                    tokio::task::yield_now().await;
                };
                assert!(status.ready());
                assert!(status.problems[0].message.contains(&addr.to_string()));
                assert!(status.problems[0].cure.contains("--metrics-addr"));
                drop(taken);
                while !board.status(Instant::now()).problems.is_empty() {
                    tokio::task::yield_now().await;
                }
                assert!(get(addr, "/healthz").await.starts_with("HTTP/1.1 200 "));
            };
            tokio::select! {
                () = listen(addr, sources, Duration::from_millis(1)) => panic!("it ended"),
                () = test => {}
            }
        });
    }
}
