//! Random packets that have to do with the Services of a cluster.

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;
use serde_json::Value;

use tweed_core::object::endpoint_slice::SERVICE_LABEL;

use super::random::{NODE_IPS, OTHER_NODES, RANGES, has_affinity, pod};
use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::packet::{SCTP, TCP, UDP};
use crate::prober::{Probe, Sender};

/// A source that the sender may have.
fn source(sender: Sender, v4: bool, dice: &mut Dice) -> IpAddr {
    let family = usize::from(!v4);
    match sender {
        Sender::Pod => match dice.roll(5) {
            0 | 1 => pod(v4, true, dice),
            2 => pod(v4, false, dice),
            // One that is no endpoint.
            _ => {
                if v4 {
                    IpAddr::from([10, 1, 1 + dice.roll(200) as u8, dice.roll(250) as u8])
                } else {
                    IpAddr::from([0xfd00, 0x10, 1, 1, 0, 0, 0, dice.roll(60_000) as u16])
                }
            }
        },
        Sender::World => match (dice.roll(6), v4) {
            (0, _) => OTHER_NODES[family][dice.roll(2)].parse().unwrap(),
            (_, true) => IpAddr::from([203, 0, dice.roll(256) as u8, dice.roll(256) as u8]),
            (_, false) => {
                let net = dice.roll(2) as u16;
                IpAddr::from([0x2600, 0x5200, 0, net, 0, 0, 0, dice.roll(60_000) as u16])
            }
        },
        Sender::Node => NODE_IPS[2 * family + dice.roll(2)].parse().unwrap(),
    }
}

/// A packet, and the Service that it is meant for, which may lack what it is sent to.
pub fn probe(cluster: &Cluster, dice: &mut Dice) -> (Probe, Value) {
    let service = dice.pick(&cluster.services).clone();
    let spec = &service["spec"];
    let v4 = dice
        .pick(spec["clusterIPs"].as_array().unwrap())
        .as_str()
        .unwrap()
        .contains('.');
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut addresses: Vec<String> = all(&spec["clusterIPs"]).iter().map(text).collect();
    addresses.extend(all(&spec["externalIPs"]).iter().map(text));
    let ingress = all(&service["status"]["loadBalancer"]["ingress"]);
    addresses.extend(ingress.iter().map(|one| text(&one["ip"])));
    addresses.retain(|ip| ip.contains('.') == v4);
    let port = dice.pick(spec["ports"].as_array().unwrap());
    let protocol = match port["protocol"].as_str().unwrap() {
        "TCP" => TCP,
        "UDP" => UDP,
        _ => SCTP,
    };
    let node_port = port["nodePort"].as_u64().unwrap_or_default() as u16;
    let at_node = node_port != 0 && dice.chance(3);
    let (mut destination, mut number): (IpAddr, u16) = if at_node {
        (
            NODE_IPS[2 * usize::from(!v4) + dice.roll(2)]
                .parse()
                .unwrap(),
            node_port,
        )
    } else {
        (
            dice.pick(&addresses).parse().unwrap(),
            port["port"].as_u64().unwrap() as u16,
        )
    };
    match dice.roll(20) {
        // Not a node port, which may be that of another Service.
        0 => number = 1 + dice.roll(30_000 - 1) as u16,
        1 => {
            destination = if v4 {
                [172, 30, 250, dice.roll(250) as u8].into()
            } else {
                [0xfd00, 0x172, 0, 0, 0, 0, 0, 0xff00 + dice.roll(200) as u16].into()
            };
        }
        _ => {}
    }
    let protocol = match dice.roll(20) {
        0 => *dice.pick(&[TCP, UDP]),
        _ => protocol,
    };
    let sender = *dice.pick(&[Sender::Pod, Sender::World, Sender::World, Sender::Node]);
    let mut source = source(sender, v4, dice);
    if sender == Sender::Pod && dice.chance(4) {
        // One that may get its own packets.
        let of_service =
            |one: &&Value| one["metadata"]["labels"][SERVICE_LABEL] == service["metadata"]["name"];
        let slices = cluster.slices.iter().filter(of_service);
        let endpoints = slices.flat_map(|one| all(&one["endpoints"]));
        let pods = endpoints.map(|one| text(&one["addresses"][0]));
        let pods: Vec<IpAddr> = pods.map(|ip| ip.parse().unwrap()).collect();
        let of_family = |ip: &IpAddr| ip.is_ipv4() == v4 && is_pod(*ip);
        let pods: Vec<IpAddr> = pods.into_iter().filter(of_family).collect();
        if !pods.is_empty() {
            source = *dice.pick(&pods);
        }
    }
    let probe = Probe {
        sender,
        source,
        protocol,
        destination: SocketAddr::new(destination, number),
    };
    (probe, service)
}

/// Another packet of the same kind. To a Service that remembers its clients it comes, if it
/// can, from another address, which the same source ranges hold.
pub fn like(probe: &Probe, service: &Value, dice: &mut Dice) -> Probe {
    if !has_affinity(service) || !has_many_sources(probe) {
        return *probe;
    }
    let holds =
        |ip: IpAddr| RANGES.map(|range| range.trim().parse::<IpNetwork>().unwrap().contains(ip));
    let wanted = holds(probe.source);
    for _ in 0..100 {
        let source = source(probe.sender, probe.source.is_ipv4(), dice);
        let other = Probe { source, ..*probe };
        if has_many_sources(&other) && holds(source) == wanted {
            return other;
        }
    }
    *probe
}

/// Whether packets of a kind can come from enough addresses to see all endpoints of a Service
/// that remembers its clients.
pub fn has_many_sources(probe: &Probe) -> bool {
    match probe.sender {
        Sender::Pod => !is_endpoint(probe.source),
        Sender::World => {
            let nodes = OTHER_NODES.as_flattened().iter();
            !nodes
                .map(|ip| ip.parse::<IpAddr>())
                .any(|ip| ip == Ok(probe.source))
        }
        Sender::Node => false,
    }
}

fn is_pod(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[0] == 10,
        IpAddr::V6(ip) => ip.segments()[0] == 0xfd00,
    }
}

/// Whether an endpoint may have an address of a pod.
fn is_endpoint(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[2] == 0,
        IpAddr::V6(ip) => ip.segments()[3] == 0,
    }
}
