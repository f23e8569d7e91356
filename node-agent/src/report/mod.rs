//! Reports to Kubernetes: the condition `NetworkUnavailable` of the own Node,
//! Events on it, and Events on policies that cannot be carried out.
//!
//! [`Recorder::run`] is the one entry point. [`plan`] decides from the status
//! board which writes are due; the recorder makes them with `writer`, retries
//! those that fail, and reports the outcome back.
//!
//! What always holds:
//! - Nothing in the network depends on it: a failed write is retried after a
//!   growing pause, and is shown on the board if the API server refuses it.
//! - An Event on a policy that the API server refuses delays no other one.
//! - A condition is written only if the Node has another one, so that it usually
//!   costs no more than reading the Node every five minutes.
//! - An API server that cannot be reached, or a full range of addresses, makes
//!   no node unavailable.

pub mod plan;
mod writer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio_util::sync::CancellationToken;

use tweed_core::problem::{Problem, ProblemKind};
use tweed_watch::client::{ApiClient, Failure};

use crate::serve::status::{Reporter, StatusBoard};
use plan::{Channel, Plan, Write};
use writer::Writer;

/// Pauses between attempts that fail: each is twice the one before, up to the
/// maximum, plus a random time of at most the same length.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How many attempts in a row must fail before that is shown, if none is a refusal: it takes
/// a minute or two. An error of the server's own may be that of a webhook, and stay.
const LASTING: u32 = 6;

/// Writes the condition and the Events that follow from the board.
#[derive(Debug)]
pub struct Recorder {
    board: Arc<StatusBoard>,
    writer: Writer,
    condition: Attempts,
    events: Attempts,
    policy_events: Attempts,
    /// The refusal of an Event on a policy that was last shown on the board.
    policy_refusal: Option<String>,
    node_name: String,
}

/// The attempts of one channel.
#[derive(Debug)]
struct Attempts {
    pauses: ExponentialBuilder,
    pause: ExponentialBackoff,
    /// How many have failed in a row while the API server could be read.
    failures: u32,
    /// The refusal of the last attempt, or its failure if too many have failed.
    refused: Option<Failure>,
}

