//! The health checks of Services with `externalTrafficPolicy: Local`: a load balancer asks
//! each node at the Service's `healthCheckNodePort` how many endpoints it has there, and
//! sends traffic only to those that have one.
//!
//! There is one listener for each port, on all addresses; it answers at those that have
//! node ports and at those of load balancers, which some of them ask at. So a new address
//! is served at once, and other addresses are not.
//!
//! Whoever may create Services can have a listener for each, so there are no more than
//! there are file descriptors for ([`crate::descriptors`]). Which ones they are follows
//! from the Services alone: it is the same on every node and after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tweed_core::problem::{Problem, ProblemKind};
use tweed_planner::services::Desired;
use tweed_planner::services::desired::{HealthCheck, ServiceName, Span};

use super::proxy_health::{is_running, json};
use super::sync::ServiceSync;
use crate::descriptors::Shares;
use crate::serve::connections::{AnswersAt, Limits, Pool, Service};
use crate::serve::listener::{RETRY, listen};
use crate::serve::metrics::Metrics;
use crate::serve::status::{Reporter, StatusBoard};

/// The header by which load balancers may share traffic out: the number of endpoints.
const WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// The limits of all ports together. Load balancers ask each port from a few addresses,
/// every few seconds.
fn limits(shares: &Shares) -> Limits {
    Limits {
        per_source: 4,
        total: shares.health_check_connections,
        header_read_timeout: Duration::from_secs(2),
        max_lifetime: Duration::from_secs(10),
    }
}

/// What is answered, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthChecks {
    /// By port.
    checks: BTreeMap<u16, HealthCheck>,
    /// Where node ports are.
    networks: BTreeSet<Span>,
    /// Addresses of load balancers.
    balancers: BTreeSet<IpAddr>,
}

impl HealthChecks {
    /// Those of a plan.
    #[must_use]
    pub fn of(desired: &Desired) -> Self {
        Self {
            checks: desired.health_checks.clone(),
            networks: desired.node_port_networks.clone(),
            balancers: desired.node_port_exceptions.clone(),
        }
    }

    /// Whether they are those of a plan.
    #[must_use]
    pub fn are_of(&self, desired: &Desired) -> bool {
        self.checks == desired.health_checks
            && self.networks == desired.node_port_networks
            && self.balancers == desired.node_port_exceptions
    }

    /// The ports that are listened on, if these are so many at most: of each namespace the
    /// first one, then of each the second, and so on. So no namespace takes them all.
    fn listened(&self, most: usize) -> BTreeSet<u16> {
        if self.checks.len() <= most {
            return self.checks.keys().copied().collect();
        }
        let mut of_namespace: BTreeMap<&str, usize> = BTreeMap::new();
        let mut turns = BTreeSet::new();
        for (port, check) in &self.checks {
            let turn = of_namespace.entry(&check.service.namespace).or_default();
            *turn += 1;
            turns.insert((*turn, *port));
        }
        turns.into_iter().take(most).map(|(_, port)| port).collect()
    }

    fn answer_at(&self, ip: IpAddr) -> bool {
        let holds = |span: &Span| (span.first..=span.last).contains(&ip);
        self.networks.iter().any(holds) || self.balancers.contains(&ip)
    }
}

/// The latest health checks, which the reconciler sends after each write.
pub type Latest = watch::Receiver<Arc<HealthChecks>>;

/// What the answers are made from.
#[derive(Debug, Clone)]
pub struct Sources {
    /// What is answered, and where.
    pub latest: Latest,
    /// Whether Services are written in time.
    pub sync: Arc<ServiceSync>,
    /// Whether the agent's loop runs; gets the ports that cannot be listened on.
    pub board: Arc<StatusBoard>,
}

impl Sources {
    /// From the latest health checks, and what is known of writing them.
    #[must_use]
    pub fn new(latest: Latest, metrics: &Metrics, board: &Arc<StatusBoard>) -> Self {
        Self {
            latest,
            sync: Arc::clone(&metrics.service_sync),
            board: Arc::clone(board),
        }
    }
}

/// Serves all health checks, for ever. A port that cannot be listened on is reported
/// on the board and tried again.
pub async fn run(sources: Sources) {
    serve_all(sources, RETRY, Shares::of_process()).await;
}

async fn serve_all(sources: Sources, retry: Duration, shares: Shares) {
    let mut servers = Servers {
        failures: Arc::new(Failures::new(&sources.board)),
        pool: Pool::new(limits(&shares)),
        running: BTreeMap::new(),
        tasks: JoinSet::new(),
        retry,
    };
    let mut latest = sources.latest.clone();
    loop {
        let checks = Arc::clone(&latest.borrow_and_update());
        let ports = checks.listened(shares.health_checks);
        servers.set(&ports, &sources).await;
        servers
            .failures
            .set_left_out(left_out(&checks, &ports, &shares));
        tokio::select! {
            changed = latest.changed() => if changed.is_err() {
                // The reconciler has ended, and with it the agent is about to.
                return std::future::pending().await;
            },
            Some(ended) = servers.tasks.join_next() => {
                if let Err(Ok(panic)) = ended.map_err(|error| error.try_into_panic()) {
                    resume_unwind(panic);
                }
            }
        }
    }
}

/// The servers that run.
struct Servers {
    failures: Arc<Failures>,
    pool: Pool,
    running: BTreeMap<u16, AbortHandle>,
    tasks: JoinSet<()>,
    retry: Duration,
}

