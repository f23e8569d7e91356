//! Requests over TLS to a guarded listener, with a small API server behind it.

use std::net::SocketAddr;

use axum::http::Method;
use axum::routing::get;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::*;
use crate::serve::connections::{LIMITS, Service, serve};
use crate::serve::tls::Identity;
use crate::testing::{Answers, Api, client};

/// What an API server holds that knows the tokens `reader` and `stranger`, or refuses all.
#[derive(Default)]
struct Reviews {
    /// `spec` of each review.
    asked: Vec<Value>,
    refuse: Option<u16>,
}

impl Answers for Reviews {
    fn answer(
        &mut self,
        _: &Method,
        path: &str,
        _: &str,
        body: &[u8],
    ) -> Result<(u16, Value), u16> {
        if let Some(code) = self.refuse {
            return Err(code);
        }
        let review: Value = serde_json::from_slice(body).unwrap();
        self.asked.push(review["spec"].clone());
        let status = match path {
            TOKEN_REVIEWS => token_review(&review),
            ACCESS_REVIEWS => access_review(&review),
            other => panic!("{other}"),
        };
        Ok((201, json!({ "status": status })))
    }
}

fn token_review(review: &Value) -> Value {
    assert_eq!(review["kind"], "TokenReview");
    match review["spec"]["token"].as_str().unwrap() {
        name @ ("reader" | "stranger") => json!({
            "authenticated": true,
            "user": {
                "username": name,
                "uid": "u",
                "groups": ["system:authenticated"],
                "extra": { "node": ["n1"] },
            },
        }),
        _ => json!({ "error": "invalid bearer token" }),
    }
}

fn access_review(review: &Value) -> Value {
    assert_eq!(review["kind"], "SubjectAccessReview");
    json!({ "allowed": review["spec"]["user"] == "reader" })
}

