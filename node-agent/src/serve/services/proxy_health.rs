//! `/healthz` and `/livez` for load balancers, and kube-proxy's page of metrics.
//!
//! A load balancer that asks `/healthz` sends no new connections to a node that answers
//! 503, and lets those that are open go on (KEP-3836): the node is about to go, or its
//! kernel is not what the cluster's Services are. `/livez` says only whether the agent
//! does its work.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::sync::watch;
use tweed_core::problem::ProblemKind;
use tweed_diagnosis::service_proxy::METRICS_PORT;
use tweed_watch::client::timestamp;

use super::sync::ServiceSync;
use crate::serve::connections::{Service, limits};
use crate::serve::exposition;
use crate::serve::http::{Addresses, answer, reporter};
use crate::serve::listener::{RETRY, listen};
use crate::serve::status::StatusBoard;

/// What `/proxyMode` says: kube-proxy's word for the kind of rules.
const PROXY_MODE: &str = "nftables";

/// Whether the own Node is known and is not about to go.
pub type Eligible = Box<dyn Fn() -> bool + Send + Sync>;

/// Whether kube-proxy's rules are on this node, which is looked for now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KubeProxyRules {
    /// Nobody has looked yet.
    #[default]
    NotLooked,
    /// Nobody could look yet.
    NotKnown,
    /// There are some.
    There,
    /// There are none.
    Gone,
}

/// What the answers are made from.
pub struct Sources {
    /// Whether Services are written.
    pub sync: Arc<ServiceSync>,
    /// Whether the agent's loop runs; gets the problems of listening.
    pub board: Arc<StatusBoard>,
    /// The own Node.
    pub eligible: Eligible,
    /// Whose port 10249 is.
    pub kube_proxy: watch::Receiver<KubeProxyRules>,
}

/// Serves on both addresses, for ever. If it cannot listen on one of them, it
/// reports that on the board and tries again.
pub async fn run(addresses: Addresses, sources: Sources) {
    let board = Arc::clone(&sources.board);
    let metrics = Service::new(metrics_app(&sources.sync), limits());
    let kube_proxy = sources.kube_proxy.clone();
    let health = Service::new(health_app(sources), limits());
    let health_report = reporter(&board, ProblemKind::ServicesHealthAddr, addresses.health);
    let metrics_report = reporter(&board, ProblemKind::ServicesMetricsAddr, addresses.metrics);
    tokio::select! {
        () = listen(addresses.health, health, RETRY, health_report) => {}
        () = serve_metrics(addresses.metrics, metrics, kube_proxy, metrics_report) => {}
    }
}

/// Listens for dashboards, for ever. The port by which `tweed-install` finds out whether a
/// kube-proxy runs is left to kube-proxy while its rules are on this node: it may only be
/// starting again, and would run on without the port. It is left to it too until it is
/// known whether its rules are there.
async fn serve_metrics(
    addr: SocketAddr,
    service: Service,
    kube_proxy: watch::Receiver<KubeProxyRules>,
    report: impl FnMut(Option<io::Error>),
) {
    match addr.port() {
        METRICS_PORT => listen_after_kube_proxy(addr, service, kube_proxy, report).await,
        _ => listen(addr, service, RETRY, report).await,
    }
}

/// Listens while no rules of kube-proxy are on this node.
async fn listen_after_kube_proxy(
    addr: SocketAddr,
    service: Service,
    mut kube_proxy: watch::Receiver<KubeProxyRules>,
    mut report: impl FnMut(Option<io::Error>),
) {
    loop {
        let rules = *kube_proxy.borrow_and_update();
        let left = match rules {
            KubeProxyRules::NotLooked | KubeProxyRules::Gone => None,
            KubeProxyRules::NotKnown => Some("whose rules may be on this node"),
            KubeProxyRules::There => Some("whose rules are on this node"),
        };
        if let Some(why) = left {
            let why = format!("it is left to kube-proxy, {why}");
            report(Some(io::Error::other(why)));
        }
        if rules != KubeProxyRules::Gone {
            changed(&mut kube_proxy).await;
            continue;
        }
        tokio::select! {
            () = listen(addr, service.clone(), RETRY, &mut report) => {}
            () = changed(&mut kube_proxy) => {}
        }
    }
}

/// Waits until there is something new of kube-proxy's rules.
async fn changed(kube_proxy: &mut watch::Receiver<KubeProxyRules>) {
    if kube_proxy.changed().await.is_err() {
        // Nobody looks any more: the agent ends.
        std::future::pending::<()>().await;
    }
}

fn health_app(sources: Sources) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/livez", get(livez))
        .with_state(Arc::new(sources))
}

fn metrics_app(sync: &ServiceSync) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/proxyMode", get(async || PROXY_MODE))
        .route("/healthz", get(async || "ok"))
        .with_state(Arc::new([sync.registry()]))
}

/// The body of an answer, with kube-proxy's keys.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    /// Now, if the answer is good: there is nothing that is not written.
    last_updated: String,
    current_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    /// Whether changes are written in time.
    healthy: bool,
}

/// Whether new connections are to be sent here. They are not before the kernel has
/// Services, be it those of an earlier run.
async fn healthz(State(sources): State<Arc<Sources>>) -> Response {
    let eligible = (sources.eligible)();
    let (good, response) = sources.answer(Some(eligible), |served| eligible && served);
    sources.sync.healthz_answered(good.as_u16());
    response
}

async fn livez(State(sources): State<Arc<Sources>>) -> Response {
    let (good, response) = sources.answer(None, |_| true);
    sources.sync.livez_answered(good.as_u16());
    response
}

impl Sources {
    /// An answer, whose status is also given alone. `good` says what it depends on
    /// besides the writing in time; it gets whether the kernel has Services.
    fn answer(
        &self,
        node_eligible: Option<bool>,
        good: impl FnOnce(bool) -> bool,
    ) -> (StatusCode, Response) {
        let now = SystemTime::now();
        let health = self.sync.health(Instant::now());
        let healthy = health.in_time && is_running(&self.board);
        let good = healthy && good(health.served);
        let updated = if good {
            now
        } else {
            health.written.unwrap_or(self.sync.started())
        };
        let body = Body {
            last_updated: timestamp(updated),
            current_time: timestamp(now),
            node_eligible,
            healthy,
        };
        let status = if good {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        (status, json(status, &body))
    }
}

/// Whether the agent's loop runs.
pub(super) fn is_running(board: &StatusBoard) -> bool {
    board.alive(Instant::now()).is_ok()
}

/// An answer in JSON, with kube-proxy's headers.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    match serde_json::to_string(body) {
        Ok(text) => (status, headers, text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn metrics(State(registries): State<Arc<[Registry; 1]>>) -> Response {
    answer(exposition::text(&*registries))
}

#[cfg(test)]
mod tests;
