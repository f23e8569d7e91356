//! How far the kernel is with the plan of a component.

use crate::step::Step;

/// Whether the kernel holds the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Progress {
    /// There is no plan of this run: the kernel has what an earlier run has left, or nothing.
    #[default]
    Unknown,
    /// The plan is not written, or not completely.
    Behind,
    /// The kernel holds the plan.
    InForce,
}

impl Progress {
    /// A plan was made. Says whether the kernel held the plan before it, so that the step
    /// leads from what it holds to what it should hold.
    pub fn planned<D>(&mut self, step: &Step<D>) -> bool {
        let held = *self == Self::InForce;
        if matches!(step, Step::Full | Step::Delta(_)) {
            *self = Self::Behind;
        }
        held
    }

    /// The plan could not be written, or was taken away.
    pub fn failed(&mut self) {
        if *self == Self::InForce {
            *self = Self::Behind;
        }
    }

    /// The kernel holds the plan, if there is one.
    pub fn written(&mut self) {
        if *self == Self::Behind {
            *self = Self::InForce;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_leads_on_only_from_a_plan_in_force() {
        let mut progress = Progress::default();
        assert!(!progress.planned::<()>(&Step::Hold(Vec::new())));
        progress.written();
        assert_eq!(progress, Progress::Unknown, "there is no plan");
        assert!(!progress.planned::<()>(&Step::Full));
        assert_eq!(progress, Progress::Behind);
        progress.written();
        assert!(progress.planned::<()>(&Step::Unchanged));
        assert_eq!(progress, Progress::InForce);
        assert!(progress.planned(&Step::Delta(Box::new(()))));
        assert!(
            !progress.planned(&Step::Delta(Box::new(()))),
            "it was not written"
        );
        progress.written();
        progress.failed();
        assert!(!progress.planned::<()>(&Step::Unchanged));
    }
}
