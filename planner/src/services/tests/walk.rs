//! The sets and maps as the rules look them up, and what always holds of them.

use std::collections::{BTreeMap, BTreeSet};

use tweed_component::schema::Sets as _;
use tweed_core::family::Family;

use crate::policy::verdicts::Span;
use crate::services::desired::{
    Delta, Desired, Endpoint, Frontend, Frontends, Holds, MAX_SLOTS, Masquerade, NodePort, Number,
    Scope, Target, affinity_key,
};
use crate::services::tests::evaluator::{Flow, Verdict};
use crate::services::{ServicePlanner, Step};

fn within(spans: &BTreeSet<Span>, ip: std::net::IpAddr) -> bool {
    spans.iter().any(|span| span.first <= ip && ip <= span.last)
}

/// Plans what has its turn, and holds the step to the plan before it. Whether anything changed.
pub fn plan_turn(planner: &mut ServicePlanner) -> bool {
    let old = planner.desired().clone();
    let step = planner.plan();
    check(planner.desired());
    match step {
        Step::Delta(delta) => {
            assert_eq!(&applied(&delta, &old), planner.desired());
            true
        }
        step => {
            assert_eq!((step, &old), (Step::Unchanged, planner.desired()));
            false
        }
    }
}

/// Plans until nothing waits for its turn. Whether anything changed.
pub fn plan_turns(planner: &mut ServicePlanner) -> bool {
    let mut changed = plan_turn(planner);
    while planner.queued() > 0 {
        changed |= plan_turn(planner);
    }
    changed
}

/// What the rules do with a flow.
pub fn walk(planner: &ServicePlanner, flow: &Flow) -> Verdict {
    let desired = planner.desired();
    let frontend = Frontend {
        address: flow.destination,
        protocol: flow.protocol,
        port: flow.port,
    };
    if let Some(limit) = desired.limits.get(&frontend) {
        let mut spans = desired.allowed.iter().filter(|(of, _)| of == limit);
        let passes = if flow.is_own {
            desired.open_to_node.contains(limit)
        } else {
            spans.any(|(_, span)| within(&BTreeSet::from([*span]), flow.source))
        };
        if !passes {
            return Verdict::Drop;
        }
    }
    let is_pod = !flow.is_own && within(&desired.pod_networks, flow.source);
    let is_outside = !flow.is_own && !is_pod;
    let node_port = NodePort {
        family: Family::of(flow.destination),
        protocol: flow.protocol,
        port: flow.port,
    };
    let has_node_ports = flow.is_local
        && within(&desired.node_port_networks, flow.destination)
        && !desired.node_port_exceptions.contains(&flow.destination);
    let by_address = look_up(&desired.addresses, &frontend, is_outside);
    let found = by_address.or_else(|| {
        let node_ports = has_node_ports.then_some(&desired.node_ports)?;
        look_up(node_ports, &node_port, is_outside)
    });
    let Some((target, masquerade)) = found else {
        return without_target(desired, flow);
    };
    let group = match target {
        Target::Group(group, _) | Target::Affinity(group) => group,
        Target::Reject => return Verdict::Reject,
        Target::Drop => return Verdict::Drop,
    };
    let masquerade = match masquerade {
        None => !is_pod,
        Some(Masquerade::All) => true,
        Some(Masquerade::OwnNode) => flow.is_own,
    };
    let own = &planner.model.surroundings.own;
    let own_pods = &planner.model.surroundings.pods.own;
    let is_own_pod = |ip| own_pods.iter().any(|network| network.contains(ip));
    let backends = endpoints(desired, group).into_iter().map(|at| {
        let hairpin = at.address == flow.source && desired.hairpin.contains(&at.address);
        let leaves = !is_own_pod(at.address) && !own.addresses.contains(&at.address);
        let passes_through = is_pod && !is_own_pod(flow.source) && leaves;
        (at, masquerade || hairpin || passes_through)
    });
    Verdict::Send(backends.collect())
}

