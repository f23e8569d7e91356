//! The change from one desired state to another, as a planner would give it; for the tests
//! beside the code too.

use tweed_core::keyed::diff;
use tweed_planner::services::desired::{Delta, Desired, Frontends, FrontendsDelta, PerScope};

fn frontends<K: Ord + Clone>(old: &Frontends<K>, new: &Frontends<K>) -> FrontendsDelta<K> {
    FrontendsDelta {
        targets: diff(&old.targets, &new.targets),
        outside: diff(&old.outside, &new.outside),
        masquerade: diff(&old.masquerade, &new.masquerade),
    }
}

/// The change from one state to another.
pub fn delta(old: &Desired, new: &Desired) -> Delta {
    Delta {
        addresses: frontends(&old.addresses, &new.addresses),
        node_ports: frontends(&old.node_ports, &new.node_ports),
        node_port_networks: diff(&old.node_port_networks, &new.node_port_networks),
        node_port_exceptions: diff(&old.node_port_exceptions, &new.node_port_exceptions),
        groups: diff(&old.groups, &new.groups),
        affinities: diff(&old.affinities, &new.affinities),
        slots: diff(&old.slots, &new.slots),
        member_slots: diff(&old.member_slots, &new.member_slots),
        parts: diff(&old.parts, &new.parts),
        endpoints: diff(&old.endpoints, &new.endpoints),
        members: PerScope {
            cluster: diff(&old.members.cluster, &new.members.cluster),
            local: diff(&old.members.local, &new.members.local),
        },
        limits: diff(&old.limits, &new.limits),
        allowed: diff(&old.allowed, &new.allowed),
        open_to_node: diff(&old.open_to_node, &new.open_to_node),
        cluster_ips: diff(&old.cluster_ips, &new.cluster_ips),
        service_networks: diff(&old.service_networks, &new.service_networks),
        foreign: diff(&old.foreign, &new.foreign),
        pod_networks: diff(&old.pod_networks, &new.pod_networks),
        local_cidrs: diff(&old.local_cidrs, &new.local_cidrs),
        hairpin: diff(&old.hairpin, &new.hairpin),
        ..Delta::default()
    }
}
