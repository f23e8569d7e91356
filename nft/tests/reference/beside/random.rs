//! Random Services and EndpointSlices, as an API server lets them be.

use std::net::IpAddr;

use serde_json::{Value, json};

use tweed_core::object::endpoint_slice::SERVICE_LABEL;

use crate::cluster::Cluster;
use crate::dice::Dice;

/// How many Services there are.
const SERVICES: usize = 120;
const PROTOCOLS: [&str; 7] = ["TCP", "TCP", "TCP", "UDP", "UDP", "UDP", "SCTP"];
const PORTS: [u16; 4] = [53, 80, 443, 8080];
/// What `loadBalancerSourceRanges` may name.
pub const RANGES: [&str; 9] = [
    "203.0.0.0/17",
    " 203.0.128.0/18 ",
    "10.1.0.0/16",
    "10.0.0.0/8",
    "192.168.0.0/24",
    "0.0.0.0/0",
    "2600:5200::/64",
    "fd00:10:1::/48",
    "2001:db8::/64",
];
/// This node: its addresses, and where its pods are.
pub const NODE: &str = "this-node";
pub const NODE_IPS: [&str; 4] = ["192.168.0.2", "192.168.1.2", "2001:db8::2", "2001:db8:1::2"];
pub const POD_CIDRS: [&str; 2] = ["10.1.0.0/16", "fd00:10:1::/48"];
pub const OTHER_NODES: [[&str; 2]; 2] = [
    ["192.168.0.7", "192.168.0.8"],
    ["2001:db8::7", "2001:db8::8"],
];

/// A cluster without Services.
pub fn cluster(dice: &mut Dice) -> Cluster {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let node_ports: [&[&str]; 3] = [
        &[],
        &["192.168.0.2/32", "2001:db8::2/128"],
        &["192.168.0.0/16", "2001:db8::/32"],
    ];
    Cluster {
        node_name: NODE.to_owned(),
        node_ips: NODE_IPS.map(|ip| ip.parse().unwrap()).into(),
        zone: dice.pick(&["", "near"]).to_string(),
        cluster_cidrs: texts(&["10.0.0.0/8", "fd00:10::/32"]),
        service_cidrs: texts(&["172.30.0.0/16", "fd00:172::/112"]),
        node_port_addresses: texts(node_ports[dice.roll(3)]),
        external_ips: true,
        services: Vec::new(),
        slices: Vec::new(),
    }
}

/// Makes some Services and their slices anew, of which some are then gone: all of them in a
/// cluster that has none.
pub fn change(cluster: &mut Cluster, dice: &mut Dice) {
    let is_new = cluster.services.is_empty();
    for number in 0..SERVICES {
        if !is_new && !dice.chance(4) {
            continue;
        }
        let name = format!("service-{number}");
        let with_slices = is_new || dice.chance(2);
        if with_slices {
            cluster
                .slices
                .retain(|one| one["metadata"]["labels"][SERVICE_LABEL] != name);
        }
        let old = cluster
            .services
            .iter()
            .position(|one| one["metadata"]["name"] == name);
        if let Some(old) = old.filter(|_| with_slices) {
            cluster.services.remove(old);
        }
        if with_slices && dice.chance(10) {
            continue;
        }
        let known = cluster
            .services
            .iter()
            .find(|one| one["metadata"]["name"] == name);
        let service = match known {
            Some(known) => known.clone(),
            None => {
                let made = service(number, &name, dice);
                cluster.services.push(made.clone());
                made
            }
        };
        cluster
            .slices
            .retain(|one| one["metadata"]["labels"][SERVICE_LABEL] != name);
        cluster.slices.extend(slices(&service, &name, dice));
    }
}

fn service(number: usize, name: &str, dice: &mut Dice) -> Value {
    let v4 = format!("172.30.{}.{}", number / 200, 1 + number % 200);
    let v6 = format!("fd00:172::{:x}", 1 + number);
    let cluster_ips: Vec<String> = match dice.roll(4) {
        0 => vec![v6],
        1 => vec![v4, v6],
        _ => vec![v4],
    };
    let has = |v4: bool| cluster_ips.iter().any(|ip| ip.contains('.') == v4);
    let kind = *dice.pick(&["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"]);
    let mut ports: Vec<Value> = Vec::new();
    for index in 0..1 + dice.roll(3) {
        let (protocol, port) = (*dice.pick(&PROTOCOLS), *dice.pick(&PORTS));
        if ports
            .iter()
            .any(|one| one["protocol"] == protocol && one["port"] == port)
        {
            continue;
        }
        let node_port = 30_000 + 4 * number + index;
        ports.push(json!({
            "name": format!("port-{index}"), "protocol": protocol, "port": port,
            "nodePort": if kind == "ClusterIP" { 0 } else { node_port },
        }));
    }
    let addresses = |net4: &str, net6: &str| {
        let mut all = Vec::new();
        all.extend(has(true).then(|| format!("{net4}.{}", 1 + number)));
        all.extend(has(false).then(|| format!("{net6}::{:x}", 1 + number)));
        all
    };
    let families = [(true, "IPv4"), (false, "IPv6")].map(|(v4, name)| has(v4).then_some(name));
    let mut spec = json!({
        "type": kind, "clusterIP": cluster_ips[0], "clusterIPs": cluster_ips, "ports": ports,
        "ipFamilies": families.iter().flatten().collect::<Vec<_>>(),
        "internalTrafficPolicy": dice.pick(&["Cluster", "Cluster", "Local"]),
        "sessionAffinity": "None",
    });
    if dice.chance(6) {
        spec["sessionAffinity"] = json!("ClientIP");
        spec["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": 10_800 } });
    }
    let mut status = json!({ "loadBalancer": {} });
    let limited = kind == "LoadBalancer" && dice.chance(3);
    if limited {
        let ranges: Vec<&str> = (0..1 + dice.roll(3)).map(|_| *dice.pick(&RANGES)).collect();
        spec["loadBalancerSourceRanges"] = json!(ranges);
    }
    // A limit holds for external IPs too here, and for kube-proxy does not.
    let external = !limited && dice.chance(4);
    if external {
        spec["externalIPs"] = json!(addresses("198.51.100", "2001:db8:ffff"));
    }
    if kind != "ClusterIP" || external {
        let policy = *dice.pick(&["Cluster", "Local"]);
        spec["externalTrafficPolicy"] = json!(policy);
        if kind == "LoadBalancer" && policy == "Local" {
            spec["healthCheckNodePort"] = json!(40_000 + number);
        }
    }
    if kind == "LoadBalancer" {
        let mode = if dice.chance(8) { "Proxy" } else { "VIP" };
        let addresses = addresses("192.0.2", "2001:db8:2");
        let ingress = addresses
            .iter()
            .map(|ip| json!({ "ip": ip, "ipMode": mode }));
        status["loadBalancer"]["ingress"] = ingress.collect();
    }
    json!({
        "metadata": { "namespace": "shop", "name": name },
        "spec": spec, "status": status,
    })
}

