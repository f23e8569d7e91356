//! Random clusters, their changes, and flows in them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use tweed_core::object::endpoint_slice::{Endpoint, EndpointSlice, SlicePort};
use tweed_core::object::node::Node;
use tweed_core::object::service::{Service, ServicePort};
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Object};

use super::fixture::{cluster, list, node, own_node, planner, texts};
use crate::services::tests::evaluator::{Cluster, Flow};
use crate::services::{PodNetworks, ServicePlanner};
use crate::tests::dice::Dice;

const SERVICES: [&str; 4] = ["a", "b", "c", "d"];
const SLICES: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];
const CLUSTER_IPS: [&str; 4] = ["10.96.0.1", "10.96.0.2", "10.96.0.3", "10.97.0.4"];
const CLUSTER_IPS_V6: [&str; 3] = ["fd00:96::1", "fd00:96::2", "fd00:97::3"];
/// Also one of a Service's, one of this Node's, of nobody's, and one that is no address.
const EXTERNAL: [&str; 7] = [
    "127.0.0.1",
    "203.0.113.1",
    "203.0.113.2",
    "2001:db8:1::1",
    "10.96.0.1",
    "192.0.2.1",
    "lb",
];
/// Also one of this Node's addresses, and one that is none.
const ENDPOINTS: [&str; 10] = [
    "10.0.0.2",
    "10.0.0.3",
    "10.0.0.4",
    "10.0.1.2",
    "10.0.1.3",
    "::ffff:10.0.1.4",
    "fd00:0:0:1::2",
    "fd00:0:0:2::3",
    "192.0.2.1",
    "host",
];
const SOURCES: [&str; 12] = [
    "10.0.0.2",
    "10.0.0.3",
    "10.0.1.2",
    "192.0.2.1",
    "192.0.2.2",
    "198.51.100.1",
    "198.51.100.200",
    "fd00:0:0:1::2",
    "fd00:0:0:2::3",
    "2001:db8::1",
    "2001:db8:ffff::1",
    "198.18.0.1",
];
const DESTINATIONS: [&str; 16] = [
    "10.96.0.1",
    "10.96.0.2",
    "10.96.0.3",
    "10.97.0.4",
    "10.96.0.9",
    "fd00:96::1",
    "fd00:96::2",
    "fd00:96::9",
    "203.0.113.1",
    "203.0.113.2",
    "2001:db8:1::1",
    "192.0.2.1",
    "192.0.2.7",
    "2001:db8::1",
    "127.0.0.1",
    "10.0.1.2",
];
const RANGES: [&str; 8] = [
    "0.0.0.0/0",
    " 198.51.100.0/25",
    "198.51.100.128/25 ",
    "192.0.2.0/24",
    "10.0.0.0/8",
    "2001:db8::/32",
    "::/0",
    "everywhere",
];

/// A cluster and what the planner was told of it.
pub struct World {
    pub cluster: Cluster,
    pub planner: ServicePlanner,
}

fn some(dice: &mut Dice, from: &[&str], most: usize) -> Vec<String> {
    dice.some(most, |dice| (*dice.pick(from)).to_owned())
}

fn protocol(dice: &mut Dice) -> String {
    (*dice.pick(&["TCP", "TCP", "TCP", "UDP", "SCTP", "ICMP"])).to_owned()
}

fn service(dice: &mut Dice, name: &str) -> Service {
    let mut cluster_ips = Vec::new();
    if !dice.chance(5) {
        cluster_ips.push((*dice.pick(&CLUSTER_IPS)).to_owned());
    }
    if dice.chance(2) {
        cluster_ips.push((*dice.pick(&CLUSTER_IPS_V6)).to_owned());
    }
    let is_external = dice.chance(2);
    let most = if is_external { 2 } else { 0 };
    let ports = dice.some(3, |dice| ServicePort {
        name: (*dice.pick(&["", "http", "dns"])).to_owned(),
        protocol: protocol(dice),
        port: *dice.pick(&[80, 53]),
        node_port: if is_external && dice.chance(2) {
            *dice.pick(&[30080, 30053])
        } else {
            0
        },
    });
    let kinds = ["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"];
    Service {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        created: dice.chance(3).then(|| dice.roll(3) as i64),
        not_ours: dice.chance(8),
        kind: if dice.chance(12) {
            "ExternalName".to_owned()
        } else {
            (*dice.pick(&kinds)).to_owned()
        },
        cluster_ips,
        external_ips: some(dice, &EXTERNAL, most),
        load_balancer_ips: some(dice, &EXTERNAL, most),
        source_ranges: some(dice, &RANGES, most),
        ports,
        affinity_seconds: dice.chance(3).then(|| 60 + dice.roll(2) as u32),
        internal_local: dice.chance(4),
        external_local: dice.chance(2),
        health_check_node_port: [0, 31000][dice.roll(2)],
    }
}