impl Recorder {
    /// A recorder for the Node of this name.
    pub fn new(node_name: &str, client: ApiClient, board: Arc<StatusBoard>) -> Self {
        Self {
            board,
            writer: Writer::new(node_name, client),
            condition: Attempts::new(),
            events: Attempts::new(),
            policy_events: Attempts::new(),
            policy_refusal: None,
            node_name: node_name.to_owned(),
        }
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&mut self) {
        let mut changes = self.board.changes();
        let mut plan = Plan::new(&self.node_name, Instant::now());
        loop {
            changes.mark_unchanged();
            let now = Instant::now();
            let uid = self.board.own_uid();
            plan.observe(&self.board.status(now), &uid, now);
            self.forget_refusals(&plan, now);
            if let Some(write) = plan.due(now) {
                self.write(&mut plan, &write, &uid).await;
                continue;
            }
            let due = async {
                match plan.due_at() {
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

    async fn write(&mut self, plan: &mut Plan, write: &Write, uid: &str) {
        let outcome = match write {
            Write::Condition(condition) => {
                let written = self.writer.write_condition(condition).await;
                written.map(|came_up| {
                    plan.condition_written(condition.clone(), came_up, Instant::now());
                })
            }
            Write::Event(event) => {
                let written = self.writer.write_event(event, uid).await;
                written.map(|count| plan.event_written(event, count, Instant::now()))
            }
            Write::PolicyEvent(event) => {
                let written = self.writer.write_policy_event(event).await;
                written.map(|()| plan.policy_event_written(event, Instant::now()))
            }
        };
        let attempts = match write.channel() {
            Channel::Condition => &mut self.condition,
            Channel::Events => &mut self.events,
            Channel::PolicyEvents => &mut self.policy_events,
        };
        match outcome {
            Ok(()) => attempts.succeeded(),
            Err(failure) => {
                let now = Instant::now();
                let event = match write {
                    // An error of the server's own may be that of a webhook of this
                    // namespace.
                    Write::PolicyEvent(event) if failure.is_answered() => Some(event),
                    _ => None,
                };
                let refusal = is_refusal(&failure).then(|| failure.to_string());
                if let Some(event) = event {
                    plan.policy_event_refused(event, refusal.as_deref(), now);
                }
                if let Write::Event(event) = write {
                    plan.event_failed(event, now);
                }
                if event.is_some() && refusal.is_some() {
                    // The next Event may be taken.
                    attempts.succeeded();
                } else {
                    // An Event on a policy has its own pauses, and gives way to the others.
                    let counts = event.is_none() && !is_away(&failure) && !plan.nodes_unreadable();
                    let pause = attempts.failed(failure, counts);
                    plan.delay(write.channel(), now + pause);
                }
            }
        }
        self.show_refusals(plan);
    }

    /// Removes refusals of writes that are no longer due: no retry would.
    fn forget_refusals(&mut self, plan: &Plan, now: Instant) {
        // That of a policy that is gone.
        let mut forgotten = self.policy_refusal.as_deref() != plan.policy_event_refusal();
        for (channel, attempts) in [
            (Channel::Condition, &mut self.condition),
            (Channel::Events, &mut self.events),
            (Channel::PolicyEvents, &mut self.policy_events),
        ] {
            let refused = attempts.refused.take_if(|_| !plan.is_overdue(channel, now));
            forgotten |= refused.is_some();
        }
        if forgotten {
            self.show_refusals(plan);
        }
    }

    fn show_refusals(&mut self, plan: &Plan) {
        let of_policy = plan.policy_event_refusal();
        self.policy_refusal = of_policy.map(str::to_owned);
        let all = [&self.condition, &self.events, &self.policy_events];
        let refused = all.map(|attempts| attempts.refused.as_ref());
        let refused = refused.into_iter().flatten().map(|failure| {
            let problem = not_reported(&failure.to_string());
            match failure.is_refusal() {
                true => problem,
                false => problem.with_cure(LASTING_CURE),
            }
        });
        let of_policy = self.policy_refusal.as_deref().map(not_reported);
        let problems = refused.chain(of_policy).collect();
        self.board
            .report(Reporter::Report, problems, Instant::now());
    }
}

impl Attempts {
    fn new() -> Self {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(MIN_PAUSE)
            .with_max_delay(MAX_PAUSE)
            .with_jitter()
            .without_max_times();
        Self {
            pauses,
            pause: pauses.build(),
            failures: 0,
            refused: None,
        }
    }

    fn succeeded(&mut self) {
        self.pause = self.pauses.build();
        self.failures = 0;
        self.refused = None;
    }

    /// The pause before the next attempt. An API server that cannot be reached is
    /// not reported here: the watch of Nodes reports it. Only what `counts` is shown if it
    /// lasts and is no refusal.
    fn failed(&mut self, failure: Failure, counts: bool) -> Duration {
        tracing::debug!(%failure, "cannot write to the API server");
        // `without_max_times` makes the pauses endless.
        let pause = failure.pause(self.pause.next().unwrap_or(MAX_PAUSE));
        self.failures = match counts {
            true => self.failures.saturating_add(1),
            false => 0,
        };
        if is_refusal(&failure) || self.failures >= LASTING {
            self.refused = Some(failure);
        }
        pause
    }
}

/// Whether no request gets to the API server, which the watch of Nodes reports.
fn is_away(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Unreachable { .. } | Failure::Credentials { .. }
    )
}

/// Whether the API server refuses a write.
fn is_refusal(failure: &Failure) -> bool {
    failure.is_refusal() && !is_away(failure)
}

/// The cure of a failure that lasts and is no refusal.
const LASTING_CURE: &str = "mend what it names, such as a webhook for Nodes or Events that \
    cannot be reached; the agent tries again by itself, and the network does not depend on it";

fn not_reported(why: &str) -> Problem {
    Problem::new(
        ProblemKind::NotReported,
        "Kubernetes",
        format!("the state of this node cannot be reported: {why}"),
    )
}

#[cfg(test)]
mod tests;
