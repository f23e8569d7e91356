//! The ways that packets of pods go on a node, and for a rule the packets of each way that it
//! is for. Pure but for [`Ways::uplinks`].

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_netlink::link::Link;
use tweed_netlink::route::{Kind, LOCAL_TABLE, MAIN_TABLE, Route};
use tweed_netlink::{Socket, owned, path, rule::Rule};

use crate::ranges::{inside, narrower};

/// Addresses that stand for the world outside (a.root-servers.net): nobody has a route of
/// their own for them.
const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(198, 41, 0, 4);
const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30);
/// `RTN_LOCAL`: the machine's own.
pub(super) const LOCAL: Kind = Kind::Other(2);

/// The ways that packets of pods go on this node.
#[derive(Debug, Clone, Copy)]
pub struct Ways<'a> {
    /// The links of this machine by index.
    pub links: &'a BTreeMap<u32, Link>,
    /// Addresses that this machine sends from.
    pub sources: &'a [IpAddr],
    /// Addresses of the local pods, each with the index of its link.
    pub pods: &'a BTreeSet<(IpAddr, u32)>,
    /// The pod CIDRs of this node.
    pub own: &'a [IpNetwork],
    /// The pod CIDRs of other nodes, in the order of their ranges.
    pub peers: &'a [Peer],
    /// Index of the link that the other nodes are reached by.
    pub uplink: u32,
    /// Ranges that hold pod CIDRs, for commands.
    pub ranges: &'a BTreeSet<IpNetwork>,
}

/// A pod CIDR of another node, and tweed's route to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The pod CIDR.
    pub range: IpNetwork,
    /// The gateway of the route.
    pub gateway: IpAddr,
    /// Index of the link that its pods are reached by, and send from.
    pub link: u32,
}

/// Where a packet comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    /// None for one of this machine that has no source yet.
    pub(super) address: Option<IpAddr>,
    /// Index of the link; none if this machine sends it.
    pub(super) incoming: Option<u32>,
}

/// Where a packet goes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination {
    pub(super) address: IpAddr,
    pub(super) to: To,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    /// A pod that tweed has a route to, by this link and gateway, and the pod CIDR that it
    /// is in.
    Pod((u32, Option<IpAddr>), IpNetwork),
    /// An address of this node's that no pod has yet.
    Free(IpNetwork),
    /// The world outside.
    Outside,
}

