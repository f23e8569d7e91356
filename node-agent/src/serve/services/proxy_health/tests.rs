use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tweed_core::object::service::Service as ServiceObject;
use tweed_core::problem::Problem;
use tweed_planner::services::WithoutLocal;

use super::*;
use crate::serve::connections::serve;
use crate::serve::testing::{block_on, get};

struct Server {
    health: SocketAddr,
    metrics: SocketAddr,
    sync: Arc<ServiceSync>,
    eligible: Arc<AtomicBool>,
}

impl Server {
    fn write(&self) {
        let (took, none) = (Duration::ZERO, WithoutLocal::default());
        self.sync.planned();
        self.sync.written(took, true, none);
    }

    /// The status of an answer and its body.
    async fn ask(&self, path: &str) -> (u16, Value) {
        let answer = get(self.health, path).await;
        for header in [
            "content-type: application/json",
            "x-content-type-options: nosniff",
        ] {
            assert!(answer.lines().any(|line| line == header), "{answer}");
        }
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    async fn statuses(&self) -> (u16, u16) {
        (self.ask("/healthz").await.0, self.ask("/livez").await.0)
    }
}

/// Runs `test` against both servers on free ports.
fn with_servers<F: Future<Output = ()>>(test: impl FnOnce(Server) -> F) {
    let sync = Arc::new(ServiceSync::new(SystemTime::now()));
    let eligible = Arc::new(AtomicBool::new(true));
    let is_eligible = Arc::clone(&eligible);
    let sources = Sources {
        sync: Arc::clone(&sync),
        board: Arc::new(StatusBoard::new(Instant::now())),
        eligible: Box::new(move || is_eligible.load(Ordering::SeqCst)),
        kube_proxy: watch::channel(KubeProxyRules::Gone).1,
    };
    block_on(async {
        let health = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let metrics = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            health: health.local_addr().unwrap(),
            metrics: metrics.local_addr().unwrap(),
            eligible,
            sync,
        };
        let metrics_app = Service::new(metrics_app(&server.sync), limits());
        tokio::select! {
            error = serve(health, Service::new(health_app(sources), limits())) => panic!("{error}"),
            error = serve(metrics, metrics_app) => panic!("{error}"),
            () = test(server) => {}
        }
    });
}

#[test]
fn load_balancers_send_nothing_to_a_node_that_leaves_or_has_no_services_yet() {
    with_servers(|server| async move {
        assert_eq!(server.statuses().await, (503, 200), "nothing is written");
        server.write();
        assert_eq!(server.statuses().await, (200, 200));
        server.eligible.store(false, Ordering::SeqCst);
        assert_eq!(server.statuses().await, (503, 200), "the node leaves");
        server.eligible.store(true, Ordering::SeqCst);
        assert_eq!(server.statuses().await, (200, 200));
    });
}

#[test]
fn load_balancers_go_on_while_the_kernel_has_the_services_of_an_earlier_run() {
    with_servers(|server| async move {
        server.sync.set_served(true);
        assert_eq!(server.statuses().await, (200, 200));
        server.sync.set_served(false);
        assert_eq!(server.statuses().await, (503, 200), "the table is gone");
    });
}

#[test]
fn an_api_server_that_lists_only_a_part_is_not_the_kernel_being_late() {
    with_servers(|server| async move {
        server.sync.set_served(true);
        let long_ago = Instant::now() - Duration::from_secs(60);
        server.sync.changed::<ServiceObject>(Vec::new(), long_ago);
        server.sync.held();
        assert_eq!(server.statuses().await, (200, 200));
        let metrics = get(server.metrics, "/metrics").await;
        let pending = "kubeproxy_sync_proxy_rules_service_changes_pending 1";
        assert!(metrics.lines().any(|one| one == pending), "{metrics}");
        // What is planned is to be written in time.
        server.sync.changed::<ServiceObject>(Vec::new(), long_ago);
        server.sync.planned();
        assert_eq!(server.statuses().await, (503, 503));
    });
}

#[test]
fn a_change_that_is_not_written_for_a_minute_makes_both_fail() {
    with_servers(|server| async move {
        server.write();
        let long_ago = Instant::now() - Duration::from_secs(60);
        server.sync.changed::<ServiceObject>(Vec::new(), long_ago);
        assert_eq!(server.statuses().await, (503, 503));
        server.write();
        assert_eq!(server.statuses().await, (200, 200));
        let metrics = get(server.metrics, "/metrics").await;
        for line in [
            "kubeproxy_proxy_healthz_total{code=\"503\"} 1",
            "kubeproxy_proxy_healthz_total{code=\"200\"} 1",
            "kubeproxy_proxy_livez_total{code=\"503\"} 1",
            "kubeproxy_proxy_livez_total{code=\"200\"} 1",
        ] {
            assert!(
                metrics.lines().any(|one| one == line),
                "no {line} in:\n{metrics}"
            );
        }
    });
}

