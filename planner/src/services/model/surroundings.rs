//! What the plan needs to know of this node and of the networks of the cluster.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_core::object::node::Node;
use tweed_core::object::service_cidr::ServiceCidr;

use super::options::Options;
use super::spec::{Sources, address};
use crate::addresses::Span;
use crate::addresses::{overlap, parse_cidr, range, span, spans_of};

/// The label of a Node that names its zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Maximum number of ranges of pods, and of addresses of Nodes, that are named for a
/// ServiceCIDR.
const MAX_NAMED: usize = 3;

/// The networks of pods, as the overlay has decided the claims of the Nodes: a range that
/// it refuses is no pod's, whatever a Node says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodNetworks {
    /// Where the pods of the cluster are.
    pub cluster: BTreeSet<IpNetwork>,
    /// Where those of this Node are.
    pub own: Vec<IpNetwork>,
}

/// What counts besides Services and their endpoints.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Whether this Node has been set at all.
    pub complete: bool,
    /// Where pods are.
    pub pods: PodNetworks,
    /// Where those of the cluster are, without overlaps.
    pub pod_networks: BTreeSet<Span>,
    /// This Node.
    pub own: Own,
    /// The addresses of all Nodes.
    pub nodes: BTreeSet<IpAddr>,
    /// Where this agent connects to when it reaches the API server.
    pub api_servers: BTreeSet<SocketAddr>,
}

/// What of this Node counts; nothing before it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Own {
    /// Its zone; empty if it is in none.
    pub zone: String,
    /// All its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// The first address of each family.
    pub primary: Vec<IpAddr>,
}

impl Own {
    fn read(node: &Node) -> Self {
        let first = |family| usable(node).find(|ip| Family::of(*ip) == family);
        Self {
            zone: node.labels.get(ZONE_LABEL).unwrap_or_default().to_owned(),
            addresses: usable(node).collect(),
            primary: Family::BOTH.into_iter().filter_map(first).collect(),
        }
    }
}

/// The addresses of a Node that packets can be sent to, its InternalIPs first.
fn usable(node: &Node) -> impl Iterator<Item = IpAddr> {
    let of_kind = |kind: &'static str| {
        let of_kind = node.addresses.iter().filter(move |one| one.kind == kind);
        of_kind.filter_map(|one| address(&one.address))
    };
    of_kind("InternalIP").chain(of_kind("ExternalIP"))
}

impl Surroundings {
    /// Sets this Node. True if anything changed.
    pub fn set_node(&mut self, node: Option<&Node>) -> bool {
        let first = !std::mem::replace(&mut self.complete, true);
        let read = node.map(Own::read).unwrap_or_default();
        let changed = self.own != read;
        self.own = read;
        first || changed
    }

    /// Sets all Nodes. True if anything changed.
    pub fn set_nodes<'a>(&mut self, nodes: impl IntoIterator<Item = &'a Node>) -> bool {
        let addresses = nodes.into_iter().flat_map(usable).collect();
        let changed = self.nodes != addresses;
        self.nodes = addresses;
        changed
    }

    /// Sets where pods are. True if anything changed.
    pub fn set_pods(&mut self, pods: PodNetworks) -> bool {
        let changed = self.pods != pods;
        if changed {
            self.pod_networks = spans_of(&pods.cluster, &[]);
            self.pods = pods;
        }
        changed
    }

    /// Whether an address is that of a pod of this Node.
    pub fn is_own_pod(&self, ip: IpAddr) -> bool {
        self.pods.own.iter().any(|network| network.contains(ip))
    }

    /// Whether this node is among the sources that may use a frontend.
    pub fn is_among(&self, (_, spans): &Sources) -> bool {
        let own = &self.own.addresses;
        let has_any = |span: &Span| own.range(span.first..=span.last).next().is_some();
        spans.iter().any(has_any)
    }

    /// Where the pods of this Node are.
    pub fn local_cidrs(&self) -> BTreeSet<Span> {
        spans_of(&self.pods.own, &[])
    }

    /// Where node ports are.
    pub fn node_port_networks(&self, options: &Options) -> BTreeSet<Span> {
        let addresses = &options.node_port_addresses;
        let own = self.own.primary.iter().filter(|_| addresses.primary);
        let primary = own.copied().map(IpNetwork::from);
        let networks: Vec<IpNetwork> = primary.chain(addresses.networks.iter().copied()).collect();
        let parsed = ["127.0.0.0/8", "::1/128"].map(parse_cidr);
        let loopback: Vec<IpNetwork> = parsed.into_iter().flatten().collect();
        spans_of(&networks, &loopback)
    }
}

