//! Random policies.

use tweed_core::object::cluster_network_policy::{self as cluster, ClusterNetworkPolicy};
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::{self as network, NetworkPolicy, PortMatch};
use tweed_core::object::selector::{LabelSelector, Operator, Requirement};

use super::world::labels;
use crate::tests::dice::Dice;

/// The names of all namespaces.
pub const NAMESPACES: [&str; 3] = ["a", "b", "c"];
const CIDRS: [&str; 12] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.0.1.0/28",
    "10.0.1.3/32",
    "10.0.0.2/32",
    "192.0.2.0/24",
    "192.0.2.2/32",
    "198.51.100.0/24",
    "198.51.100.128/25",
    "::/0",
    "fd00::/64",
    "2001:db8::/32",
];

fn selector(dice: &mut Dice) -> LabelSelector {
    let mut selector = LabelSelector::default();
    if dice.chance(3) {
        return selector;
    }
    if dice.chance(2) {
        let (key, value) = (*dice.pick(&["app", "tier"]), *dice.pick(&["x", "y"]));
        selector.match_labels = [(key.into(), value.into())].into();
        return selector;
    }
    let operators = [
        Operator::In,
        Operator::NotIn,
        Operator::Exists,
        Operator::DoesNotExist,
    ];
    let mut operator = dice.pick(&operators).clone();
    if dice.chance(12) {
        operator = Operator::Unknown("Like".into());
    }
    selector.match_expressions.push(Requirement {
        key: (*dice.pick(&["app", "tier"])).into(),
        operator,
        values: vec![(*dice.pick(&["x", "y"])).into()],
    });
    selector
}

fn namespace_selector(dice: &mut Dice) -> LabelSelector {
    if dice.chance(2) {
        return selector(dice);
    }
    let name = *dice.pick(&NAMESPACES);
    LabelSelector {
        match_labels: labels(&[(Namespace::NAME_LABEL, name)])
            .into_iter()
            .collect(),
        ..LabelSelector::default()
    }
}

fn port(dice: &mut Dice) -> PortMatch {
    match dice.roll(8) {
        0 => PortMatch::All,
        1 => PortMatch::Range(80, 443),
        2 => PortMatch::Range(1024, 65535),
        3 => PortMatch::Named("http".into()),
        4 => PortMatch::Named("metrics".into()),
        5 if dice.chance(4) => PortMatch::Invalid("-1".into()),
        5 => PortMatch::Range(0, 80),
        6 => PortMatch::Range(443, 443),
        _ => PortMatch::Range(80, 80),
    }
}

fn protocol(dice: &mut Dice) -> String {
    let protocols = ["TCP", "TCP", "TCP", "TCP", "UDP", "UDP", "SCTP"];
    let odd = dice.chance(20);
    (if odd { "DCCP" } else { *dice.pick(&protocols) }).to_owned()
}

pub fn network_policy(dice: &mut Dice) -> NetworkPolicy {
    let namespace = (*dice.pick(&NAMESPACES)).to_owned();
    let rules = |dice: &mut Dice| {
        dice.some(2, |dice| network::Rule {
            peers: dice.some(2, network_peer),
            ports: dice.some(2, |dice| network::Port {
                protocol: protocol(dice),
                port: port(dice),
            }),
        })
    };
    let types: [&[&str]; 5] = [
        &[],
        &["Ingress"],
        &["Egress"],
        &["Ingress", "Egress"],
        &["Ingress"],
    ];
    let types = dice.pick(&types).iter().map(|one| (*one).to_owned());
    NetworkPolicy {
        namespace,
        name: format!("np{}", dice.roll(4)),
        pod_selector: selector(dice),
        policy_types: types.collect(),
        ingress: rules(dice),
        egress: rules(dice),
        ..NetworkPolicy::default()
    }
}

fn network_peer(dice: &mut Dice) -> network::Peer {
    match dice.roll(9) {
        0..4 => network::Peer::Block {
            cidr: (*dice.pick(&CIDRS)).into(),
            except: dice.some(2, |dice| (*dice.pick(&CIDRS)).into()),
        },
        4 if dice.chance(3) => network::Peer::Unknown("service".into()),
        4 if dice.chance(3) => network::Peer::Block {
            cidr: "10.0.0.0/99".into(),
            except: Vec::new(),
        },
        _ => network::Peer::Pods {
            namespace: dice.chance(2).then(|| namespace_selector(dice)),
            pod: (!dice.chance(3)).then(|| selector(dice)),
        },
    }
}

pub fn cluster_policy(dice: &mut Dice) -> ClusterNetworkPolicy {
    let subject = match dice.roll(12) {
        0 => cluster::Subject::Unknown("serviceAccounts".into()),
        1..6 => cluster::Subject::Namespaces(namespace_selector(dice)),
        _ => cluster::Subject::Pods {
            namespace: namespace_selector(dice),
            pod: selector(dice),
        },
    };
    let rules = |dice: &mut Dice, egress: bool| {
        dice.some(3, |dice| cluster::Rule {
            name: String::new(),
            action: (*dice.pick(&["Accept", "Deny", "Pass", "Accept", "Deny", "Pass", "Log"]))
                .into(),
            peers: (0..=dice.roll(2))
                .map(|_| cluster_peer(dice, egress))
                .collect(),
            protocols: dice.some(2, cluster_protocol),
        })
    };
    let tiers = [
        "Admin", "Admin", "Admin", "Baseline", "Baseline", "Baseline", "Late",
    ];
    ClusterNetworkPolicy {
        name: format!("cnp{}", dice.roll(4)),
        tier: (*dice.pick(&tiers)).into(),
        priority: dice.roll(3) as i64,
        subject,
        ingress: rules(dice, false),
        egress: rules(dice, true),
        ..ClusterNetworkPolicy::default()
    }
}

fn cluster_peer(dice: &mut Dice, egress: bool) -> cluster::Peer {
    if egress && dice.chance(2) {
        return match dice.roll(7) {
            0 => cluster::Peer::DomainNames(vec!["example.com".into()]),
            1..3 => cluster::Peer::Nodes(selector(dice)),
            _ => cluster::Peer::Networks(vec![(*dice.pick(&CIDRS)).into()]),
        };
    }
    match dice.roll(14) {
        0 => cluster::Peer::Unknown("everything".into()),
        1..6 => cluster::Peer::Namespaces(namespace_selector(dice)),
        _ => cluster::Peer::Pods {
            namespace: namespace_selector(dice),
            pod: selector(dice),
        },
    }
}

fn cluster_protocol(dice: &mut Dice) -> cluster::Protocol {
    match dice.roll(10) {
        0 => cluster::Protocol::NamedPort("http".into()),
        1 => cluster::Protocol::NamedPort("metrics".into()),
        2 if dice.chance(4) => cluster::Protocol::Unknown("icmp".into()),
        _ => {
            let mut port = port(dice);
            if matches!(port, PortMatch::Named(_)) {
                port = PortMatch::All;
            }
            cluster::Protocol::Ports {
                protocol: protocol(dice),
                port,
            }
        }
    }
}