fn slices(service: &Value, name: &str, dice: &mut Dice) -> Vec<Value> {
    let ips = service["spec"]["clusterIPs"].as_array().unwrap();
    let mut slices = Vec::new();
    // What is delivered to the node by SCTP is not seen, so no host is such an endpoint.
    let mut ports = service["spec"]["ports"].as_array().unwrap().iter();
    let hosts = ports.all(|port| port["protocol"] != "SCTP");
    // How often an endpoint has hints.
    let hints = [*dice.pick(&[0, 0, 1, 8]), *dice.pick(&[0, 0, 1, 8])];
    for ip in ips {
        let v4 = ip.as_str().unwrap().contains('.');
        let mut used = Vec::new();
        let slices_of_family = if dice.chance(8) { 0 } else { 1 + dice.roll(2) };
        for index in 0..slices_of_family {
            let mut endpoints = Vec::new();
            for endpoint in dice.some(4, |dice| endpoint(v4, hosts, hints, dice)) {
                if !used.contains(&endpoint["addresses"]) {
                    used.push(endpoint["addresses"].clone());
                    endpoints.push(endpoint);
                }
            }
            let mut ports = service["spec"]["ports"].as_array().unwrap().clone();
            ports.retain(|_| !dice.chance(9));
            let targets = ports.iter().map(|port| {
                let target = port["port"].as_u64().unwrap() + 8000;
                json!({ "name": port["name"], "protocol": port["protocol"], "port": target })
            });
            slices.push(json!({
                "metadata": {
                    "namespace": "shop", "name": format!("{name}-{}-{index}", if v4 { 4 } else { 6 }),
                    "labels": { SERVICE_LABEL: name },
                },
                "addressType": if v4 { "IPv4" } else { "IPv6" },
                "endpoints": endpoints,
                "ports": targets.collect::<Vec<_>>(),
            }));
        }
    }
    slices
}

fn endpoint(v4: bool, hosts: bool, [zones, nodes]: [usize; 2], dice: &mut Dice) -> Value {
    let local = dice.chance(2);
    let own_network = dice.chance(8) && hosts;
    let family = usize::from(!v4);
    let address = match (own_network, local) {
        (true, true) => NODE_IPS[2 * family].to_owned(),
        (true, false) => OTHER_NODES[family][0].to_owned(),
        (false, local) => pod(v4, local, dice).to_string(),
    };
    let (ready, serving, terminating) = *dice.pick(&[
        (true, true, false),
        (true, true, false),
        (true, true, false),
        (false, false, false),
        (false, true, true),
        (false, false, true),
    ]);
    let mut endpoint = json!({
        "addresses": [address],
        "nodeName": if local { NODE } else { "another-node" },
        "conditions": { "ready": ready, "serving": serving, "terminating": terminating },
    });
    let mut hint = |name: &str, often: usize, values: [&str; 2]| {
        if often == 1 || (often > 1 && !dice.chance(often)) {
            endpoint["hints"][name] = json!([{ "name": dice.pick(&values) }]);
        }
    };
    hint("forZones", zones, ["near", "far"]);
    hint("forNodes", nodes, [NODE, "another-node"]);
    endpoint
}

/// One of 24 pods of this node, or of others.
pub fn pod(v4: bool, local: bool, dice: &mut Dice) -> IpAddr {
    let (node, number) = (if local { 1 } else { 2 }, 10 + dice.roll(24));
    if v4 {
        IpAddr::from([10, node, 0, number as u8])
    } else {
        IpAddr::from([0xfd00, 0x10, node.into(), 0, 0, 0, 0, number as u16])
    }
}

pub fn is_remote_pod(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..2] == [10, 2],
        IpAddr::V6(ip) => ip.segments()[..3] == [0xfd00, 0x10, 2],
    }
}

pub fn has_affinity(service: &Value) -> bool {
    service["spec"]["sessionAffinity"] == "ClientIP"
}
