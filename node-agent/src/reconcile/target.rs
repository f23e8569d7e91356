//! What the table is to hold of a component that has a planner of its own: policies,
//! Services.

use tweed_planner::{policy, services};

/// What the table is to hold of policies.
pub type PolicyTarget<'a> = Target<'a, policy::desired::Desired, policy::desired::Delta>;

/// What the table is to hold of Services.
pub type ServiceTarget<'a> = Target<'a, services::desired::Desired, services::desired::Delta>;

/// How a plan differs from the one before.
#[derive(Debug)]
pub enum Change<'a, C> {
    /// Not at all.
    None,
    /// By this.
    Delta(&'a C),
    /// It is not known how.
    Full,
}

impl<C> Clone for Change<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Change<'_, C> {}

/// What the table is to hold of a component with plans `D` and their changes `C`.
#[derive(Debug)]
pub enum Target<'a, D, C> {
    /// Nothing: it is switched off.
    Off,
    /// What it has: there is no plan yet.
    Kept,
    /// What was planned.
    Planned {
        /// The plan.
        desired: &'a D,
        /// What it differs by from the last one.
        change: Change<'a, C>,
    },
}

impl<D, C> Clone for Target<'_, D, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D, C> Copy for Target<'_, D, C> {}

/// What the table has of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableState {
    /// What an earlier run has left, or nothing.
    Unknown,
    /// A plan of this run has not been written, or not completely.
    Behind,
    /// The last plan is in force.
    InForce,
}

impl TableState {
    /// Whether there is a plan, and it is in force or `waits` for something else.
    pub fn is_written_or(self, waits: bool) -> bool {
        match self {
            Self::Unknown => false,
            Self::Behind => waits,
            Self::InForce => true,
        }
    }
}
