//! The reconciler of the overlay's kernel objects: VXLAN device, addresses,
//! routes, neighbours, FDB entries.

use std::collections::BTreeSet;

use tweed_core::version::Version;
use tweed_netlink::Error;
use tweed_planner::overlay::desired::RouteKey;
use tweed_planner::overlay::{Network, OverlayPlanner};

use super::Kernel;
use crate::reconcile::outcome::Outcome;

/// Keeps the overlay's kernel objects as planned.
#[derive(Debug, Default)]
pub struct OverlayReconciler {
    /// What was compared when last nothing was left to write.
    agreed: Option<Agreed>,
    /// Objects that the kernel refused in the last reconcile.
    refused: BTreeSet<String>,
}

/// What the plan is compared with. While all of it is the same, so is the
/// outcome: a poll without changes costs nothing, however many Nodes there are.
#[derive(Debug, PartialEq, Eq)]
struct Agreed {
    plan: Version,
    kernel: Version,
    /// Keys of the routes to local pods.
    kept: BTreeSet<RouteKey>,
}

impl OverlayReconciler {
    /// Makes the kernel hold what `network`, the planner's last, says. `kept`
    /// are the keys of the routes to local pods, which are left alone.
    ///
    /// # Errors
    /// When the kernel's socket fails.
    pub fn reconcile(
        &mut self,
        kernel: &mut Kernel,
        planner: &OverlayPlanner,
        network: &Network,
        kept: BTreeSet<RouteKey>,
    ) -> Result<Outcome, Error> {
        let refused = std::mem::take(&mut self.refused);
        let current = Agreed {
            plan: planner.version(),
            kernel: kernel.version(),
            kept,
        };
        let agreed = self.agreed.take().filter(|_| !kernel.is_stale());
        if agreed.as_ref() == Some(&current) {
            self.agreed = agreed;
            return Ok(Outcome {
                problems: kernel.routes_beside(&network.desired, &current.kept),
                ..Outcome::default()
            });
        }
        let (outcome, settled) = match apply_delta(kernel, planner, network, agreed, &current)? {
            Some(outcome) => (outcome, true),
            None => {
                let converged = kernel.converge(&network.desired, &current.kept, &refused)?;
                let settled = converged.settled && converged.complete;
                (converged.outcome, settled)
            }
        };
        let objects = outcome.refused.iter().map(|write| &write.error.object);
        self.refused = objects.cloned().collect();
        self.agreed = settled.then(|| Agreed {
            kernel: kernel.version(),
            ..current
        });
        Ok(outcome)
    }
}

/// Writes what single Nodes have changed, if everything else is as it was
/// agreed; none if everything has to be compared.
fn apply_delta(
    kernel: &mut Kernel,
    planner: &OverlayPlanner,
    network: &Network,
    agreed: Option<Agreed>,
    current: &Agreed,
) -> Result<Option<Outcome>, Error> {
    let same = |agreed: &Agreed| agreed.kernel == current.kernel && agreed.kept == current.kept;
    match agreed.filter(same) {
        Some(agreed) => match planner.delta_since(agreed.plan) {
            Some(delta) => kernel.apply_delta(&network.desired, delta, &current.kept),
            None => Ok(None),
        },
        None => Ok(None),
    }
}
