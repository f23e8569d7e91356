//! The desired elements, and what has changed in them since the last plan.

use super::desired::{Delta, Desired, FrontendsDelta};

/// What should be, with the change that led to it.
#[derive(Debug, Default)]
pub struct Tables {
    /// What should be.
    pub desired: Desired,
    /// What has changed; not written down while everything is new.
    pub delta: Option<Delta>,
}

/// Puts a value under a key of a table, or nothing, and writes the change down:
/// `put!(tables, name of the field, key, value)`.
macro_rules! put {
    ($tables:expr, $($field:ident).+, $key:expr, $value:expr) => {
        $crate::tables::put(
            &mut $tables.desired.$($field).+,
            $tables.delta.as_mut().map(|delta| &mut delta.$($field).+),
            $key,
            $value,
        )
    };
}
pub(super) use put;

/// Makes a table hold these keys and values, and writes the change down.
macro_rules! replace {
    ($tables:expr, $($field:ident).+, $new:expr) => {{
        let change = tweed_core::keyed::diff(&$tables.desired.$($field).+, &$new);
        change.apply(&mut $tables.desired.$($field).+);
        if let Some(delta) = &mut $tables.delta {
            delta.$($field).+.extend(change);
        }
    }};
}
pub(super) use replace;

fn frontends_are_empty<K: Ord>(delta: &FrontendsDelta<K>) -> bool {
    let FrontendsDelta {
        targets,
        outside,
        masquerade,
    } = delta;
    targets.is_empty() && outside.is_empty() && masquerade.is_empty()
}

/// Whether nothing has changed.
pub fn is_empty(delta: &Delta) -> bool {
    let Delta {
        addresses,
        node_ports,
        node_port_networks,
        node_port_exceptions,
        groups,
        affinities,
        slots,
        member_slots,
        parts,
        endpoints,
        members,
        limits,
        allowed,
        open_to_node,
        cluster_ips,
        service_networks,
        foreign,
        pod_networks,
        local_cidrs,
        hairpin,
        health_checks,
        tracked,
        untracked,
    } = delta;
    let spans = [
        node_port_networks,
        service_networks,
        pod_networks,
        local_cidrs,
    ];
    let ips = [node_port_exceptions, cluster_ips, foreign, hairpin];
    let numbers = [&members.cluster, &members.local, open_to_node];
    frontends_are_empty(addresses)
        && frontends_are_empty(node_ports)
        && spans.iter().all(|one| one.is_empty())
        && ips.iter().all(|one| one.is_empty())
        && numbers.iter().all(|one| one.is_empty())
        && member_slots.is_empty()
        && parts.is_empty()
        && groups.is_empty()
        && affinities.is_empty()
        && slots.is_empty()
        && endpoints.is_empty()
        && limits.is_empty()
        && allowed.is_empty()
        && health_checks.is_empty()
        && tracked.is_empty()
        && untracked.is_empty()
}
