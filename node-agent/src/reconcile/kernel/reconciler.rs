//! The reconciler of the overlay's kernel objects: VXLAN device, addresses,
//! routes, neighbours, FDB entries.

use std::collections::BTreeSet;

use tweed_core::version::Version;
use tweed_netlink::Error;
use tweed_planner::overlay::desired::{Desired, RouteKey};
use tweed_planner::overlay::{Network, OverlayPlanner};

use super::{Kernel, mirror::Mirror};
use crate::reconcile::outcome::Outcome;

/// Keeps the overlay's kernel objects as planned.
#[derive(Debug, Default)]
pub struct OverlayReconciler {
    /// What was compared when last nothing was left to write.
    agreed: Option<Agreed>,
    /// Objects that the kernel refused in the last reconcile.
    refused: BTreeSet<String>,
}

/// What the plan is compared with. While it holds, nothing is compared: neither a poll
/// nor a pod costs anything, however many Nodes there are.
#[derive(Debug, PartialEq, Eq)]
struct Agreed {
    plan: Version,
    kernel: Version,
    /// Keys of the routes to local pods.
    kept: BTreeSet<RouteKey>,
}

impl Agreed {
    /// Whether all that was agreed for `self` is still there and still right for `current`,
    /// but for what has changed in `desired`, the plan of now. Pods come and go: a route
    /// that was left alone for one that is gone may be one that has to be removed.
    fn holds_for(&self, current: &Self, desired: &Desired, mirror: &Mirror) -> bool {
        let mut gone = self.kept.difference(&current.kept);
        self.kernel == current.kernel
            && gone.all(|key| desired.routes.contains_key(key) || mirror.has_only_pods_at(key))
    }
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
        let agreed = self.agreed.take().filter(|agreed| {
            !kernel.is_stale() && agreed.holds_for(&current, &network.desired, kernel.mirror())
        });
        if agreed.as_ref().map(|agreed| agreed.plan) == Some(current.plan) {
            let problems = kernel.foreign_problems(&network.desired, &current.kept);
            self.agreed = Some(current);
            return Ok(Outcome::of(problems));
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
    match agreed.and_then(|agreed| planner.delta_since(agreed.plan)) {
        Some(delta) => kernel.apply_delta(&network.desired, delta, &current.kept),
        None => Ok(None),
    }
}