impl Servers {
    /// Starts and ends servers, so that these ports have one each. Those that have one
    /// keep it.
    async fn set(&mut self, ports: &BTreeSet<u16>, sources: &Sources) {
        let is_gone = |port: &u16, _: &mut AbortHandle| !ports.contains(port);
        let gone: Vec<_> = self.running.extract_if(.., is_gone).collect();
        for (port, server) in &gone {
            server.abort();
            self.failures.set(*port, None);
        }
        // Their descriptors are for those that come.
        while gone.iter().any(|(_, server)| !server.is_finished()) {
            tokio::task::yield_now().await;
        }
        for port in ports {
            if !self.running.contains_key(port) {
                let server = self.server(*port, sources);
                self.running.insert(*port, self.tasks.spawn(server));
            }
        }
    }

    fn server(&self, port: u16, sources: &Sources) -> impl Future<Output = ()> + use<> {
        let latest = sources.latest.clone();
        let answers_at: AnswersAt = Arc::new(move |ip| latest.borrow().answer_at(ip));
        let check = Check {
            port,
            sources: sources.clone(),
        };
        let service = Service {
            // Load balancers are set up with various paths.
            app: Router::new().fallback(answer).with_state(Arc::new(check)),
            tls: None,
            pool: self.pool.clone(),
            answers_at: Some(answers_at),
        };
        let failures = Arc::clone(&self.failures);
        let report = move |error| failures.set(port, error);
        let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        listen(all, service, self.retry, report)
    }
}

/// Maximum number of ports with a problem of their own.
const MAX_SHOWN: usize = 20;
/// Maximum number of Services that are named of those without a listener.
const MAX_NAMED: usize = 3;

/// The problem of the health checks that are not listened for, if there are any.
fn left_out(checks: &HealthChecks, listened: &BTreeSet<u16>, shares: &Shares) -> Option<Problem> {
    let all = checks.checks.iter();
    let rest: Vec<_> = all.filter(|(port, _)| !listened.contains(port)).collect();
    let names = rest.iter().take(MAX_NAMED).map(|(port, check)| {
        let ServiceName { namespace, name } = &check.service;
        format!("{namespace}/{name} ({port})")
    });
    let named = names.collect::<Vec<_>>().join(", ");
    let more = match rest.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (count, limit) = (rest.len(), shares.limit);
    let message = format!(
        "cannot listen on the healthCheckNodePort of {count} Services, as the agent may have only {limit} files open: {named}{more}"
    );
    let problem = Problem::new(ProblemKind::ServiceHealthPort, "open files", message);
    let cure = "raise the hard limit of open files of the agent (LimitNOFILE in its systemd unit, or that of the container runtime) and restart it, or have fewer Services with externalTrafficPolicy: Local; until then their load balancers count this node as one without endpoints";
    (count > 0).then(|| problem.with_cure(cure))
}

/// The ports that cannot be listened on, and why.
struct Failures {
    board: Arc<StatusBoard>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_port: BTreeMap<u16, String>,
    left_out: Option<Problem>,
}

impl Failures {
    fn new(board: &Arc<StatusBoard>) -> Self {
        Self {
            board: Arc::clone(board),
            known: Mutex::default(),
        }
    }

    fn set(&self, port: u16, failure: Option<io::Error>) {
        let mut known = self.known();
        let reason = failure.map(|error| error.to_string());
        if known.by_port.get(&port) == reason.as_ref() {
            return;
        }
        match reason {
            Some(reason) => known.by_port.insert(port, reason),
            None => known.by_port.remove(&port),
        };
        self.report(&known);
    }

    fn set_left_out(&self, left_out: Option<Problem>) {
        let mut known = self.known();
        if known.left_out != left_out {
            known.left_out = left_out;
            self.report(&known);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called under the lock, so that of two reports the later one comes last.
    fn report(&self, known: &Known) {
        let Known { by_port, left_out } = known;
        let problem = |port: String, message| {
            let message = format!("cannot listen on the healthCheckNodePort {message}");
            Problem::new(ProblemKind::ServiceHealthPort, port, message)
        };
        // Before a hand-over kube-proxy has all of them. A report of each at every change
        // would cost the square of their number.
        let first = by_port.iter().take(MAX_SHOWN);
        let shown =
            first.map(|(port, error)| problem(port.to_string(), format!("{port}: {error}")));
        let rest = by_port.len().saturating_sub(MAX_SHOWN);
        let more =
            (rest > 0).then(|| problem("others".to_owned(), format!("of {rest} more Services")));
        let problems = shown.chain(more).chain(left_out.clone()).collect();
        self.board
            .report(Reporter::ServiceHealthPorts, problems, Instant::now());
    }
}

/// What one port answers from.
struct Check {
    port: u16,
    sources: Sources,
}

/// The body of an answer, with kube-proxy's keys.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    service: Name<'a>,
    local_endpoints: usize,
    service_proxy_healthy: bool,
}

#[derive(Debug, Serialize)]
struct Name<'a> {
    namespace: &'a str,
    name: &'a str,
}

async fn answer(State(check): State<Arc<Check>>) -> Response {
    let Sources {
        latest,
        sync,
        board,
    } = &check.sources;
    let latest = Arc::clone(&latest.borrow());
    let Some(found) = latest.checks.get(&check.port) else {
        // The server is about to be ended.
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let count = found.local_endpoints;
    let healthy = sync.health(Instant::now()).in_time && is_running(board);
    let body = Body {
        service: Name {
            namespace: &found.service.namespace,
            name: &found.service.name,
        },
        local_endpoints: count,
        service_proxy_healthy: healthy,
    };
    let status = if count > 0 && healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut response = json(status, &body);
    let headers = response.headers_mut();
    headers.insert(WEIGHT, HeaderValue::from(count));
    response
}

#[cfg(test)]
mod tests;
