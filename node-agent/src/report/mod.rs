//! Reports to Kubernetes: the condition `NetworkUnavailable` of the own Node,
//! Events on it, and Events on policies that cannot be carried out.
//!
//! [`Recorder::run`] is the one entry point. [`plan`] decides from the status
//! board which writes are due; the recorder makes them with `writer`, and
//! reports the outcome back.
//!
//! What always holds:
//! - Nothing in the network depends on it: a failed write is retried after a
//!   growing pause, and is shown on the board if the API server refuses it.
//! - An Event that the API server refuses delays no other one.
//! - A condition is written only if the Node has another one, so that it usually
//!   costs no more than reading the Node every five minutes.
//! - An API server that cannot be reached, or a full range of addresses, makes
//!   no node unavailable.

mod attempts;
mod condition;
mod events;
mod plan;
mod problems;
mod writer;

use std::sync::Arc;
use std::time::Instant;

use tweed_core::problem::Problem;
use tweed_watch::client::ApiClient;

use crate::serve::status::{Reporter, StatusBoard};
pub use condition::{TYPE as CONDITION_TYPE, UP as REASON_UP};
use plan::{Plan, Write};
use writer::Writer;

/// Writes the condition and the Events that follow from the board.
#[derive(Debug)]
pub struct Recorder {
    board: Arc<StatusBoard>,
    writer: Writer,
    plan: Plan,
    /// What the board shows of writes that fail.
    shown: Option<Problem>,
}

impl Recorder {
    /// A recorder for the Node of this name.
    pub fn new(node_name: &str, client: ApiClient, board: Arc<StatusBoard>) -> Self {
        Self {
            board,
            writer: Writer::new(node_name, client),
            plan: Plan::new(node_name),
            shown: None,
        }
    }

    /// Follows the board, for ever.
    pub async fn run(mut self) {
        let mut changes = self.board.changes();
        loop {
            changes.mark_unchanged();
            let now = Instant::now();
            let uid = self.board.own_uid();
            self.plan.observe(&self.board.status(now), &uid, now);
            self.show(now);
            if let Some(write) = self.plan.due(now) {
                self.write(write).await;
                continue;
            }
            let due = async {
                match self.plan.due_at() {
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

    async fn write(&mut self, write: Write) {
        let failure = match &write {
            Write::Condition(condition) => match self.writer.write_condition(condition).await {
                Ok(came_up) => {
                    let now = Instant::now();
                    return self.plan.condition_written(condition.clone(), came_up, now);
                }
                Err(failure) => failure,
            },
            Write::Event(event) => match self.writer.write_event(event, &self.plan.uid).await {
                Ok(count) => return self.plan.events.written(event, count, Instant::now()),
                Err(failure) => failure,
            },
        };
        self.plan.failed(&write, &failure, Instant::now());
    }

    /// Shows on the board what is refused, until it succeeds or is no longer wanted.
    fn show(&mut self, now: Instant) {
        let problem = self.plan.problem(now);
        if self.shown != problem {
            self.shown.clone_from(&problem);
            let problems = problem.into_iter().collect();
            self.board.report(Reporter::Report, problems, now);
        }
    }
}

#[cfg(test)]
mod tests;
