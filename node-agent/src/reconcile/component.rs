//! The shape that all components with a table of their own have, and how each of them is
//! planned and written.
//!
//! Sources fill the [`Index`] of a component. [`Component::plan`] gives its planner what the
//! node knows besides ([`Facts`]) and has it plan; [`super::tables`] writes the step, and
//! [`Progress`] says how far the kernel is with it. What the component tells others after
//! that, it tells in [`Component::written`].
//!
//! What always holds: as long as it is not known what there is, the table keeps what it has,
//! from an earlier run of the agent too.

use std::time::Instant;

use tweed_component::{Progress, Step};
use tweed_core::problem::Problem;
use tweed_nft::Table;
use tweed_planner::overlay::OverlayPlanner;

use super::kernel::Kernel;
use super::outcome::Outcome;
use super::pods::PodReconciler;
use super::tables::{Managed, Planned, Tables};
use crate::index::Index;
use crate::state::{Indexed, State};

/// What the node knows, for every component alike, and what all of them write with.
pub struct Facts<'a> {
    /// The Nodes, and pods that wait to be enforced.
    pub state: &'a State,
    /// What the overlay has accepted of the Nodes, and the own network.
    pub overlay: &'a OverlayPlanner,
    /// What the kernel holds besides tables.
    pub kernel: &'a Kernel,
    /// The local pods.
    pub pods: &'a mut PodReconciler,
    /// The tables.
    pub tables: &'a mut Tables,
}

/// A component with a planner and a table.
pub trait Component {
    /// What its planner takes in.
    type Objects: Indexed;
    /// Its table.
    type Table: Managed;

    /// How far the kernel is with the plan.
    fn progress(&self) -> Progress;

    /// The same, to be changed.
    fn progress_mut(&mut self) -> &mut Progress;

    /// All that the table should hold by the last plan.
    fn desired(index: &Index<Self::Objects>) -> &<Self::Table as Table>::Desired;

    /// Whether its table may follow a change alone, while all else stays as it is.
    fn can_follow(&self, index: &Index<Self::Objects>) -> bool {
        self.progress() == Progress::InForce && index.has_changed()
    }

    /// What comes before the plan of a whole reconcile.
    fn prepare(&mut self, _index: &mut Index<Self::Objects>, _facts: &mut Facts<'_>) -> Outcome {
        Outcome::default()
    }

    /// Gives the planner what the node knows, and has it plan.
    fn plan(
        &mut self,
        index: &mut Index<Self::Objects>,
        facts: &mut Facts<'_>,
    ) -> Step<<Self::Table as Table>::Delta>;

    /// Whether the next plan has something to do though nothing changes: what very much has
    /// changed beside is done part by part.
    fn has_more(index: &Index<Self::Objects>) -> bool;

    /// Whether the table may be written as planned.
    fn may_write(&mut self, _facts: &mut Facts<'_>) -> bool {
        true
    }

    /// The table holds what is planned. `look` says that it may have held something else
    /// meanwhile, whatever was planned.
    fn written(
        &mut self,
        index: &Index<Self::Objects>,
        facts: &mut Facts<'_>,
        look: bool,
    ) -> Option<Problem>;

    /// The table could not be made as planned.
    fn failed(&mut self, _facts: &mut Facts<'_>) {}

    /// What is wrong, and what to count.
    fn report(&self, index: &Index<Self::Objects>, now: Instant) -> Outcome;

    /// Whether it is known what there is and that is in force, or will not be known because a
    /// source cannot be read.
    fn has_reported(&self, index: &Index<Self::Objects>) -> bool;
}

/// Has a component plan.
fn plan<C: Component>(
    component: &mut C,
    index: &mut Index<C::Objects>,
    facts: &mut Facts<'_>,
) -> Planned<<C::Table as Table>::Delta> {
    index.take_changed();
    let step = component.plan(index, facts);
    planned(component, index, step)
}

/// A component has planned this step. What waits for its turn has it in the next plan, which
/// comes at once; while the planner holds, nothing has a turn.
pub(super) fn planned<C: Component>(
    component: &mut C,
    index: &mut Index<C::Objects>,
    step: Step<<C::Table as Table>::Delta>,
) -> Planned<<C::Table as Table>::Delta> {
    if C::has_more(index) && !matches!(step, Step::Hold(_)) {
        index.put_back();
    }
    let held = component.progress_mut().planned(&step);
    Planned { step, held }
}

/// Makes the table of a component follow its plan, while all else stays as it is. Whether it
/// holds what is planned; if not, [`reconcile`] compares all of it.
pub fn follow<C: Component>(
    component: &mut C,
    index: &mut Index<C::Objects>,
    facts: &mut Facts<'_>,
) -> bool {
    let planned = plan(component, index, facts);
    let followed = facts.tables.follow::<C::Table>(&planned);
    if followed {
        // What is wrong with it is said by the next reconcile.
        component.written(index, facts, false);
    }
    followed
}

/// Makes the table of a component as its plan says. With `resync` it is compared even if no
/// change of it is known.
pub fn reconcile<C: Component>(
    component: &mut C,
    index: &mut Index<C::Objects>,
    facts: &mut Facts<'_>,
    resync: bool,
) -> Outcome {
    let mut outcome = component.prepare(index, facts);
    let planned = plan(component, index, facts);
    let is_planned = component.progress() != Progress::Unknown;
    if !component.may_write(facts) || !is_planned {
        outcome.merge(facts.tables.restore::<C::Table>(resync));
        return outcome;
    }
    let table = (facts.tables).write::<C::Table>(&planned, C::desired(index), resync);
    if table.failed() {
        component.progress_mut().failed();
        component.failed(facts);
    } else {
        let look = resync || !table.written.is_empty();
        outcome
            .problems
            .extend(component.written(index, facts, look));
    }
    outcome.merge(table);
    outcome
}