/// A guarded listener, over TLS.
struct Guarded {
    address: SocketAddr,
    identity: Identity,
    reviewer: Arc<Reviewer>,
    board: Arc<StatusBoard>,
    task: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Guarded {
    async fn start(api: &Api<Reviews>) -> Self {
        Self::start_with(api, FRESH).await
    }

    /// Takes an answer as it was for so long.
    async fn start_with(api: &Api<Reviews>, fresh: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let board = Arc::new(StatusBoard::new(Instant::now()));
        board.report(Reporter::Pass, Vec::new(), Instant::now());
        let client = client(&folder, &api.address.to_string());
        let mut reviewer = Reviewer::new(client, Arc::clone(&board));
        reviewer.fresh = fresh;
        let reviewer = Arc::new(reviewer);
        let app = Router::new().route("/metrics", get(async || "the metrics"));
        let identity = Identity::self_signed("n1").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = Service {
            tls: Some(identity.clone()),
            ..Service::new(guarded(app, Arc::clone(&reviewer)), LIMITS)
        };
        Self {
            address,
            identity,
            reviewer,
            board,
            task: tokio::spawn(async move { panic!("{}", serve(listener, service).await) }),
            _folder: folder,
        }
    }

    /// The answer to a request with this header.
    async fn get(&self, authorization: &str) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(self.identity.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("n1").unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn get_as(&self, token: &str) -> String {
        self.get(&format!("Authorization: Bearer {token}\r\n"))
            .await
    }

    fn problems(&self) -> Vec<&'static str> {
        let problems = self.board.status(Instant::now()).problems;
        problems.iter().map(|problem| problem.kind.word()).collect()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn who_may_read_the_path_reads_it_and_is_asked_about_once() {
    let api = Api::start(Reviews::default()).await;
    let guarded = Guarded::start(&api).await;
    for _ in 0..2 {
        let answer = guarded.get_as("reader").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.ends_with("the metrics"), "{answer}");
    }
    let expected = [
        json!({ "token": "reader" }),
        json!({
            "user": "reader",
            "uid": "u",
            "groups": ["system:authenticated"],
            "extra": { "node": ["n1"] },
            "nonResourceAttributes": { "path": "/metrics", "verb": "get" },
        }),
    ];
    assert_eq!(api.held().asked, expected);
}

#[tokio::test]
async fn everybody_else_is_refused() {
    let api = Api::start(Reviews::default()).await;
    let guarded = Guarded::start(&api).await;
    for (authorization, expected, asked) in [
        ("", "HTTP/1.1 401 ", 0),
        ("Authorization: Bearer \r\n", "HTTP/1.1 401 ", 0),
        ("Authorization: Basic reader\r\n", "HTTP/1.1 401 ", 0),
        ("Authorization: Bearer forged\r\n", "HTTP/1.1 401 ", 1),
        ("Authorization: Bearer stranger\r\n", "HTTP/1.1 403 ", 3),
    ] {
        let answer = guarded.get(authorization).await;
        assert!(answer.starts_with(expected), "{authorization}: {answer}");
        assert!(!answer.contains("the metrics"), "{authorization}: {answer}");
        assert_eq!(api.count(), asked, "{authorization}");
    }
}

#[tokio::test]
async fn without_tls_there_is_no_answer() {
    let api = Api::start(Reviews::default()).await;
    let guarded = Guarded::start(&api).await;
    let mut stream = TcpStream::connect(guarded.address).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    // An alert of TLS, or nothing.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(api.count(), 0);
}

#[tokio::test]
async fn without_an_api_server_only_who_was_allowed_lately_reads_on() {
    let mut api = Api::start(Reviews::default()).await;
    let guarded = Guarded::start_with(&api, Duration::ZERO).await;
    for token in ["reader", "stranger"] {
        guarded.get_as(token).await;
    }
    api.held().refuse = Some(503);
    let silent = guarded.get_as("reader").await;
    assert!(silent.starts_with("HTTP/1.1 200 "), "{silent}");
    // The token may have been taken back: without the right to ask nobody knows.
    api.held().refuse = Some(403);
    let refused = guarded.get_as("reader").await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    api.held().refuse = None;
    guarded.get_as("reader").await;
    api.task.abort();
    let _ = (&mut api.task).await;
    for (token, expected) in [
        ("reader", "HTTP/1.1 200 "),
        ("stranger", "HTTP/1.1 503 "),
        ("unknown", "HTTP/1.1 503 "),
    ] {
        let answer = guarded.get_as(token).await;
        assert!(answer.starts_with(expected), "{token}: {answer}");
    }
    // The watch of the Nodes reports it.
    assert!(guarded.problems().is_empty());
}

#[tokio::test]
async fn what_rbac_refuses_the_agent_is_reported_until_it_is_mended() {
    let api = Api::start(Reviews::default()).await;
    let guarded = Guarded::start(&api).await;
    api.held().refuse = Some(403);
    let answer = guarded.get_as("reader").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(guarded.problems(), ["metrics-auth"]);
    api.held().refuse = None;
    let answer = guarded.get_as("reader").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(guarded.problems().is_empty());
}

/// Whoever sends forged tokens keeps only others without a review waiting.
#[tokio::test]
async fn who_was_allowed_lately_does_not_wait_for_the_reviews_of_others() {
    let api = Api::start(Reviews::default()).await;
    let guarded = Guarded::start_with(&api, Duration::ZERO).await;
    guarded.get_as("reader").await;
    let asked = api.count();
    let _turn = guarded.reviewer.turns.acquire().await.unwrap();
    let answer = guarded.get_as("reader").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(api.count(), asked + 2, "it was reviewed again");
    let answer = guarded.get_as("forged").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(api.count(), asked + 2, "there is one review at a time");
}

/// With a right taken away it is over as soon as the API server is asked.
#[tokio::test]
async fn who_may_no_longer_read_is_refused_after_the_next_review() {
    let api = Api::start(Reviews::default()).await;
    let guarded = Guarded::start_with(&api, Duration::ZERO).await;
    let ask = key("stranger", "get", "/metrics");
    guarded.reviewer.allowed().set(ask, true, Instant::now());
    let answer = guarded.get_as("stranger").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(guarded.reviewer.allowed().since(&ask, Instant::now()), None);
}

#[test]
fn what_was_allowed_is_fresh_then_remembered_then_forgotten() {
    let mut allowed = Allowed::default();
    let now = Instant::now();
    let ask = key("reader", "get", "/metrics");
    assert_eq!(allowed.since(&ask, now), None);
    allowed.set(ask, true, now);
    assert_eq!(allowed.since(&ask, now + FRESH), Some(FRESH));
    assert_eq!(allowed.since(&ask, now + REMEMBERED), None);
    assert_eq!(allowed.since(&key("reader", "get", "/readyz"), now), None);
    allowed.set(ask, false, now);
    assert_eq!(allowed.since(&ask, now), None);
}

#[test]
fn of_too_many_the_oldest_is_forgotten() {
    let mut allowed = Allowed::default();
    let start = Instant::now();
    let asks: Vec<Key> = (0..=MAX_REMEMBERED)
        .map(|number| key(&number.to_string(), "get", "/metrics"))
        .collect();
    for (seconds, ask) in (0..).zip(&asks) {
        allowed.set(*ask, true, start + Duration::from_secs(seconds));
    }
    assert_eq!(allowed.0.len(), MAX_REMEMBERED);
    assert_eq!(allowed.since(&asks[0], start), None);
    assert!(allowed.since(&asks[1], start).is_some());
}
