//! The change from one desired state to another, as a planner would give it; for the tests
//! beside the code too.

use tweed_core::keyed::diff;
use tweed_planner::policy::desired::{Delta, Desired, PerDirection};

/// The change from one state to another.
pub fn delta(old: &Desired, new: &Desired, takes_away: bool) -> Delta {
    Delta {
        local_cidrs: diff(&old.local_cidrs, &new.local_cidrs),
        judged: diff(&old.judged, &new.judged),
        policed: PerDirection {
            ingress: diff(&old.policed.ingress, &new.policed.ingress),
            egress: diff(&old.policed.egress, &new.policed.egress),
        },
        selves: diff(&old.selves, &new.selves),
        identities: diff(&old.identities, &new.identities),
        networks: diff(&old.networks, &new.networks),
        pairs: PerDirection {
            ingress: diff(&old.pairs.ingress, &new.pairs.ingress),
            egress: diff(&old.pairs.egress, &new.pairs.egress),
        },
        open: diff(&old.open, &new.open),
        exact: diff(&old.exact, &new.exact),
        range_profiles: diff(&old.range_profiles, &new.range_profiles),
        ranges: diff(&old.ranges, &new.ranges),
        takes_away,
    }
}
