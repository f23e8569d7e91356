//! The desired elements, and what has changed in them since the last plan.

use super::desired::{Delta, Desired};

/// What should be, with the change that led to it.
#[derive(Debug, Default)]
pub struct Tables {
    /// What should be.
    pub desired: Desired,
    /// What has changed; not written down while everything is new.
    pub delta: Option<Delta>,
}

/// Whether nothing has changed.
pub fn is_empty(delta: &Delta) -> bool {
    let Delta {
        local_cidrs,
        judged,
        policed,
        selves,
        identities,
        networks,
        pairs,
        open,
        exact,
        range_profiles,
        ranges,
        takes_away: _,
    } = delta;
    let addresses = [judged, &policed.ingress, &policed.egress, selves];
    addresses.iter().all(|one| one.is_empty())
        && [&pairs.ingress, &pairs.egress]
            .iter()
            .all(|one| one.is_empty())
        && local_cidrs.is_empty()
        && identities.is_empty()
        && networks.is_empty()
        && open.is_empty()
        && exact.is_empty()
        && range_profiles.is_empty()
        && ranges.is_empty()
}
