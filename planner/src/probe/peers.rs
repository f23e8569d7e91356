//! The ways to other nodes, out of the plan of the overlay.

use std::net::IpAddr;

use tweed_component::peers::Way;
use tweed_core::family::Family;
use tweed_core::object::node::Node;

use super::{Own, Peer};
use crate::overlay::desired::{Desired, Network, Route, RouteKey};
use crate::overlay::syntax;

/// What this node has itself, and the ways over which `network` reaches the others.
pub fn of<'a>(network: &Network, nodes: impl Iterator<Item = &'a Node>) -> (Own, Vec<Peer>) {
    let by_family = |ip: IpAddr| (Family::of(ip), ip);
    let own = Own {
        addresses: (network.pod_cidrs.iter())
            .map(|cidr| by_family(cidr.network()))
            .collect(),
        underlay: network
            .own_addresses
            .keys()
            .copied()
            .map(by_family)
            .collect(),
        mtu: network.pod_mtu,
        vxlan_port: (network.desired.vxlan.as_ref()).map_or(0, |device| device.port),
    };
    let main = Family::of(network.underlay.address);
    let peers = nodes.flat_map(|node| {
        let ways: Vec<_> = node
            .pod_cidrs
            .iter()
            .filter_map(|text| way(network, node, text))
            .collect();
        let has_main = ways
            .iter()
            .any(|(address, ..)| Family::of(*address) == main);
        ways.into_iter().map(move |(address, underlay, way)| Peer {
            node: node.name.clone(),
            address,
            underlay,
            way,
            is_main: !has_main || Family::of(address) == main,
            is_ready: !node.not_ready,
        })
    });
    (own, peers.collect())
}

/// The way to a pod CIDR of `node`, if the plan has it: a claim that was refused is not there,
/// or leads to another node.
fn way(network: &Network, node: &Node, cidr: &str) -> Option<(IpAddr, IpAddr, Way)> {
    let cidr = syntax::pod_cidr(cidr).ok()?;
    let Desired {
        routes,
        neighbours,
        fdb,
        ..
    } = &network.desired;
    let (underlay, way) = match routes.get(&RouteKey::to(cidr))? {
        Route::Overlay { gateway } => (*fdb.get(neighbours.get(gateway)?)?, Way::Vxlan),
        Route::Direct { gateway, .. } => (*gateway, Way::Direct),
        Route::Unreachable => return None,
    };
    let listed = node.addresses.iter();
    let mut addresses = listed.filter_map(|entry| syntax::address(&entry.address).ok());
    let is_its_own = addresses.any(|ip| ip == underlay);
    is_its_own.then_some((cidr.network(), underlay, way))
}
