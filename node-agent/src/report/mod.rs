//! What Kubernetes is told of this node: the own Node's condition
//! `NetworkUnavailable`, and Events.
//!
//! [`Reports::run`] is the one entry point. What is to be said, and when, is
//! decided purely from what the status board says ([`agenda`]: the condition in
//! [`condition`], the Events in [`ledger`], words in [`words`]); [`writer`]
//! writes it.
//!
//! What always holds:
//! - nothing in the network depends on it: what cannot be said is tried again,
//!   later each time, and shows on the board if the API server refuses it;
//! - a condition is written only if the Node says something else, so that it
//!   costs no more than a look at the Node now and then;
//! - an API server that is away, or a range that is full, makes no node
//!   unavailable.

pub mod agenda;
pub mod condition;
pub mod ledger;
pub mod words;
mod writer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio_util::sync::CancellationToken;

use crate::serve::status::{Reporter, StatusBoard};
use agenda::{Agenda, Channel, Errand};
use tweed_core::problem::{Problem, ProblemKind};
use tweed_watch::client::{ApiClient, Failure};
use writer::Writer;

/// How long a trouble has to last before Kubernetes is told of it.
const SETTLED: Duration = Duration::from_secs(5);
/// Between attempts that fail: each doubles, plus up to as much again at random.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Tells Kubernetes what the board says.
#[derive(Debug)]
pub struct Reports {
    board: Arc<StatusBoard>,
    writer: Writer,
    condition: Attempts,
    events: Attempts,
}

/// How a channel's attempts went.
#[derive(Debug)]
struct Attempts {
    pauses: ExponentialBuilder,
    pause: ExponentialBackoff,
    refused: Option<Failure>,
}

impl Reports {
    /// Reports on the Node of this name to the API server of `client`.
    #[must_use]
    pub fn new(node_name: &str, client: ApiClient, board: Arc<StatusBoard>) -> Self {
        Self {
            board,
            writer: Writer::new(node_name, client),
            condition: Attempts::new(),
            events: Attempts::new(),
        }
    }

    /// Goes on through every error until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&mut self) {
        let mut changes = self.board.changes();
        let mut agenda = Agenda::new(Instant::now());
        loop {
            changes.mark_unchanged();
            let now = Instant::now();
            let uid = self.board.own_uid();
            agenda.see(&self.board.status(now), uid.clone(), now);
            self.forget_refusals(&agenda, now);
            if let Some(errand) = agenda.due(now) {
                self.run_errand(&mut agenda, &errand, &uid).await;
                continue;
            }
            let due = async {
                match agenda.due_at() {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    async fn run_errand(&mut self, agenda: &mut Agenda, errand: &Errand, uid: &str) {
        let outcome = match errand {
            Errand::Condition(condition) => {
                let agreed = self.writer.write_condition(condition).await;
                agreed.map(|came_up| agenda.agreed(condition.clone(), came_up, Instant::now()))
            }
            Errand::Event(telling) => {
                let told = self.writer.write_event(telling, uid).await;
                told.map(|count| agenda.told(telling, count, Instant::now()))
            }
        };
        let attempts = match errand.channel() {
            Channel::Condition => &mut self.condition,
            Channel::Events => &mut self.events,
        };
        match outcome {
            Ok(()) => attempts.succeeded(),
            Err(failure) => {
                let pause = attempts.failed(failure);
                agenda.put_off(errand.channel(), Instant::now() + pause);
            }
        }
        self.show_refusals();
    }

    /// What was refused and need not be said any more is no trouble any more:
    /// nothing would be tried again that could end it.
    fn forget_refusals(&mut self, agenda: &Agenda, now: Instant) {
        let over = |channel, attempts: &mut Attempts| {
            let refused = &mut attempts.refused;
            refused
                .take_if(|_| !agenda.is_overdue(channel, now))
                .is_some()
        };
        let condition = over(Channel::Condition, &mut self.condition);
        let events = over(Channel::Events, &mut self.events);
        if condition || events {
            self.show_refusals();
        }
    }

    fn show_refusals(&self) {
        let refused = [&self.condition.refused, &self.events.refused];
        let problems = refused.into_iter().flatten().map(not_reported).collect();
        self.board
            .report(Reporter::Report, problems, Instant::now());
    }
}

impl Attempts {
    fn new() -> Self {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_jitter()
            .without_max_times();
        Self {
            pauses,
            pause: pauses.build(),
            refused: None,
        }
    }

    fn succeeded(&mut self) {
        self.pause = self.pauses.build();
        self.refused = None;
    }

    /// How long to wait. That the API server is away is nothing to report: the
    /// source of Nodes does, and it is over when it is over.
    fn failed(&mut self, failure: Failure) -> Duration {
        tracing::debug!(%failure, "Kubernetes could not be told");
        if failure.is_refusal() {
            self.refused = Some(failure);
        }
        // Endless by `without_max_times`; were it not, the longest stays.
        self.pause.next().unwrap_or(LONGEST_PAUSE)
    }
}

fn not_reported(failure: &Failure) -> Problem {
    Problem::new(
        ProblemKind::NotReported,
        "Kubernetes",
        format!("the state of this node cannot be reported: {failure}"),
    )
}

#[cfg(test)]
mod tests;
