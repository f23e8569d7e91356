use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket};

use super::*;
use crate::serve::connections::{LIMITS, serve};
use crate::serve::metrics::RangeUse;
use crate::serve::testing::{block_on, get};

struct Server {
    metrics_addr: SocketAddr,
    health_addr: SocketAddr,
    board: Arc<StatusBoard>,
    metrics: Metrics,
}

fn sources() -> Arc<Sources> {
    let (registry, metrics) = Metrics::register();
    let sources = Sources {
        board: Arc::new(StatusBoard::new(Instant::now())),
        metrics,
        registries: vec![registry],
    };
    Arc::new(sources)
}

/// Runs `test` against a server with these limits, on free ports.
fn with_limits<F: Future<Output = ()>>(limits: Limits, test: impl FnOnce(Server) -> F) {
    let sources = sources();
    let (board, metrics) = (Arc::clone(&sources.board), sources.metrics.clone());
    let (metrics_app, health_app) = apps(sources);
    block_on(async {
        let metrics_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let health_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            metrics_addr: metrics_listener.local_addr().unwrap(),
            health_addr: health_listener.local_addr().unwrap(),
            board,
            metrics,
        };
        tokio::select! {
            error = serve(metrics_listener, Service::new(metrics_app, limits)) => panic!("{error}"),
            error = serve(health_listener, Service::new(health_app, limits)) => panic!("{error}"),
            () = test(server) => {}
        }
    });
}

fn with_server<F: Future<Output = ()>>(test: impl FnOnce(Server) -> F) {
    with_limits(LIMITS, test);
}

fn problem(effect: Effect) -> Problem {
    Problem::new(ProblemKind::NoPodCidr, "alpha", "it broke")
        .with_effect(effect)
        .with_cure("mend it")
}

#[test]
fn readyz_says_why_it_is_not_ready_one_problem_a_line() {
    with_server(|server| async move {
        let before = get(server.health_addr, "/readyz").await;
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
        let body = get(server.health_addr, "/readyz").await;
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
        let body = get(server.health_addr, "/readyz").await;
        assert!(body.starts_with("HTTP/1.1 200 "), "{body}");
        assert!(body.contains("\r\n\r\nready for "), "{body}");
        assert!(body.contains("warning: no-pod-cidr: "), "{body}");
    });
}

#[test]
fn what_is_no_problem_is_a_note() {
    with_server(|server| async move {
        server
            .board
            .report(Reporter::Pass, Vec::new(), Instant::now());
        let note = "the API server has no such kind".to_owned();
        server.board.set_notes(Reporter::Pass, vec![note]);
        server.board.set_notes(Reporter::Publish, Vec::new());
        let body = get(server.health_addr, "/readyz").await;
        assert!(body.starts_with("HTTP/1.1 200 "), "{body}");
        assert!(
            body.ends_with(" s\nnote: the API server has no such kind\n"),
            "{body}"
        );
        server.board.set_notes(Reporter::Pass, Vec::new());
        let body = get(server.health_addr, "/readyz").await;
        assert!(!body.contains("note: "), "{body}");
    });
}

#[test]
fn a_program_gets_readyz_as_json() {
    with_server(|server| async move {
        let problem = Problem::new(ProblemKind::NoPodCidr, "n1", "it has none").with_cure("wait");
        let problems = vec![problem];
        server
            .board
            .report(Reporter::Pass, problems, Instant::now());
        let note = vec!["a note".to_owned()];
        server.board.set_notes(Reporter::Pass, note);
        let answer = get(server.health_addr, "/readyz?format=json").await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/json"), "{head}");
        let document: serde_json::Value = serde_json::from_str(body).unwrap();
        let expected = serde_json::json!({
            "ready": false,
            "unchangedForSeconds": document["unchangedForSeconds"],
            "problems": [{
                "kind": "no-pod-cidr",
                "object": "n1",
                "effect": "new-pods",
                "message": "it has none",
                "cure": "wait",
            }],
            "notes": ["a note"],
        });
        assert_eq!(document, expected);
        let text = get(server.health_addr, "/readyz?format=text").await;
        assert!(text.contains("\r\n\r\nnot ready for "), "{text}");
    });
}

/// Without a kubelet nobody asks for /healthz.
#[test]
fn a_loop_that_has_stopped_is_a_problem_until_it_runs_again() {
    with_server(|server| async move {
        let board = &server.board;
        let long_ago = Instant::now() - Duration::from_secs(90);
        board.report(Reporter::Pass, Vec::new(), Instant::now());
        board.heartbeat(long_ago);
        let body = get(server.health_addr, "/readyz").await;
        assert!(body.starts_with("HTTP/1.1 200 "), "{body}");
        assert!(body.contains("warning: loop-stuck: "), "{body}");
        let metrics = get(server.metrics_addr, "/metrics").await;
        let series = "\ntweed_problems{kind=\"loop-stuck\"} 1\n";
        assert!(metrics.contains(series), "{metrics}");
        board.heartbeat(Instant::now());
        let body = get(server.health_addr, "/readyz").await;
        assert!(!body.contains("loop-stuck"), "{body}");
    });
}

