use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::SystemTime;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tweed_planner::services::WithoutLocal;

use super::*;
use crate::serve::testing::{block_on, get};

const NODE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The servers, and what their answers are made from.
struct Fixture {
    checks: watch::Sender<Arc<HealthChecks>>,
    sync: Arc<ServiceSync>,
    board: Arc<StatusBoard>,
}

impl Fixture {
    /// Has these ports answer with these numbers of endpoints.
    fn set(&self, counts: &[(u16, usize)]) {
        let checks: Vec<_> = counts.iter().map(|one| (one.0, "web", one.1)).collect();
        self.set_services(&checks);
    }

    /// Has these ports answer for these Services with these numbers of endpoints.
    fn set_services(&self, checks: &[(u16, &str, usize)]) {
        let check = |(port, name, local_endpoints): &(u16, &str, usize)| {
            let service = ServiceName {
                namespace: "shop".into(),
                name: (*name).into(),
            };
            let local_endpoints = *local_endpoints;
            let check = HealthCheck {
                service,
                local_endpoints,
            };
            (*port, check)
        };
        self.checks.send_replace(Arc::new(HealthChecks {
            checks: checks.iter().map(check).collect(),
            networks: BTreeSet::from([Span {
                first: NODE.into(),
                last: NODE.into(),
            }]),
            balancers: BTreeSet::new(),
        }));
    }

    fn answer_at_balancer(&self, balancer: Ipv4Addr) {
        self.checks.send_modify(|checks| {
            Arc::make_mut(checks).balancers.insert(balancer.into());
        });
    }

    fn problems(&self) -> Vec<String> {
        let problems = self.board.status(Instant::now()).problems;
        let of_ports = |one: &&Problem| one.kind == ProblemKind::ServiceHealthPort;
        let of_ports = problems.iter().filter(of_ports);
        of_ports.map(|one| one.object.clone()).collect()
    }
}

/// Runs `test` beside the servers, at most for a minute.
fn with_servers<F: Future<Output = ()>>(test: impl FnOnce(Fixture) -> F) {
    with_shares(Shares::of(4096), test);
}

/// The same with these shares of the file descriptors.
fn with_shares<F: Future<Output = ()>>(shares: Shares, test: impl FnOnce(Fixture) -> F) {
    let (checks, latest) = watch::channel(Arc::default());
    let sync = Arc::new(ServiceSync::new(SystemTime::now()));
    let board = Arc::new(StatusBoard::new(Instant::now()));
    let sources = Sources {
        latest,
        sync: Arc::clone(&sync),
        board: Arc::clone(&board),
    };
    let fixture = Fixture {
        checks,
        sync,
        board,
    };
    block_on(async {
        tokio::select! {
            () = serve_all(sources, Duration::from_millis(1), shares) => panic!("it ended"),
            tested = timeout(Duration::from_secs(60), test(fixture)) => tested.unwrap(),
        }
    });
}

/// None of those that the kernel draws for others, as it does while tests run side by side.
async fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .await
            .is_ok()
        {
            return port;
        }
    }
}

