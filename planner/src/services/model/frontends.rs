//! The frontends of a Service, and its claims to them.

use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;

use super::claims::{Claimant, Class};
use super::spec::{Port, Spec};
use super::value::{Frontend, NodePort, ServiceName, Tracked};

/// The frontends of a port in a family.
pub fn frontends(
    spec: &Spec,
    family: Family,
    port: &Port,
) -> impl Iterator<Item = (Tracked, Class)> {
    let (protocol, number) = (port.protocol, port.port);
    let at = move |address: IpAddr| {
        Tracked::Address(Frontend {
            address,
            protocol,
            port: number,
        })
    };
    let all = [
        (&spec.cluster_ips, Class::ClusterIp),
        (&spec.load_balancer_ips, Class::LoadBalancer),
        (&spec.external_ips, Class::ExternalIp),
    ];
    let addresses = all.into_iter().flat_map(move |(addresses, class)| {
        let has_family = move |ip: &&IpAddr| Family::of(**ip) == family;
        let of_family = addresses.iter().filter(has_family);
        of_family.map(move |address| (at(*address), class))
    });
    let node_port = (port.node_port != 0).then_some(Tracked::NodePort(NodePort {
        family,
        protocol,
        port: port.node_port,
    }));
    addresses.chain(node_port.map(|key| (key, Class::NodePort)))
}

/// The frontends in a family that lead to the groups of the port at `index`.
pub fn frontends_at(
    spec: &Spec,
    family: Family,
    index: usize,
) -> impl Iterator<Item = (Tracked, Class)> {
    spec.of_group(index).flat_map(move |port| {
        let (has_number, has_node_port) = port.is_first;
        let has = move |at: &Tracked| match at {
            Tracked::Address(_) => has_number,
            Tracked::NodePort(_) => has_node_port,
        };
        frontends(spec, family, port).filter(move |(at, _)| has(at))
    })
}

/// All frontends of a Service, which may be named twice.
pub fn frontends_of(spec: &Spec) -> impl Iterator<Item = (Tracked, Class)> {
    let of_family = move |family| spec.ports.iter().map(move |port| (family, port));
    let ports = spec.families().flat_map(of_family);
    ports.flat_map(move |(family, port)| frontends(spec, family, port))
}

/// A Service as one that claims a frontend of a class.
pub fn claimant(spec: &Spec, class: Class, service: &Arc<ServiceName>) -> Claimant {
    Claimant {
        class,
        created: spec.created,
        service: service.clone(),
    }
}
