//! Who may read the metrics, by the word of the API server: a `TokenReview` says
//! whose token a request carries, and a `SubjectAccessReview` whether its owner may
//! read that path (RBAC: `nonResourceURLs`).
//!
//! A request without a valid token costs the API server one request, and there is
//! one at a time, so that whoever reaches the port cannot use this node to flood
//! it. Who was allowed lately does not wait behind those, and stays allowed while
//! the API server does not answer: that is when metrics are needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_watch::client::{ApiClient, Failure, Request as ApiRequest};

use super::status::{Reporter, StatusBoard};

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// How long an answer is taken as it was: so late is a right that was taken away
/// noticed.
const FRESH: Duration = Duration::from_secs(300);
/// How long somebody who was allowed stays so without an API server.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Maximum number of requests that are remembered. A token of a pod is replaced
/// every hour.
const MAX_REMEMBERED: usize = 64;
/// Maximum time for both reviews of a request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the API server, and remembers what it allowed.
#[derive(Debug)]
pub struct Reviewer {
    client: ApiClient,
    board: Arc<StatusBoard>,
    fresh: Duration,
    allowed: Mutex<Allowed>,
    /// For reviews of who was not allowed lately.
    turns: Semaphore,
}

/// What the API server says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// The token is nobody's.
    Unauthenticated,
    /// Its owner may not read that.
    Forbidden,
}

/// Lets through what the API server allows.
pub(super) fn guarded(app: Router, reviewer: Arc<Reviewer>) -> Router {
    app.layer(from_fn_with_state(reviewer, guard))
}

async fn guard(State(reviewer): State<Arc<Reviewer>>, request: Request, next: Next) -> Response {
    let verb = request.method().as_str().to_lowercase();
    let verdict = match bearer(request.headers()) {
        None => Ok(Verdict::Unauthenticated),
        Some(token) => reviewer.verdict(token, &verb, request.uri().path()).await,
    };
    match verdict {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Unauthenticated) => {
            let header = [(header::WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, header, "a token is needed\n").into_response()
        }
        Ok(Verdict::Forbidden) => {
            let body = "the token's owner may not read this path\n";
            (StatusCode::FORBIDDEN, body).into_response()
        }
        Err(NotReviewed) => {
            let body = "the API server does not review the token\n";
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    let token = rest.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The API server did not answer, or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NotReviewed;

impl Reviewer {
    /// Asks with the credentials of `client`; what the API server refuses goes on
    /// the board.
    pub fn new(client: ApiClient, board: Arc<StatusBoard>) -> Self {
        Self {
            client,
            board,
            fresh: FRESH,
            allowed: Mutex::default(),
            turns: Semaphore::new(1),
        }
    }

    async fn verdict(&self, token: &str, verb: &str, path: &str) -> Result<Verdict, NotReviewed> {
        let key = key(token, verb, path);
        let known = self.allowed().since(&key, Instant::now());
        if known.is_some_and(|since| since < self.fresh) {
            return Ok(Verdict::Allowed);
        }
        let reviewed = timeout(PATIENCE, async {
            let _turn = match known {
                Some(_) => None,
                // It fails only if the semaphore is closed, which never happens.
                None => self.turns.acquire().await.ok(),
            };
            self.review(token, verb, path).await
        });
        match reviewed.await {
            Ok(Ok(verdict)) => {
                self.report(None);
                let mut allowed = self.allowed();
                allowed.set(key, verdict == Verdict::Allowed, Instant::now());
                Ok(verdict)
            }
            failed => {
                // Who may no longer ask cannot know whether the token is still good.
                let is_refusal = matches!(&failed, Ok(Err(failure)) if failure.is_refusal());
                if let Ok(Err(failure)) = failed {
                    self.report(Some(failure));
                }
                let is_allowed = known.is_some() && !is_refusal;
                is_allowed.then_some(Verdict::Allowed).ok_or(NotReviewed)
            }
        }
    }

    async fn review(&self, token: &str, verb: &str, path: &str) -> Result<Verdict, Failure> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token },
        });
        let review = ApiRequest::Create(review);
        let answer: Value = self.client.send(TOKEN_REVIEWS, review).await?;
        let status = &answer["status"];
        if status["authenticated"] != true {
            return Ok(Verdict::Unauthenticated);
        }
        let user = &status["user"];
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user["username"],
                "uid": user["uid"],
                "groups": user["groups"],
                "extra": user["extra"],
                "nonResourceAttributes": { "path": path, "verb": verb },
            },
        });
        let review = ApiRequest::Create(review);
        let answer: Value = self.client.send(ACCESS_REVIEWS, review).await?;
        Ok(if answer["status"]["allowed"] == true {
            Verdict::Allowed
        } else {
            Verdict::Forbidden
        })
    }

    /// Reports a refusal. That the API server does not answer is reported by who
    /// watches the Nodes.
    fn report(&self, failure: Option<Failure>) {
        let refused = failure.filter(Failure::is_refusal);
        let problem = refused.map(|failure| {
            let message = format!("the API server reviews no tokens for metrics: {failure}");
            Problem::new(ProblemKind::MetricsAuth, "tokenreviews", message)
        });
        let problems = problem.into_iter().collect();
        self.board
            .report(Reporter::MetricsAuth, problems, Instant::now());
    }

    fn allowed(&self) -> MutexGuard<'_, Allowed> {
        // Nothing can panic between two changes that belong together.
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token and what is asked for with it. Tokens themselves are not kept.
type Key = [u8; 32];

fn key(token: &str, verb: &str, path: &str) -> Key {
    let mut hash = Sha256::new();
    for part in [token, verb, path] {
        hash.update(part);
        hash.update([0]);
    }
    hash.finalize().into()
}

/// Who was allowed, and when.
#[derive(Debug, Default)]
struct Allowed(HashMap<Key, Instant>);

impl Allowed {
    /// How long ago it was allowed, if that is remembered.
    fn since(&self, key: &Key, now: Instant) -> Option<Duration> {
        let since = now.saturating_duration_since(*self.0.get(key)?);
        (since < REMEMBERED).then_some(since)
    }

    fn set(&mut self, key: Key, allowed: bool, now: Instant) {
        if !allowed {
            self.0.remove(&key);
            return;
        }
        self.0.insert(key, now);
        if self.0.len() > MAX_REMEMBERED {
            let oldest = self.0.iter().min_by_key(|(_, when)| **when);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.0.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