/// A connection, as soon as the port is listened on.
async fn connect(at: (Ipv4Addr, u16)) -> TcpStream {
    loop {
        match TcpStream::connect(at).await {
            Ok(stream) => return stream,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// The answer to a request on this connection; empty if it is closed.
async fn ask(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

#[test]
fn a_load_balancer_reads_the_latest_number_of_endpoints_on_an_open_connection() {
    with_servers(|fixture| async move {
        let port = free_port().await;
        fixture.set(&[(port, 0)]);
        let open = connect((NODE, port)).await;
        let answer = ask(connect((NODE, port)).await).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        let expected = json!({
            "service": {"namespace": "shop", "name": "web"},
            "localEndpoints": 0,
            "serviceProxyHealthy": true,
        });
        assert_eq!(body(&answer), expected);
        fixture.set(&[(port, 2)]);
        let answer = ask(open).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        for header in [
            "content-type: application/json",
            "x-content-type-options: nosniff",
            "x-load-balancing-endpoint-weight: 2",
        ] {
            assert!(answer.lines().any(|line| line == header), "{answer}");
        }
        assert_eq!(body(&answer)["localEndpoints"], 2);
        let other_path = get((NODE, port).into(), "/").await;
        assert!(other_path.starts_with("HTTP/1.1 200 "), "{other_path}");
    });
}

#[test]
fn an_agent_whose_loop_is_stuck_says_so() {
    let long_ago = Instant::now() - Duration::from_secs(120);
    let port = 31000;
    let (checks, latest) = watch::channel(Arc::default());
    let sync = Arc::new(ServiceSync::new(SystemTime::now()));
    for (heartbeat, status) in [
        (Instant::now(), StatusCode::OK),
        (long_ago, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let sources = Sources {
            latest: latest.clone(),
            sync: Arc::clone(&sync),
            board: Arc::new(StatusBoard::new(heartbeat)),
        };
        let fixture = Fixture {
            checks: checks.clone(),
            sync: Arc::clone(&sync),
            board: Arc::clone(&sources.board),
        };
        fixture.set(&[(port, 2)]);
        let check = Arc::new(Check { port, sources });
        let answered = block_on(async { answer(State(check)).await });
        assert_eq!(answered.status(), status);
    }
}

#[test]
fn an_agent_that_is_late_says_so_with_endpoints_too() {
    with_servers(|fixture| async move {
        let port = free_port().await;
        fixture.set(&[(port, 2)]);
        let long_ago = Instant::now() - Duration::from_secs(60);
        fixture.sync.failed(long_ago);
        let answer = ask(connect((NODE, port)).await).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert_eq!(body(&answer)["serviceProxyHealthy"], false);
        assert_eq!(body(&answer)["localEndpoints"], 2);
        let (took, none) = (Duration::ZERO, WithoutLocal::default());
        fixture.sync.written(took, true, none);
        let answer = ask(connect((NODE, port)).await).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(body(&answer)["serviceProxyHealthy"], true);
    });
}

/// Waits until the port answers for this Service with this number of endpoints.
async fn answers(port: u16, name: &str, local_endpoints: usize) {
    let status = if local_endpoints > 0 { 200 } else { 503 };
    loop {
        let answer = ask(connect((NODE, port)).await).await;
        // Another server may be about to end, or has ended since.
        if answer.contains(&format!("\"name\":\"{name}\"")) {
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            );
            assert_eq!(body(&answer)["localEndpoints"], local_endpoints);
            return;
        }
    }
}

#[test]
fn a_service_that_changes_or_goes_leaves_the_others_as_they_are() {
    with_servers(|fixture| async move {
        let mut free = Vec::new();
        for _ in 0..4 {
            free.push(TcpListener::bind("[::]:0").await.unwrap());
        }
        let ports: Vec<u16> = free
            .iter()
            .map(|one| one.local_addr().unwrap().port())
            .collect();
        drop(free);
        let [a, b, c, d] = ports[..] else {
            panic!("{ports:?}");
        };
        fixture.set_services(&[(a, "goes", 9), (b, "stays", 3), (c, "moves", 0)]);
        answers(a, "goes", 9).await;
        answers(b, "stays", 3).await;
        answers(c, "moves", 0).await;
        let open = connect((NODE, b)).await;
        // One gets the port of another.
        fixture.set_services(&[(b, "stays", 3), (d, "moves", 7), (c, "comes", 6)]);
        while TcpStream::connect((NODE, a)).await.is_ok() {
            tokio::task::yield_now().await;
        }
        let answer = ask(open).await;
        assert_eq!(body(&answer)["localEndpoints"], 3, "{answer}");
        answers(d, "moves", 7).await;
        answers(c, "comes", 6).await;
        fixture.set_services(&[(b, "stays", 0), (d, "moves", 7), (c, "comes", 6)]);
        answers(b, "stays", 0).await;
        answers(d, "moves", 7).await;
    });
}

#[test]
fn it_answers_where_node_ports_are_and_at_addresses_of_load_balancers() {
    with_servers(|fixture| async move {
        let port = free_port().await;
        fixture.set(&[(port, 1)]);
        assert_ne!(ask(connect((NODE, port)).await).await, "");
        assert_eq!(ask(connect((OTHER, port)).await).await, "");
        fixture.answer_at_balancer(OTHER);
        assert_ne!(ask(connect((OTHER, port)).await).await, "");
    });
}

#[test]
fn a_port_that_is_taken_is_reported_and_had_once_it_is_free() {
    with_servers(|fixture| async move {
        let taken = TcpListener::bind((NODE, 0)).await.unwrap();
        let other = TcpListener::bind((NODE, 0)).await.unwrap();
        let [first, second] = [&taken, &other].map(|one| one.local_addr().unwrap().port());
        let served = free_port().await;
        fixture.set(&[(first, 1), (second, 1), (served, 1)]);
        let mut expected = vec![first.to_string(), second.to_string()];
        expected.sort();
        while fixture.problems() != expected {
            tokio::task::yield_now().await;
        }
        let answer = ask(connect((NODE, served)).await).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        drop(taken);
        let answer = ask(connect((NODE, first)).await).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(fixture.problems(), [second.to_string()]);
        // A port that no Service has is no problem, and is let go.
        fixture.set(&[(served, 1)]);
        while !fixture.problems().is_empty() {
            tokio::task::yield_now().await;
        }
        while TcpListener::bind((Ipv6Addr::UNSPECIFIED, first))
            .await
            .is_err()
        {
            tokio::task::yield_now().await;
        }
    });
}

/// While kube-proxy has the ports each is tried every second.
#[test]
fn many_ports_that_are_taken_are_few_problems_and_the_same_failure_is_no_news() {
    let board = Arc::new(StatusBoard::new(Instant::now()));
    let failures = Failures::new(&board);
    let taken = || Some(io::Error::from(io::ErrorKind::AddrInUse));
    let shown = || {
        let problems = board.status(Instant::now()).problems;
        let of_ports = |one: &Problem| one.kind == ProblemKind::ServiceHealthPort;
        let failed = problems.into_iter().filter(of_ports);
        let objects = failed.map(|one| (one.object, one.message));
        objects.collect::<BTreeMap<String, String>>()
    };
    for port in 1..=25 {
        failures.set(port, taken());
    }
    assert_eq!(shown().len(), MAX_SHOWN + 1);
    assert!(shown()["others"].contains("5 more"), "{:?}", shown());
    let mut changes = board.changes();
    changes.mark_unchanged();
    failures.set(7, taken());
    failures.set(99, None);
    assert!(!changes.has_changed().unwrap());
    for port in 1..=20 {
        failures.set(port, None);
    }
    assert_eq!(
        shown().into_keys().collect::<Vec<_>>(),
        ["21", "22", "23", "24", "25"]
    );
}

#[test]
fn of_too_many_ports_each_namespace_has_the_first_ones() {
    let check = |(port, namespace): (u16, &str)| {
        let service = ServiceName {
            namespace: namespace.into(),
            name: "web".into(),
        };
        let local_endpoints = 0;
        let check = HealthCheck {
            service,
            local_endpoints,
        };
        (port, check)
    };
    let ports = [(1, "a"), (2, "a"), (3, "a"), (4, "a"), (5, "b"), (6, "b")];
    let checks = HealthChecks {
        checks: ports.into_iter().map(check).collect(),
        ..HealthChecks::default()
    };
    for (most, expected) in [
        (0, vec![]),
        (1, vec![1]),
        (2, vec![1, 5]),
        (3, vec![1, 2, 5]),
        (5, vec![1, 2, 3, 5, 6]),
        (6, vec![1, 2, 3, 4, 5, 6]),
    ] {
        let listened = checks.listened(most);
        assert_eq!(listened.into_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_port_without_a_listener_is_named_and_listened_on_once_there_is_room() {
    let shares = Shares {
        health_checks: 1,
        ..Shares::of(4096)
    };
    with_shares(shares, |fixture| async move {
        let mut ports = [free_port().await, free_port().await, free_port().await];
        ports.sort_unstable();
        let [first, second, third] = ports;
        fixture.set(&[(second, 1), (third, 1)]);
        assert_ne!(ask(connect((NODE, second)).await).await, "");
        assert_eq!(fixture.problems(), ["open files"]);
        TcpStream::connect((NODE, third)).await.unwrap_err();
        // One that sorts before it has the place.
        fixture.set(&[(first, 1), (second, 1), (third, 1)]);
        assert_ne!(ask(connect((NODE, first)).await).await, "");
        TcpStream::connect((NODE, second)).await.unwrap_err();
        let problems = fixture.board.status(Instant::now()).problems;
        let messages = problems.iter().map(|one| one.message.as_str());
        let said = messages.collect::<Vec<_>>().join("\n");
        let expected = format!(
            "of 2 Services, as the agent may have only 4096 files open: shop/web ({second}), shop/web ({third})"
        );
        assert!(said.contains(&expected), "{said}");
        fixture.set(&[(third, 1)]);
        assert_ne!(ask(connect((NODE, third)).await).await, "");
        assert!(fixture.problems().is_empty());
    });
}