fn endpoint(dice: &mut Dice, hinted: bool) -> Endpoint {
    let address = *dice.pick(&ENDPOINTS);
    let local = address.starts_with("10.0.0.") || address.starts_with("fd00:0:0:1:");
    let serving = !dice.chance(5);
    let most = if hinted { 3 } else { 0 };
    Endpoint {
        address: address.to_owned(),
        ready: serving && !dice.chance(3),
        serving,
        terminating: dice.chance(3),
        node: {
            let is_mine = local != dice.chance(15);
            let name = if is_mine { "me" } else { "other" };
            if dice.chance(8) {
                String::new()
            } else {
                name.to_owned()
            }
        },
        zone_hints: some(dice, &["z1", "z2", ""], most),
        node_hints: some(dice, &["me", "other"], most),
    }
}

fn slice(dice: &mut Dice, name: &str) -> EndpointSlice {
    let hinted = dice.chance(2);
    EndpointSlice {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        service: if dice.chance(12) {
            String::new()
        } else {
            (*dice.pick(&SERVICES)).to_owned()
        },
        not_ours: dice.chance(12),
        endpoints: dice.some(5, |dice| endpoint(dice, hinted)),
        ports: dice.some(3, |dice| SlicePort {
            name: (*dice.pick(&["", "http", "dns"])).to_owned(),
            protocol: protocol(dice),
            port: *dice.pick(&[8080, 5353]),
        }),
        triggered: None,
    }
}

fn cidrs(dice: &mut Dice) -> Vec<ServiceCidr> {
    // Some have addresses of Nodes, or ranges of pods.
    let all = [
        "10.0.0.0/12",
        "10.96.0.0/16",
        "10.96.0.0/24",
        "fd00:96::/112",
        "192.0.2.0/24",
        "2001:db8::/32",
        "none",
    ];
    vec![ServiceCidr {
        name: "kubernetes".to_owned(),
        cidrs: some(dice, &all, 3),
    }]
}

fn some_node(dice: &mut Dice) -> Node {
    let all = ["192.0.2.1", "192.0.2.7", "2001:db8::1"];
    let chosen = some(dice, &all, 3);
    let addresses: Vec<&str> = chosen.iter().map(String::as_str).collect();
    let mut node = node("me", &addresses, &["10.0.0.0/24", "fd00:0:0:1::/64"], "");
    let zone = (*dice.pick(&["z1", "z1", "z2", ""])).to_owned();
    let label = ("topology.kubernetes.io/zone".to_owned(), zone);
    node.labels = [label].into();
    for address in &mut node.addresses {
        if dice.chance(3) {
            address.kind = "ExternalIP".to_owned();
        }
    }
    node
}

/// Also at ports of Services, and at node ports.
fn api_servers(dice: &mut Dice) -> BTreeSet<SocketAddr> {
    let all = [
        "10.96.0.1:80",
        "10.96.0.9:53",
        "192.0.2.1:30080",
        "192.0.2.7:30080",
        "203.0.113.1:80",
        "[2001:db8:1::1]:53",
    ];
    let some = some(dice, &all, 2).into_iter();
    some.map(|at| at.parse().unwrap()).collect()
}

/// The pods of this Node, which may be in one range with all others, and of another one.
fn pods(dice: &mut Dice) -> PodNetworks {
    let own: &[&str] = if dice.chance(6) {
        &[]
    } else {
        &["10.0.0.0/24", "fd00:0:0:1::/64"]
    };
    let others = dice.pick(&[
        ["10.0.1.0/24", "fd00:0:0:2::/64"],
        ["10.0.1.0/24", "fd00:0:0:2::/64"],
        ["10.0.0.0/8", "fd00:0:0:2::/64"],
    ]);
    super::fixture::pods(own, others)
}

