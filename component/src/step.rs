//! What a planner says after a change of what it plans from.

/// How the plan of now differs from the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<D> {
    /// The last plan stays in force, because these are not known yet.
    Hold(Vec<String>),
    /// Nothing has changed.
    Unchanged,
    /// The plan is a new one.
    Full,
    /// The plan differs by this from the last one.
    Delta(Box<D>),
}
