//! Whether a new flow passes, by the specifications of NetworkPolicy and
//! ClusterNetworkPolicy.

use std::net::IpAddr;

use super::{ClusterPolicy, Direction, NetworkPolicy, Peer, Policies, Ports, Rule, Tier, Verdict};

/// One end of a flow over UDP.
#[derive(Debug, Clone, Copy)]
pub enum End<'a> {
    /// A pod with the address in use.
    Pod {
        /// Its node's number.
        node: u8,
        /// Its namespace.
        namespace: &'a str,
        /// Its label `app`.
        app: &'a str,
        /// Its address.
        address: IpAddr,
    },
    /// A node.
    Node {
        /// Its number.
        node: u8,
        /// The addresses by which the other end may know it: where blocks contain one
        /// of them only, nothing is said.
        addresses: [IpAddr; 2],
    },
}

/// Whether a datagram to this port passes; `None` where the documents leave it open.
pub fn passes(policies: &Policies, from: End, to: End, port: u16) -> Option<bool> {
    match (from, to) {
        (End::Node { .. }, End::Node { .. }) => return Some(true),
        // A node always reaches its own pods.
        (End::Node { node: from, .. }, End::Pod { node: to, .. }) if from == to => {
            return Some(true);
        }
        _ => {}
    }
    let out = one_end(policies, from, to, Direction::Egress, port);
    let into = one_end(policies, to, from, Direction::Ingress, port);
    match (out, into) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// Whether a pod may receive from another end, whatever that one may send.
pub fn may_receive(policies: &Policies, own: End, from: End, port: u16) -> bool {
    one_end(policies, own, from, Direction::Ingress, port) == Some(true)
}

/// What the policies of one end say.
fn one_end(
    policies: &Policies,
    own: End,
    other: End,
    direction: Direction,
    port: u16,
) -> Option<bool> {
    let End::Pod { namespace, app, .. } = own else {
        return Some(true);
    };
    let tier = |tier| {
        let mut all = policies.cluster.values();
        all.find_map(|policy| decides(policy, policies, tier, app, other, direction))
    };
    match tier(Tier::Admin) {
        Some(Verdict::Accept) => return Some(true),
        Some(Verdict::Deny) => return Some(false),
        Some(Verdict::Pass) | None => {}
    }
    let mut is_isolated = false;
    let mut verdict = Some(false);
    for policy in policies.namespaced.values() {
        if let Some(rules) = rules_for(policy, namespace, app, direction) {
            is_isolated = true;
            for rule in rules {
                match allows(rule, policies, policy.namespace, other, port) {
                    Some(true) => return Some(true),
                    Some(false) => {}
                    None => verdict = None,
                }
            }
        }
    }
    if is_isolated {
        return verdict;
    }
    Some(tier(Tier::Baseline) != Some(Verdict::Deny))
}

/// The verdict of a ClusterNetworkPolicy if it has one.
fn decides(
    policy: &ClusterPolicy,
    policies: &Policies,
    tier: Tier,
    app: &str,
    other: End,
    direction: Direction,
) -> Option<Verdict> {
    let End::Pod { namespace, .. } = other else {
        return None;
    };
    let is_peer = policy
        .team
        .is_none_or(|team| policies.teams.get(namespace) == Some(&team));
    let is_meant = policy.tier == tier && policy.app == app && policy.direction == direction;
    (is_meant && is_peer).then_some(policy.action)
}

/// The rules of a NetworkPolicy for a pod, if it isolates it.
fn rules_for<'a>(
    policy: &'a NetworkPolicy,
    namespace: &str,
    app: &str,
    direction: Direction,
) -> Option<&'a [Rule]> {
    let selects = policy.namespace == namespace && policy.app.is_none_or(|own| own == app);
    let rules = match direction {
        Direction::Ingress => &policy.ingress,
        Direction::Egress => &policy.egress,
    };
    rules.as_deref().filter(|_| selects)
}