fn look_up<K: Ord>(
    frontends: &Frontends<K>,
    key: &K,
    is_outside: bool,
) -> Option<(Target, Option<Masquerade>)> {
    let outside = frontends.outside.get(key).filter(|_| is_outside);
    let target = outside.or_else(|| frontends.targets.get(key))?;
    Some((*target, frontends.masquerade.get(key).copied()))
}

fn without_target(desired: &Desired, flow: &Flow) -> Verdict {
    let to = flow.destination;
    let is_dropped = within(&desired.service_networks, to) && !desired.foreign.contains(&to);
    if desired.cluster_ips.contains(&to) {
        Verdict::Reject
    } else if is_dropped && !flow.is_local {
        Verdict::Drop
    } else {
        Verdict::Pass
    }
}

/// The endpoints that can be drawn from a group.
pub fn endpoints(desired: &Desired, group: Number) -> BTreeSet<Endpoint> {
    let shape = desired.groups[&group];
    let mut all = BTreeSet::new();
    for index in 0..shape.slots {
        let key = (group, index);
        match shape.holds {
            Holds::Endpoints => assert!(all.insert(desired.slots[&key])),
            Holds::Members => {
                let number = desired.member_slots[&key];
                assert!(all.insert(desired.endpoints[&number]));
            }
            Holds::Parts => {
                let part = desired.parts[&key].group;
                assert_ne!(desired.groups[&part].holds, Holds::Parts);
                all.extend(endpoints(desired, part));
            }
        }
    }
    all
}

fn holds_for_frontends<K: Ord + std::fmt::Debug>(
    desired: &Desired,
    frontends: &Frontends<K>,
) -> BTreeSet<Number> {
    for key in frontends.outside.keys().chain(frontends.masquerade.keys()) {
        assert!(frontends.targets.contains_key(key), "{key:?}");
    }
    let targets = frontends.targets.values().chain(frontends.outside.values());
    for target in targets.clone() {
        match target {
            Target::Group(group, shape) => {
                assert_eq!(desired.groups[group], *shape);
                assert!(!desired.affinities.contains_key(group));
            }
            Target::Affinity(group) => assert!(desired.affinities.contains_key(group)),
            Target::Reject | Target::Drop => {}
        }
    }
    targets.filter_map(|target| target.group()).collect()
}

/// Panics if the tables do not fit each other.
pub fn check(desired: &Desired) {
    let mut reached = holds_for_frontends(desired, &desired.addresses);
    reached.extend(holds_for_frontends(desired, &desired.node_ports));
    for group in desired.affinities.keys() {
        assert!(desired.groups.contains_key(group));
    }
    let (mut slots, mut member_slots, mut parts) = (0, 0, 0);
    for (number, group) in &desired.groups {
        assert!(
            (1..=MAX_SLOTS).contains(&group.slots),
            "{number:#x} {group:?}"
        );
        let count = usize::from(group.slots);
        match group.holds {
            Holds::Endpoints => slots += count,
            Holds::Members => member_slots += count,
            Holds::Parts => parts += count,
        }
        let keys = (0..group.slots).map(|index| (*number, index));
        if group.holds == Holds::Parts {
            let parts = keys.map(|key| desired.parts[&key]);
            let checked = parts.map(|part| {
                assert_eq!(desired.groups[&part.group].slots, part.slots);
                part.slots
            });
            let sizes: Vec<u8> = checked.collect();
            let spread = sizes.iter().max().unwrap() - sizes.iter().min().unwrap();
            assert!(spread <= 1, "{sizes:?}");
        }
    }
    assert_eq!(slots, desired.slots.len());
    assert_eq!(member_slots, desired.member_slots.len());
    assert_eq!(parts, desired.parts.len());
    let part_numbers: BTreeSet<Number> = desired.parts.values().map(|part| part.group).collect();
    assert_eq!(part_numbers.len(), parts, "a part belongs to one group");
    // A group that no frontend leads to is one that another Service has the frontend of.
    for group in reached {
        assert!(desired.groups.contains_key(&group));
        assert!(!part_numbers.contains(&group));
        check_affinity(desired, group);
    }
    let of_any_scope = desired.members.cluster.union(&desired.members.local);
    let members: BTreeSet<Number> = of_any_scope.copied().collect();
    assert_eq!(members, desired.endpoints.keys().copied().collect());
}

