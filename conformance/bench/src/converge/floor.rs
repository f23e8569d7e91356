//! The same messages sent by hand: for each Node a neighbour, a forwarding entry and
//! a route. It reads nothing and decides nothing, so it is what the kernel takes.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use ipnetwork::IpNetwork;
use tweed_core::mac::Mac;
use tweed_lab::Netns;
use tweed_netlink::route::{self, Route};
use tweed_netlink::{Request, Socket, fdb, link, neighbour};

use super::fleet::FleetNode;

const DEVICE: &str = "floor.1";
/// The protocol of its routes: tweed's.
pub const PROTOCOL: u8 = 116;

/// A device to send messages about, and a socket for them.
pub struct Floor {
    socket: Socket,
    index: u32,
}

impl Floor {
    /// Makes the device in `netns`.
    pub fn new(netns: &Netns) -> anyhow::Result<Self> {
        netns.ip([
            format!("link add {DEVICE} type vxlan id 1 dstport 8472 nolearning"),
            format!("addr add 10.250.0.0/32 dev {DEVICE}"),
            format!("link set {DEVICE} up"),
        ])?;
        let mut socket = netns.enter(Socket::open)??;
        let device = link::by_name(&mut socket, DEVICE)?;
        let index = device.context("no device")?.index;
        Ok(Self { socket, index })
    }

    /// How long the kernel takes for the messages of all `nodes`.
    pub fn fill(&mut self, nodes: &[FleetNode]) -> anyhow::Result<Duration> {
        self.send_all(nodes, Self::requests)
    }

    /// How long it takes to remove what [`Floor::fill`] has made of `nodes`.
    pub fn clear(&mut self, nodes: &[FleetNode]) -> anyhow::Result<Duration> {
        self.send_all(nodes, Self::removals)
    }

    /// Sends the first request of each Node, then the second of each, and so on.
    fn send_all(
        &mut self,
        nodes: &[FleetNode],
        of: fn(&Self, &FleetNode) -> anyhow::Result<[Request; 3]>,
    ) -> anyhow::Result<Duration> {
        let mut parts: [Vec<Request>; 3] = Default::default();
        for node in nodes {
            for (part, request) in parts.iter_mut().zip(of(self, node)?) {
                part.push(request);
            }
        }
        let requests = parts.concat();
        let start = Instant::now();
        self.send(&requests)?;
        Ok(start.elapsed())
    }

    /// Sends the messages of one Node; gives the moment before.
    pub fn send_one(&mut self, node: &FleetNode) -> anyhow::Result<Instant> {
        let requests = self.requests(node)?;
        let start = Instant::now();
        self.send(&requests)?;
        Ok(start)
    }

    fn requests(&self, node: &FleetNode) -> anyhow::Result<[Request; 3]> {
        let (mac, gateway) = (mac(node), IpAddr::V4(node.pods));
        Ok([
            neighbour::set(self.index, DEVICE, gateway, mac),
            fdb::set(self.index, DEVICE, mac, node.address.into()),
            route::add(&self.route(node)?),
        ])
    }

    fn removals(&self, node: &FleetNode) -> anyhow::Result<[Request; 3]> {
        let (mac, gateway) = (mac(node), IpAddr::V4(node.pods));
        Ok([
            route::delete(&self.route(node)?),
            fdb::delete(self.index, DEVICE, mac, Some(node.address.into())),
            neighbour::delete(self.index, DEVICE, gateway),
        ])
    }

    fn route(&self, node: &FleetNode) -> anyhow::Result<Route> {
        let gateway = IpAddr::V4(node.pods);
        Ok(Route {
            gateway: Some(gateway),
            onlink: true,
            out: Some(self.index),
            ..Route::to(IpNetwork::new(gateway, 24)?, PROTOCOL)
        })
    }

    fn send(&mut self, requests: &[Request]) -> anyhow::Result<()> {
        for answer in self.socket.batch(requests)? {
            answer?;
        }
        Ok(())
    }
}

fn mac(node: &FleetNode) -> Mac {
    let [a, b, c, d] = node.address.octets();
    Mac([2, 116, a, b, c, d])
}