fn allows(
    rule: &Rule,
    policies: &Policies,
    own_namespace: &str,
    other: End,
    port: u16,
) -> Option<bool> {
    match rule.ports {
        Ports::All => {}
        Ports::From(first) if port >= first => {}
        Ports::From(_) | Ports::Tcp => return Some(false),
    }
    let team_of = |namespace: &str| policies.teams.get(namespace).copied();
    match (&rule.peer, other) {
        (Peer::Everybody, _) => Some(true),
        (Peer::App(peer), End::Pod { namespace, app, .. }) => {
            Some(namespace == own_namespace && *peer == app)
        }
        (Peer::Team(team), End::Pod { namespace, .. }) => Some(team_of(namespace) == Some(team)),
        (Peer::AppOfTeam(peer, team), End::Pod { namespace, app, .. }) => {
            Some(team_of(namespace) == Some(team) && *peer == app)
        }
        (Peer::App(_) | Peer::Team(_) | Peer::AppOfTeam(..), End::Node { .. }) => Some(false),
        (Peer::Block(block, except), other) => {
            let contains = |address: &IpAddr| match address {
                IpAddr::V4(v4) => {
                    block.contains(*v4) && !except.is_some_and(|except| except.contains(*v4))
                }
                IpAddr::V6(_) => false,
            };
            match other {
                End::Pod { address, .. } => Some(contains(&address)),
                End::Node { addresses, .. } => {
                    let [one, two] = addresses.each_ref().map(contains);
                    (one == two).then_some(one)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::network;
    use super::*;

    fn pod(node: u8, namespace: &'static str, app: &'static str) -> End<'static> {
        let address = IpAddr::from([10, 244, node, 2]);
        End::Pod {
            node,
            namespace,
            app,
            address,
        }
    }

    fn node(node: u8) -> End<'static> {
        let addresses = [
            IpAddr::from([192, 0, 2, 10 + node]),
            IpAddr::from([10, 244, node, 0]),
        ];
        End::Node { node, addresses }
    }

    fn with(ingress: Option<Vec<Rule>>, egress: Option<Vec<Rule>>) -> Policies {
        let mut policies = Policies::new();
        let policy = NetworkPolicy {
            namespace: "red",
            app: Some("front"),
            ingress,
            egress,
            bulk: 0,
        };
        policies.namespaced.insert(0, policy);
        policies
    }

    #[test]
    fn only_the_selected_pods_are_isolated_and_only_in_that_direction() {
        let policies = with(Some(Vec::new()), None);
        let (front, back) = (pod(1, "red", "front"), pod(2, "red", "back"));
        assert_eq!(passes(&policies, back, front, 7777), Some(false));
        assert_eq!(passes(&policies, front, back, 7777), Some(true));
        assert_eq!(passes(&policies, node(1), front, 7777), Some(true));
        assert_eq!(passes(&policies, node(2), front, 7777), Some(false));
        assert_eq!(passes(&policies, front, node(1), 7777), Some(true));
    }

    #[test]
    fn rules_allow_by_label_by_block_and_by_port() {
        let rule = |peer, ports| Rule { peer, ports };
        let rules = vec![
            rule(Peer::App("back"), Ports::All),
            rule(Peer::Team("south"), Ports::From(7778)),
            rule(
                Peer::Block(network([0, 0, 0, 0], 0), Some(network([10, 244, 3, 0], 24))),
                Ports::From(7777),
            ),
        ];
        let policies = with(Some(rules), None);
        let to = |from| passes(&policies, from, pod(1, "red", "front"), 7777);
        assert_eq!(to(pod(3, "red", "back")), Some(true));
        assert_eq!(to(pod(3, "green", "back")), Some(false));
        assert_eq!(to(pod(2, "green", "back")), Some(true));
        assert_eq!(to(node(2)), Some(true));
        // Whether it is known by its address or by that of the overlay is not said.
        assert_eq!(to(node(3)), None);
    }

    #[test]
    fn the_tiers_come_before_and_after_network_policies() {
        let mut policies = with(Some(vec![]), None);
        let cluster = |tier, action| ClusterPolicy {
            tier,
            app: "front",
            direction: Direction::Ingress,
            action,
            team: Some("north"),
        };
        // Team north is red and blue.
        policies
            .cluster
            .insert(1, cluster(Tier::Admin, Verdict::Accept));
        policies
            .cluster
            .insert(2, cluster(Tier::Admin, Verdict::Deny));
        policies
            .cluster
            .insert(0, cluster(Tier::Baseline, Verdict::Deny));
        let to = |policies: &Policies, from, namespace| {
            passes(policies, from, pod(1, namespace, "front"), 7777)
        };
        assert_eq!(to(&policies, pod(2, "blue", "back"), "red"), Some(true));
        assert_eq!(to(&policies, pod(2, "green", "back"), "red"), Some(false));
        policies.cluster.remove(&1);
        assert_eq!(to(&policies, pod(2, "blue", "back"), "red"), Some(false));
        policies.cluster.remove(&2);
        assert_eq!(to(&policies, pod(2, "blue", "back"), "green"), Some(false));
        assert_eq!(to(&policies, pod(2, "green", "back"), "green"), Some(true));
    }
}