#[test]
fn healthz_does_not_depend_on_readiness() {
    with_server(|server| async move {
        let answer = get(server.health_addr, "/healthz").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    });
}

#[test]
fn the_metrics_listener_has_all_paths_and_the_health_listener_no_metrics() {
    with_server(|server| async move {
        for path in ["/healthz", "/readyz"] {
            let answer = get(server.metrics_addr, path).await;
            assert!(!answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
        }
        let answer = get(server.health_addr, "/metrics").await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    });
}

/// Any pod can open connections to the node's address and send nothing.
#[test]
fn idle_connections_of_one_source_keep_nobody_else_from_an_answer() {
    // Nothing else than the number of connections is to close one.
    let patient = Limits {
        header_read_timeout: Duration::from_secs(3600),
        max_lifetime: Duration::from_secs(3600),
        ..LIMITS
    };
    with_limits(patient, |server| async move {
        let mut idle = Vec::new();
        for _ in 0..400 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            idle.push(socket.connect(server.metrics_addr).await.unwrap());
        }
        let answers = async {
            for (addr, path) in [
                (server.health_addr, "/healthz"),
                (server.metrics_addr, "/metrics"),
                (server.metrics_addr, "/healthz"),
            ] {
                let answer = get(addr, path).await;
                assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
            }
        };
        let limit = Duration::from_secs(60);
        tokio::time::timeout(limit, answers).await.unwrap();
        // Of this source the newest stay open and the others are closed.
        let newest = idle.pop().unwrap();
        let still = newest.try_read(&mut [0; 1]).map_err(|error| error.kind());
        assert_eq!(still, Err(std::io::ErrorKind::WouldBlock));
        let mut byte = [0; 1];
        let closed = tokio::time::timeout(limit, idle[0].read(&mut byte));
        assert_eq!(closed.await.unwrap().unwrap_or(0), 0);
    });
}

#[test]
fn metrics_show_what_was_counted() {
    with_server(|server| async move {
        let metrics = &server.metrics;
        metrics.nodes.set(3);
        metrics.set_objects("route", 7);
        metrics.drift_repaired("fdb", &[].into(), 2);
        metrics.watch_restarts.inc();
        metrics.listed_again("nodes");
        metrics.kernel_changes.inc_by(5);
        metrics.reconcile_errors.inc();
        metrics.conflist_writes.inc();
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
        let answer = get(server.metrics_addr, "/metrics").await;
        for line in [
            "content-type: text/plain; version=0.0.4; charset=utf-8",
            concat!(
                "tweed_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\",commit=\"",
                env!("TWEED_COMMIT"),
                "\"} 1"
            ),
            "tweed_ready 0",
            "tweed_nodes 3",
            "tweed_objects{kind=\"route\"} 7",
            "tweed_drift_repaired_total{kind=\"fdb\"} 2",
            "tweed_reconcile_duration_seconds_count 1",
            "tweed_reconcile_errors_total 1",
            "tweed_watch_restarts_total 1",
            "tweed_relists_total{kind=\"nodes\"} 1",
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
        let mended = get(server.metrics_addr, "/metrics").await;
        assert!(mended.contains("\ntweed_ready 1\n"), "{mended}");
        assert!(!mended.contains("no-pod-cidr"), "{mended}");
    });
}

#[test]
fn a_port_that_is_taken_is_reported_and_had_once_it_is_free() {
    block_on(async {
        let taken = [
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        ];
        let [metrics, health] = [&taken[0], &taken[1]].map(|l| l.local_addr().unwrap());
        let sources = sources();
        let board = Arc::clone(&sources.board);
        board.report(Reporter::Pass, Vec::new(), Instant::now());
        let test = async {
            let status = loop {
                let status = board.status(Instant::now());
                if status.problems.len() == 2 {
                    break status;
                }
                tokio::task::yield_now().await;
            };
            assert!(status.ready());
            for (problem, addr, flag) in [
                (&status.problems[0], health, "--health-addr"),
                (&status.problems[1], metrics, "--metrics-addr"),
            ] {
                assert!(problem.message.contains(&addr.to_string()), "{problem}");
                assert!(problem.cure.contains(flag), "{problem}");
            }
            drop(taken);
            while !board.status(Instant::now()).problems.is_empty() {
                tokio::task::yield_now().await;
            }
            for addr in [metrics, health] {
                assert!(get(addr, "/healthz").await.starts_with("HTTP/1.1 200 "));
            }
        };
        let addresses = Addresses { metrics, health };
        tokio::select! {
            () = listen_on(addresses, sources, None, Duration::from_millis(1), LIMITS) => panic!("it ended"),
            () = test => {}
        }
    });
}
