//! The fast path within a run of all reconcilers, and between two.

use std::time::Instant;

use tweed_core::agent_state::FastPathState;
use tweed_planner::overlay::Network;

use super::{Given, Seen};
use crate::reconcile::Reconcilers;
use crate::reconcile::outcome::{ObjectKind, Outcome};
use crate::serve::status::Reporter;

impl Reconcilers {
    /// Makes the fast path as everything else is by now.
    pub(in crate::reconcile) fn reconcile_fast_path(
        &mut self,
        network: Option<&Network>,
        found: &Outcome,
    ) -> Outcome {
        let index = self.state.services();
        let services = index.iter().flat_map(|index| index.planner.cluster_ips());
        let given = Given {
            network,
            kernel: &self.kernel,
            seen: Seen {
                pods: self.pods.own_links(&self.kernel),
                mirror: self.kernel.version(),
                changes: self.kernel.changes_sent(),
                walks: self.services.walks(),
            },
            services: &services.collect::<Vec<_>>(),
            tables_written: found.written.contains_key(&ObjectKind::Nftables),
            pause: self.state.fast_path().pause(Instant::now()),
        };
        let outcome = self.fast_path.reconcile(given, &self.sysctls);
        let status = self.fast_path.status();
        let note = status.as_ref().map(FastPathState::sentence);
        self.board
            .set_notes(Reporter::FastPath, note.into_iter().collect());
        self.state.fast_path().set_state(status);
        outcome
    }

    /// When [`Self::look_at_fast_path`] has something to do, if it is not woken before.
    pub fn fast_path_look_at(&self) -> Option<Instant> {
        self.fast_path.look_at()
    }

    /// Puts back programs of the fast path that somebody has detached, and takes away those
    /// that would pass by what somebody has put at a link.
    pub fn look_at_fast_path(&mut self, now: Instant) {
        let outcome = if self.fast_path.is_outdated(now) {
            let network = self.planner.network().cloned();
            self.reconcile_fast_path(network.as_deref(), &Outcome::default())
        } else {
            self.fast_path.look(now)
        };
        if !outcome.written.is_empty() {
            self.record_drift(&outcome);
        }
    }
}