#[test]
fn an_agent_whose_loop_is_stuck_makes_both_fail() {
    let sync = Arc::new(ServiceSync::new(SystemTime::now()));
    sync.written(Duration::ZERO, true, WithoutLocal::default());
    let long_ago = Instant::now() - Duration::from_secs(120);
    for (heartbeat, expected) in [
        (Instant::now(), StatusCode::OK),
        (long_ago, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let sources = Sources {
            sync: Arc::clone(&sync),
            board: Arc::new(StatusBoard::new(heartbeat)),
            eligible: Box::new(|| true),
            kube_proxy: watch::channel(KubeProxyRules::Gone).1,
        };
        assert_eq!(sources.answer(Some(true), |written| written).0, expected);
        assert_eq!(sources.answer(None, |_| true).0, expected);
    }
}

#[test]
fn the_bodies_have_the_keys_of_kube_proxy() {
    with_servers(|server| async move {
        server.write();
        let (_, good) = server.ask("/healthz").await;
        assert_eq!(good["nodeEligible"], true);
        assert_eq!(good["healthy"], true);
        assert_eq!(good["lastUpdated"], good["currentTime"]);
        server.eligible.store(false, Ordering::SeqCst);
        let (_, leaving) = server.ask("/healthz").await;
        assert_eq!(leaving["nodeEligible"], false);
        assert_eq!(leaving["healthy"], true);
        let [updated, current] =
            ["lastUpdated", "currentTime"].map(|key| leaving[key].as_str().unwrap().to_owned());
        assert!(updated < current, "{updated} {current}");
        assert!(updated.ends_with('Z'), "{updated}");
        let (_, live) = server.ask("/livez").await;
        assert_eq!(live.get("nodeEligible"), None);
        assert_eq!(live["healthy"], true);
    });
}

#[test]
fn dashboards_find_kube_proxy_s_names_on_its_port() {
    with_servers(|server| async move {
        server.write();
        let metrics = get(server.metrics, "/metrics").await;
        for series in [
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"0.001\"} 1",
            "kubeproxy_sync_full_proxy_rules_duration_seconds_count 1",
            "kubeproxy_sync_partial_proxy_rules_duration_seconds_count 0",
            "kubeproxy_network_programming_duration_seconds_bucket{le=\"0.25\"} 0",
            "kubeproxy_network_programming_duration_seconds_bucket{le=\"300.0\"} 0",
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds ",
            "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds ",
            "kubeproxy_sync_proxy_rules_endpoint_changes_total 0",
            "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0",
            "kubeproxy_sync_proxy_rules_service_changes_total 0",
            "kubeproxy_sync_proxy_rules_service_changes_pending 0",
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy=\"internal\"} 0",
            "kubeproxy_sync_proxy_rules_nftables_sync_failures_total 0",
        ] {
            assert!(
                metrics.lines().any(|line| line.starts_with(series)),
                "no {series} in:\n{metrics}"
            );
        }
        let mode = get(server.metrics, "/proxyMode").await;
        assert!(mode.starts_with("HTTP/1.1 200 "), "{mode}");
        assert!(mode.ends_with("\r\n\r\nnftables"), "{mode}");
        let alive = get(server.metrics, "/healthz").await;
        assert!(alive.ends_with("\r\n\r\nok"), "{alive}");
    });
}

/// How long the port may take to change hands before that is taken for broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Listens there as soon as nobody else does: a program that another test is starting may
/// still have a listener that this process has closed.
async fn listen(addr: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(addr).await {
            Ok(listener) => return listener,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Waits until the board has this many problems of listening for dashboards.
async fn listening_problems(board: &StatusBoard, count: usize) {
    let is_one = |problem: &&Problem| problem.kind == ProblemKind::ServicesMetricsAddr;
    let problems = || board.status(Instant::now()).problems;
    let mut changes = board.changes();
    let reported = changes.wait_for(|()| problems().iter().filter(is_one).count() == count);
    drop(reported.await.unwrap());
}

/// A kube-proxy that starts again while the agent runs would go on without its port, and
/// nobody could tell that it runs.
#[test]
fn kube_proxy_gets_its_port_while_its_rules_are_there() {
    let board = Arc::new(StatusBoard::new(Instant::now()));
    let app = metrics_app(&ServiceSync::new(SystemTime::now()));
    let (rules, found) = watch::channel(KubeProxyRules::default());
    block_on(async {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = free.local_addr().unwrap();
        let kind = ProblemKind::ServicesMetricsAddr;
        let report = reporter(&board, kind, addr);
        let service = Service::new(app, limits());
        let test = async {
            drop(free);
            // The other future has its turn before this one is woken.
            tokio::task::yield_now().await;
            let free = listen(addr).await;
            // The port is taken, which is a problem until it is not.
            rules.send_replace(KubeProxyRules::Gone);
            listening_problems(&board, 1).await;
            drop(free);
            listening_problems(&board, 0).await;
            assert!(get(addr, "/proxyMode").await.ends_with("nftables"));
            rules.send_replace(KubeProxyRules::There);
            listening_problems(&board, 1).await;
            let kube_proxy = listen(addr).await;
            rules.send_replace(KubeProxyRules::Gone);
            drop(kube_proxy);
            listening_problems(&board, 0).await;
            assert!(get(addr, "/proxyMode").await.ends_with("nftables"));
        };
        tokio::select! {
            () = listen_after_kube_proxy(addr, service, found, report) => {}
            ended = tokio::time::timeout(PATIENCE, test) => ended.unwrap(),
        }
    });
}