fn check_affinity(desired: &Desired, group: Number) {
    let all = endpoints(desired, group);
    let scope = if affinity_key(group) == group || !desired.affinities.contains_key(&group) {
        Scope::Cluster
    } else {
        Scope::Local
    };
    if !desired.affinities.contains_key(&group) {
        assert_ne!(desired.groups[&group].holds, Holds::Members);
        return;
    }
    assert_eq!(Scope::of(group), scope);
    let numbers = desired.members.get(scope).iter();
    let of_group = numbers.filter(|number| affinity_key(**number) == affinity_key(group));
    let members: BTreeSet<Endpoint> = of_group.map(|one| desired.endpoints[one]).collect();
    assert_eq!(members, all);
}

/// The state that a delta leads to.
pub fn applied(delta: &Delta, old: &Desired) -> Desired {
    let mut new = old.clone();
    assert!(new.is_start_of(delta), "{delta:#?}");
    new.apply(delta);
    new
}

/// The tables without the numbers, which depend on the history.
pub fn without_numbers(desired: &Desired) -> impl PartialEq + std::fmt::Debug + use<> {
    let frontends = |targets: Vec<(String, Target)>| -> BTreeMap<String, String> {
        let named = targets
            .into_iter()
            .map(|(key, target)| match target.group() {
                Some(group) => {
                    let affinity = desired.affinities.get(&group);
                    (key, format!("{affinity:?} {:?}", endpoints(desired, group)))
                }
                None => (key, format!("{target:?}")),
            });
        named.collect()
    };
    let mut targets = Vec::new();
    for (name, of) in [
        ("to", &desired.addresses.targets),
        ("outside", &desired.addresses.outside),
    ] {
        targets.extend(
            of.iter()
                .map(|(key, target)| (format!("{name} {key:?}"), *target)),
        );
    }
    for (name, of) in [
        ("to", &desired.node_ports.targets),
        ("outside", &desired.node_ports.outside),
    ] {
        targets.extend(
            of.iter()
                .map(|(key, target)| (format!("{name} {key:?}"), *target)),
        );
    }
    let limits: BTreeMap<Frontend, (bool, Vec<Span>)> = (desired.limits.iter())
        .map(|(key, limit)| {
            let spans = desired.allowed.iter().filter(|(of, _)| of == limit);
            let open = desired.open_to_node.contains(limit);
            (*key, (open, spans.map(|(_, span)| *span).collect()))
        })
        .collect();
    let numberless = Desired {
        addresses: Frontends {
            masquerade: desired.addresses.masquerade.clone(),
            ..Frontends::default()
        },
        node_ports: Frontends {
            masquerade: desired.node_ports.masquerade.clone(),
            ..Frontends::default()
        },
        groups: BTreeMap::new(),
        affinities: BTreeMap::new(),
        slots: BTreeMap::new(),
        member_slots: BTreeMap::new(),
        parts: BTreeMap::new(),
        endpoints: BTreeMap::new(),
        members: Default::default(),
        limits: BTreeMap::new(),
        allowed: BTreeSet::new(),
        open_to_node: BTreeSet::new(),
        ..desired.clone()
    };
    let counts = [
        desired.affinities.len(),
        desired.endpoints.len(),
        desired.allowed.len(),
        desired.slots.len(),
        desired.member_slots.len(),
    ];
    (frontends(targets), limits, numberless, counts)
}
