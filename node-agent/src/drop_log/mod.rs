//! The log of packets that tweed's rules drop (`--policy-log on`).
//!
//! The rule before each drop hands a limited number of packets to a group of
//! nfnetlink_log; [`run`] listens to it, asks the planner who and why, and logs a line
//! for each. A packet comes here only on its way to the drop, so an allowed packet is
//! never logged.
//!
//! What always holds: nothing in the network depends on it. If another program has the
//! group, or the kernel does not give it, that is a problem on the board, and it is tried
//! again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tweed_component::drops::{DropReason, Owner};
use tweed_core::ownership::POLICY_LOG_GROUP;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_netlink::nf::log::{Drained, LogGroup, Logged};
use tweed_planner::policy::explain::Dropped;

use crate::index::PolicyIndex;
use crate::packet::Headers;
use crate::serve::metrics::Metrics;
use crate::serve::status::{Reporter, StatusBoard};
use crate::state::State;

/// Pause before the group is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum number of policies that have a series of their own in the metrics.
const MAX_SERIES: usize = 1000;

/// Logs dropped packets, for ever.
pub async fn run(state: Arc<State>, board: Arc<StatusBoard>, metrics: Metrics) {
    let mut log = DropLog {
        state,
        metrics,
        policies: BTreeSet::new(),
    };
    loop {
        let problems = match log.listen(&board).await {
            Ok(()) => Vec::new(),
            Err(problem) => vec![problem],
        };
        board.report(Reporter::DropLog, problems, Instant::now());
        tokio::time::sleep(RETRY).await;
    }
}

struct DropLog {
    state: Arc<State>,
    metrics: Metrics,
    /// The policies that have a series in the metrics.
    policies: BTreeSet<String>,
}

impl DropLog {
    /// Listens until the socket fails. The error says why it could not be opened.
    async fn listen(&mut self, board: &StatusBoard) -> Result<(), Problem> {
        let group = LogGroup::open(POLICY_LOG_GROUP).map_err(|error| not_opened(&error))?;
        #[expect(
            unsafe_code,
            reason = "tokio has no other way to wait for a descriptor"
        )]
        // SAFETY: a LogGroup always names the same descriptor, that of the socket that it
        // owns and closes when it is dropped.
        let registered = unsafe { AsyncFd::register(group) };
        let mut group =
            registered.map_err(|error| not_listening(ProblemKind::PolicyLogUnavailable, &error))?;
        board.report(Reporter::DropLog, Vec::new(), Instant::now());
        loop {
            let Ok(mut ready) = group.readable_mut().await else {
                return Ok(());
            };
            match ready.try_io(|group| group.get_mut().drain()) {
                Ok(Ok(drained)) => self.log(drained).await,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the log of dropped packets begins again");
                    return Ok(());
                }
                Err(_would_block) => {}
            }
        }
    }

    async fn log(&mut self, drained: Drained) {
        if drained.lost {
            tracing::debug!("the kernel has lost packets that were to be logged");
        }
        let drops: Vec<Drop> = drained.packets.iter().filter_map(Drop::read).collect();
        let asked = drops.clone();
        let explaining = self.state.with_index(move |index: &mut PolicyIndex| {
            let explain = |drop: &Drop| {
                let flow = drop.flow;
                let ends = (flow.source, flow.destination);
                let service = (flow.protocol, flow.port().unwrap_or(0));
                index.planner.dropped(ends, service, drop.reason)
            };
            asked.iter().map(explain).collect::<Vec<_>>()
        });
        // With `--policy off` nobody knows pods.
        let unnamed = || drops.iter().map(Drop::unnamed).collect();
        let explained = explaining.await.unwrap_or_else(unnamed);
        for (drop, why) in drops.iter().zip(explained) {
            self.log_one(drop, why);
        }
    }

    fn log_one(&mut self, drop: &Drop, why: Dropped) {
        let Dropped {
            from,
            to,
            policy,
            rule,
        } = why;
        let reason = drop.reason.word();
        tracing::info!(
            reason, from, to, flow = %drop.flow, reply = drop.is_reply, link = drop.link(),
            policy, rule, "packet dropped"
        );
        if drop.reason.owner() != Owner::Policy {
            return;
        }
        let is_known = self.policies.contains(&policy) || self.policies.len() < MAX_SERIES;
        let label = if is_known { policy.as_str() } else { "other" };
        self.metrics.policy_drop_logged(label, reason);
        if is_known {
            self.policies.insert(policy);
        }
    }
}

/// A dropped packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Drop {
    /// The headers that packets of the flow's original direction have.
    flow: Headers,
    reason: DropReason,
    is_reply: bool,
    /// The index of the link that it came in by.
    link: Option<u32>,
}

impl Drop {
    /// None if it is none of ours: any rule may log to the group.
    fn read(logged: &Logged) -> Option<Self> {
        let prefix = logged.prefix.trim_end().strip_suffix(':')?;
        let what = prefix.strip_prefix("tweed ")?;
        let (word, is_reply) = match what.strip_suffix(" reply") {
            Some(word) => (word, true),
            None => (what, false),
        };
        let reason = DropReason::from_word(word)?;
        let headers = Headers::parse(&logged.packet)?;
        let flow = if is_reply {
            headers.reversed()
        } else {
            headers
        };
        Some(Self {
            flow,
            reason,
            is_reply,
            link: logged.link,
        })
    }

    /// The name of its link: the one of a pod that sends with another's address.
    fn link(&self) -> Option<String> {
        let name = nix::net::if_::if_indextoname(self.link?).ok()?;
        name.into_string().ok()
    }

    fn unnamed(&self) -> Dropped {
        Dropped {
            from: self.flow.source.to_string(),
            to: self.flow.destination.to_string(),
            policy: "none".to_owned(),
            rule: self.reason.text().to_owned(),
        }
    }
}

fn not_opened(error: &tweed_netlink::Error) -> Problem {
    let kind = if LogGroup::is_taken(error) {
        ProblemKind::PolicyLogTaken
    } else {
        ProblemKind::PolicyLogUnavailable
    };
    not_listening(kind, error)
}

fn not_listening(kind: ProblemKind, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(
        kind,
        format!("log group {POLICY_LOG_GROUP}"),
        format!("dropped packets are not logged: {error}"),
    )
}

#[cfg(test)]
mod tests;