/// What a ServiceCIDR has that is not for Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The name of the ServiceCIDR.
    pub name: String,
    /// Those of its CIDRs that have it.
    pub cidrs: Vec<IpNetwork>,
    /// The lowest ranges of pods.
    pub pods: Vec<IpNetwork>,
    /// How many more there are.
    pub more_pods: usize,
    /// The lowest addresses of Nodes, and of the API server.
    pub nodes: Vec<IpAddr>,
    /// How many more there are.
    pub more_nodes: usize,
}

/// The networks of cluster IPs, and what they would have that is somebody else's.
#[derive(Debug, Default)]
pub struct ServiceNetworks {
    /// Where cluster IPs are, without addresses of Nodes and ranges of pods.
    pub networks: BTreeSet<Span>,
    /// What was left out.
    pub overlaps: Vec<Overlap>,
}

impl ServiceNetworks {
    /// The union of the CIDRs of these; what is none is left out. `api_servers`: where the
    /// API server is and no Service.
    pub fn of<'a>(
        all: impl IntoIterator<Item = &'a ServiceCidr>,
        Surroundings { pods, nodes, .. }: &Surroundings,
        api_servers: &BTreeSet<IpAddr>,
    ) -> Self {
        let (mut all_cidrs, mut holes) = (Vec::new(), BTreeSet::new());
        let mut overlaps = Vec::new();
        for ServiceCidr { name, cidrs: texts } in all {
            let cidrs: Vec<IpNetwork> = texts.iter().filter_map(|text| parse_cidr(text)).collect();
            let overlaps_any = |one: &&IpNetwork| cidrs.iter().any(|cidr| overlap(cidr, one));
            let pods: BTreeSet<IpNetwork> =
                (pods.cluster.iter().filter(overlaps_any).copied()).collect();
            let nodes: BTreeSet<IpAddr> = (cidrs.iter())
                .flat_map(|cidr| addresses_in(cidr, nodes).chain(addresses_in(cidr, api_servers)))
                .collect();
            let inside = (pods.iter().copied()).chain(nodes.iter().copied().map(IpNetwork::from));
            let found: BTreeSet<IpNetwork> = inside.collect();
            if !found.is_empty() {
                let has_any = |cidr: &&IpNetwork| found.iter().any(|one| overlap(cidr, one));
                overlaps.push(Overlap {
                    name: name.clone(),
                    cidrs: cidrs.iter().filter(has_any).copied().collect(),
                    more_pods: pods.len().saturating_sub(MAX_NAMED),
                    pods: pods.into_iter().take(MAX_NAMED).collect(),
                    more_nodes: nodes.len().saturating_sub(MAX_NAMED),
                    nodes: nodes.into_iter().take(MAX_NAMED).collect(),
                });
            }
            holes.extend(found);
            all_cidrs.extend(cidrs);
        }
        let holes: Vec<IpNetwork> = holes.into_iter().collect();
        Self {
            networks: spans_of(&all_cidrs, &holes),
            overlaps,
        }
    }
}

/// Those addresses that a network has.
fn addresses_in(network: &IpNetwork, addresses: &BTreeSet<IpAddr>) -> impl Iterator<Item = IpAddr> {
    let Span { first, last } = span(Family::of(network.network()), range(network));
    addresses.range(first..=last).copied()
}