fn all<T>(dice: &mut Dice, names: &[&str], one: impl Fn(&mut Dice, &str) -> T) -> Vec<T> {
    let mut objects = Vec::new();
    for name in names {
        if !dice.chance(4) {
            objects.push(one(dice, name));
        }
    }
    objects
}

/// Changes one of `objects`, or makes or removes one. The event that tells of it.
fn change<T: Object>(
    dice: &mut Dice,
    objects: &mut Vec<T>,
    names: &[&str],
    one: impl Fn(&mut Dice, &str) -> T,
) -> Event<T> {
    let name = *dice.pick(names);
    let known = objects.iter().position(|object| object.name() == name);
    let removed = known.map(|index| objects.swap_remove(index));
    match removed {
        Some(removed) if dice.chance(4) => Event::Delete(removed.key()),
        _ => {
            let object = one(dice, name);
            objects.push(object.clone());
            Event::Apply(object)
        }
    }
}

impl World {
    pub fn random(dice: &mut Dice) -> Self {
        let services = all(dice, &SERVICES, service);
        let slices = all(dice, &SLICES, slice);
        let mut cluster = cluster(services, slices);
        cluster.cidrs = cidrs(dice);
        cluster.nodes[0] = some_node(dice);
        cluster.pods = pods(dice);
        cluster.api_servers = api_servers(dice);
        cluster.options.external_ips = dice.chance(2);
        if dice.chance(3) {
            cluster.options.load_balancer_cidrs = vec!["203.0.113.1/32".parse().unwrap()];
        }
        let networks = ["192.0.2.0/24", "0.0.0.0/0", "::/0"];
        let networks = some(dice, &networks, 2);
        let places = &mut cluster.options.node_port_addresses;
        places.networks = networks.iter().map(|one| one.parse().unwrap()).collect();
        places.primary = dice.chance(2);
        let planner = planner(&cluster);
        Self { cluster, planner }
    }

    /// Changes an object, and tells the planner.
    pub fn change(&mut self, dice: &mut Dice) {
        let Self { cluster, planner } = self;
        match dice.roll(14) {
            0..=4 => {
                let event = change(dice, &mut cluster.slices, &SLICES, slice);
                planner.apply_endpoint_slices(event);
            }
            5..=7 => {
                let event = change(dice, &mut cluster.services, &SERVICES, service);
                planner.apply_services(event);
            }
            8 => {
                cluster.cidrs = cidrs(dice);
                planner.apply_service_cidrs(Event::Apply(cluster.cidrs[0].clone()));
            }
            9 => {
                cluster.nodes.retain(|node| node.name != "me");
                if !dice.chance(4) {
                    cluster.nodes.push(some_node(dice));
                }
                planner.set_node(own_node(cluster));
                planner.set_nodes(&cluster.nodes);
            }
            13 => {
                cluster.api_servers = api_servers(dice);
                planner.set_api_servers(&cluster.api_servers);
            }
            10 => {
                cluster.pods = pods(dice);
                planner.set_pod_networks(cluster.pods.clone());
            }
            11 => {
                cluster.services = all(dice, &SERVICES, service);
                for event in list(&cluster.services) {
                    planner.apply_services(event);
                }
            }
            _ => {
                cluster.slices = all(dice, &SLICES, slice);
                for event in list(&cluster.slices) {
                    planner.apply_endpoint_slices(event);
                }
            }
        }
    }

    /// A random flow in the cluster.
    pub fn flow(&self, dice: &mut Dice) -> Flow {
        let destination: IpAddr = dice.pick(&DESTINATIONS).parse().unwrap();
        let local = texts(&[
            "192.0.2.1",
            "192.0.2.7",
            "2001:db8::1",
            "127.0.0.1",
            "203.0.113.2",
        ]);
        let same = |ip: &IpAddr| ip.is_ipv4() == destination.is_ipv4();
        let parsed = SOURCES.iter().map(|ip| ip.parse().unwrap());
        let sources: Vec<IpAddr> = parsed.filter(same).collect();
        Flow {
            source: *dice.pick(&sources),
            is_own: dice.chance(4),
            destination,
            is_local: local.contains(&destination.to_string()),
            protocol: *dice.pick(&[6, 6, 6, 17, 132, 1]),
            port: *dice.pick(&[80, 80, 53, 30080, 30053, 9]),
        }
    }
}
