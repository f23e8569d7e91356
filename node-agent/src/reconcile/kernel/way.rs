//! What it means that the kernel refuses a part of the way to another node: that
//! this node's pods are not reached. A Node is data from somebody else, so its
//! objects never make this node not ready; what is this node's own does, and so does
//! an answer that would be the same for any object: no memory, no permission.

use std::collections::BTreeMap;

use nix::errno::Errno;
use tweed_core::object::node::Node;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_netlink::Error;
use tweed_netlink::route::Kind;
use tweed_planner::overlay::{claims, syntax, vtep};

use super::change::Change;
use crate::reconcile::outcome::{RefusedWrite, Way};

/// The way that `change` is a part of; none for what is this node's own.
pub fn of(change: &Change) -> Option<Way> {
    match change {
        Change::AddRoute(route) | Change::ReplaceRoute { new: route, .. } => {
            (route.kind == Kind::Unicast && route.gateway.is_some())
                .then(|| Way::Pods(route.destination.network()))
        }
        Change::SetNeighbour { key, .. } => Some(Way::Pods(key.ip)),
        Change::SetFdb { key, .. } => Some(Way::Vtep(key.mac)),
        Change::RemoveRoute(_) | Change::RemoveNeighbour(_) | Change::RemoveFdb(_) => {
            Some(Way::Old)
        }
        _ => None,
    }
}

/// Makes problems of the overlay's refused writes warnings on the Nodes of
/// `nodes` that they are about.
pub fn name_nodes<'a>(refused: &mut [RefusedWrite], nodes: impl Iterator<Item = &'a Node>) {
    let mut by_age: Vec<&Node> = nodes.collect();
    // As claims are decided: of two Nodes with a range the older one has it.
    claims::by_age(&mut by_age);
    let mut owners: BTreeMap<Way, &str> = BTreeMap::new();
    for node in by_age {
        let texts = node.pod_cidrs.iter();
        let ranges = texts.filter_map(|text| syntax::pod_cidr(text).ok());
        let ways = ranges.map(|range| Way::Pods(range.network()));
        for way in ways.chain([Way::Vtep(vtep::mac(&node.name))]) {
            owners.entry(way).or_insert(&node.name);
        }
    }
    for RefusedWrite {
        error,
        problem,
        way,
        ..
    } in refused
    {
        let is_of_node = problem.kind == ProblemKind::WriteRefused && is_about_object(error);
        let Some(way) = way.filter(|_| is_of_node) else {
            continue;
        };
        problem.effect = Effect::Warning;
        if let Some(node) = owners.get(&way) {
            let message = format!("pods of Node {node} are not reached: {error}");
            *problem = Problem::new(ProblemKind::NodeNotReached, *node, message).with_cure(
                "correct the Node's pod CIDR or status.addresses if they are wrong, or mend what the kernel names; the agent tries again by itself",
            );
        }
    }
}

/// Whether the kernel's answer is about the object that it was given, and not about
/// this machine: a full neighbour table (`gc_thresh3`) or too many IPv6 routes
/// (`route/max_size`) are nothing that a Node could have caused alone.
fn is_about_object(error: &Error) -> bool {
    !matches!(
        error.errno(),
        None | Some(Errno::ENOMEM | Errno::ENOBUFS | Errno::ENOSPC | Errno::EPERM | Errno::EACCES)
    )
}

#[cfg(test)]
mod tests {
    use tweed_netlink::route::Route;

    use super::*;
    use crate::reconcile::kernel::key::{AddressKey, FdbKey, NeighbourKey};

    fn node(name: &str, created: i64) -> Node {
        Node {
            name: name.to_owned(),
            created: Some(created),
            pod_cidrs: vec!["10.244.2.0/24".to_owned()],
            ..Node::default()
        }
    }

    fn route(gateway: Option<&str>) -> Route {
        Route {
            gateway: gateway.map(|ip| ip.parse().unwrap()),
            out: Some(7),
            ..Route::to("10.244.2.0/24".parse().unwrap(), 116)
        }
    }

    /// The problem, after the kernel has refused `change`.
    fn refused(change: &Change) -> Problem {
        refused_with(change, Errno::EINVAL)
    }

    fn refused_with(change: &Change, errno: Errno) -> Problem {
        let error = tweed_netlink::Error {
            operation: "add",
            object: "it".to_owned(),
            cause: errno.into(),
        };
        let mut refused = [RefusedWrite {
            problem: change.refusal(&error),
            way: of(change),
            kind: change.kind(),
            error,
        }];
        let nodes = [node("young", 2), node("old", 1)];
        name_nodes(&mut refused, nodes.iter());
        let [write] = refused;
        write.problem
    }

    #[test]
    fn what_leads_to_another_node_is_a_warning_on_that_node() {
        let device = 7;
        let ip = "10.244.2.0".parse().unwrap();
        let changes = [
            (Change::AddRoute(route(Some("10.244.2.0"))), "old"),
            (
                Change::ReplaceRoute {
                    old: Box::new(route(None)),
                    new: route(Some("192.0.2.2")),
                },
                "old",
            ),
            (
                Change::SetNeighbour {
                    key: NeighbourKey { device, ip },
                    mac: vtep::mac("old"),
                },
                "old",
            ),
            (
                Change::SetFdb {
                    key: FdbKey {
                        device,
                        mac: vtep::mac("young"),
                    },
                    remote: "192.0.2.2".parse().unwrap(),
                },
                "young",
            ),
        ];
        for (change, node) in changes {
            let problem = refused(&change);
            assert_eq!(problem.kind, ProblemKind::NodeNotReached, "{change:?}");
            assert_eq!(problem.object, node, "{change:?}");
            assert_eq!(problem.effect, Effect::Warning, "{change:?}");
            assert!(problem.message.contains("cannot add it"), "{change:?}");
        }
        let problem = refused(&Change::RemoveRoute(route(Some("192.0.2.2"))));
        assert_eq!(problem.kind, ProblemKind::WriteRefused);
        assert_eq!(problem.effect, Effect::Warning);
    }

    #[test]
    fn what_this_machine_lacks_is_no_fault_of_a_node() {
        let add = Change::AddRoute(route(Some("10.244.2.0")));
        let remove = Change::RemoveRoute(route(Some("10.244.2.0")));
        for errno in [
            Errno::ENOBUFS,
            Errno::ENOMEM,
            Errno::ENOSPC,
            Errno::EPERM,
            Errno::EACCES,
        ] {
            for change in [&add, &remove] {
                let problem = refused_with(change, errno);
                assert_eq!(problem.kind, ProblemKind::WriteRefused, "{errno}");
                assert_eq!(problem.effect, Effect::RunningPods, "{errno}");
            }
        }
    }

    #[test]
    fn what_is_this_nodes_own_affects_running_pods() {
        let unreachable = Route {
            kind: Kind::Unreachable,
            ..route(None)
        };
        let address = AddressKey {
            device: 7,
            network: "10.244.1.0/32".parse().unwrap(),
        };
        for change in [
            Change::AddAddress(address),
            Change::AddRoute(unreachable),
            Change::RemoveLink { index: 7 },
        ] {
            let problem = refused(&change);
            assert_eq!(problem.kind, ProblemKind::WriteRefused, "{change:?}");
            assert_eq!(problem.effect, Effect::RunningPods, "{change:?}");
        }
    }
}