impl Ways<'_> {
    /// For each kind of way a packet that the rule is for, where there is one; to `within`
    /// where that is given.
    pub(super) fn packets(
        &self,
        rule: &Rule,
        within: Option<IpNetwork>,
        uplinks: &BTreeSet<u32>,
        family: Family,
    ) -> Vec<(Source, Destination)> {
        let own = |range: Option<IpNetwork>| range.filter(|_| !rule.inverted);
        let from = own(rule.from);
        let to = match (own(rule.to), within) {
            (Some(rule), Some(within)) => match narrower(rule, within) {
                Some(both) => Some(both),
                None => return Vec::new(),
            },
            (rule, within) => rule.or(within),
        };
        let is_of = |ip: &IpAddr| Family::of(*ip) == family;
        let source = |address, incoming| Source {
            address: Some(address),
            incoming: Some(incoming),
        };
        let hosts = || {
            let sources = self.sources.iter().copied().filter(is_of).map(Some);
            iter::once(None).chain(sources).map(|address| Source {
                address,
                incoming: None,
            })
        };
        let pods = || self.pods.iter().filter(|(ip, _)| is_of(ip));
        let from_pods = || pods().map(|(ip, link)| source(*ip, *link));
        let peers = |scope| self.peers_in(scope).filter(|peer| is_of(&peer.range.ip()));
        let from_peers = || {
            let pods = peers(from).map(|peer| source(inside(peer.range, from), peer.link));
            let nodes = peers(None).filter(|peer| peer.is_direct());
            pods.chain(nodes.map(|peer| source(peer.gateway, peer.link)))
        };
        let from_outside = || uplinks.iter().map(|link| source(outside(family), *link));
        let to_pods = || {
            let meant = pods().filter(|(ip, _)| to.is_none_or(|to| to.contains(*ip)));
            let pods = meant.map(|(ip, link)| Destination {
                address: *ip,
                to: To::Pod((*link, None), self.own_range(*ip)),
            });
            let ranges = self.own.iter().filter(|own| is_of(&own.ip()));
            let free = ranges.filter(|own| to.is_some_and(|to| narrower(**own, to).is_some()));
            pods.chain(free.map(|own| Destination {
                address: inside(*own, to),
                to: To::Free(*own),
            }))
        };
        let to_peers = || {
            peers(to).map(|peer| Destination {
                address: inside(peer.range, to),
                to: To::Pod((peer.link, Some(peer.gateway)), peer.range),
            })
        };
        let to_outside = iter::once(Destination {
            address: outside(family),
            to: To::Outside,
        })
        .filter(|_| within.is_none());
        [
            self.pick(rule, hosts(), to_pods()),
            self.pick(rule, hosts(), to_peers()),
            self.pick(rule, from_pods(), to_pods()),
            self.pick(rule, from_pods(), to_peers()),
            self.pick(rule, from_pods(), to_outside),
            self.pick(rule, from_peers(), to_pods()),
            self.pick(rule, from_outside(), to_pods()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The first packet from one of `sources` to one of `destinations` that the rule is for.
    fn pick(
        &self,
        rule: &Rule,
        sources: impl Iterator<Item = Source> + Clone,
        destinations: impl Iterator<Item = Destination> + Clone,
    ) -> Option<(Source, Destination)> {
        let source = |is_from: bool| {
            let meets = |one: &Source| rule.is_from(one.address, self.name(one.incoming));
            sources.clone().find(|one| meets(one) == is_from)
        };
        let destination = |is_to: bool| {
            let mut all = destinations.clone();
            all.find(|one| rule.is_to(one.address) == is_to)
        };
        let any_source = || sources.clone().next();
        let any_destination = || destinations.clone().next();
        if !rule.inverted {
            return source(true).zip(destination(true));
        }
        if rule.special || rule.more {
            return any_source().zip(any_destination());
        }
        let by_source = source(false).zip(any_destination());
        by_source.or_else(|| any_source().zip(destination(false)))
    }

    /// The links that packets from outside come in by.
    pub(super) fn uplinks(&self, socket: &mut Socket, family: Family) -> BTreeSet<u32> {
        let direct = self.peers.iter().filter(|peer| peer.is_direct());
        let mut uplinks: BTreeSet<u32> = direct.map(|peer| peer.link).collect();
        uplinks.insert(self.uplink);
        let mut pods = self.pods.iter();
        let pod = pods.find(|(ip, _)| Family::of(*ip) == family);
        for (from, incoming) in [(None, None), pod.map(|(ip, link)| (*ip, *link)).unzip()] {
            let answer = path::lookup(socket, outside(family), from, incoming);
            let out = answer.ok().flatten().and_then(|route| route.out);
            uplinks.extend(out.filter(|index| !self.is_own(*index)));
        }
        uplinks
    }

    /// Whether a packet to `to` may take `route`.
    pub(super) fn is_right(&self, route: &Route, to: To) -> bool {
        match to {
            To::Outside => !route.out.is_some_and(|out| self.is_device(out)),
            _ if route.table == MAIN_TABLE => true,
            To::Pod((link, gateway), _) => route.out == Some(link) && route.gateway == gateway,
            To::Free(_) => false,
        }
    }

    /// The pod CIDRs of other nodes that overlap with `scope`, or all.
    fn peers_in(&self, scope: Option<IpNetwork>) -> impl Iterator<Item = &Peer> + Clone {
        let first = scope.map_or(0, |scope| {
            self.peers
                .partition_point(|peer| peer.range.broadcast() < scope.network())
        });
        let peers = self.peers.get(first..).unwrap_or_default().iter();
        peers.take_while(move |peer| {
            scope.is_none_or(|scope| peer.range.network() <= scope.broadcast())
        })
    }

    /// Whether `route` says anything of packets to pods or to the world outside.
    pub(super) fn concerns(&self, route: &Route) -> bool {
        let to = route.destination;
        let addresses = (to.network(), 0)..=(to.broadcast(), u32::MAX);
        to.contains(outside(Family::of(to.ip())))
            || self.peers_in(Some(to)).next().is_some()
            || self.own.iter().any(|own| narrower(*own, to).is_some())
            || self.pods.range(addresses).next().is_some()
    }

    /// Whether a route of a table beside the main one may take packets that are not its: it
    /// leads to no link of tweed's, nor to pods of another plugin in this node's own pod CIDR.
    pub(super) fn may_take(&self, route: &Route) -> bool {
        let holds = |own: &IpNetwork| {
            own.prefix() <= route.destination.prefix() && own.contains(route.destination.network())
        };
        let is_own_range = self.own.iter().any(holds);
        let link = route.out.and_then(|index| self.links.get(&index));
        let is_bridge = link.is_some_and(|link| link.kind.as_deref() == Some("bridge"));
        let is_address = route.table == LOCAL_TABLE;
        // No pod has the first address of a pod CIDR.
        let mut peers = self.peers_in(Some(route.destination));
        let is_first = |peer: &Peer| peer.range.network() == route.destination.network();
        let is_free = !is_address
            || (route.kind == LOCAL && peers.next().is_some_and(|peer| !is_first(peer)));
        is_free
            && !(is_own_range && (is_bridge || is_address))
            && !route.out.is_some_and(|index| self.is_own(index))
    }

    /// Whether this link is one of tweed's.
    fn is_own(&self, index: u32) -> bool {
        let link = self.links.get(&index);
        self.is_device(index) || link.is_some_and(owned::is_in_group)
    }

    fn is_device(&self, index: u32) -> bool {
        self.links.get(&index).is_some_and(owned::is_device)
    }

    /// The name of the link that a packet comes in by, as rules have it.
    pub(super) fn name(&self, incoming: Option<u32>) -> &str {
        let link = |index| self.links.get(&index).map_or("", |link| link.name.as_str());
        incoming.map_or("lo", link)
    }

    /// The pod CIDR of this node with this address.
    fn own_range(&self, address: IpAddr) -> IpNetwork {
        let range = self.own.iter().find(|own| own.contains(address));
        range.copied().unwrap_or_else(|| IpNetwork::from(address))
    }
}

impl Peer {
    /// Whether its pods are reached without the overlay, in which the first address of a range
    /// is the gateway to it.
    fn is_direct(&self) -> bool {
        !self.range.contains(self.gateway)
    }
}

fn outside(family: Family) -> IpAddr {
    match family {
        Family::V4 => OUTSIDE_V4.into(),
        Family::V6 => OUTSIDE_V6.into(),
    }
}
