//! The change from one desired state to another, as a planner would give it; for the tests
//! beside the code too.

use tweed_component::schema::Sets as _;
use tweed_planner::policy::desired::{Delta, Desired};

/// The change from one state to another.
pub fn delta(old: &Desired, new: &Desired, takes_away: bool) -> Delta {
    let mut delta = old.change_to(new);
    delta.verdicts.takes_away = takes_away;
    delta
}
