//! What Services say of one new flow, from the objects themselves: plain code that asks
//! one object after the other.
//!
//! The plan is tested against it. So it shares nothing with the planner but the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;
use tweed_core::object::endpoint_slice::{self as object, EndpointSlice};
use tweed_core::object::node::Node;
use tweed_core::object::service::{Service, ServicePort};
use tweed_core::object::service_cidr::ServiceCidr;

use crate::services::desired::Endpoint;
use crate::services::{Options, PodNetworks};

/// All objects, as the Node that [`Options::node_name`] names sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// What the agent was told.
    pub options: Options,
    /// All Services.
    pub services: Vec<Service>,
    /// All EndpointSlices.
    pub slices: Vec<EndpointSlice>,
    /// All ServiceCIDRs.
    pub cidrs: Vec<ServiceCidr>,
    /// All Nodes.
    pub nodes: Vec<Node>,
    /// Where pods are.
    pub pods: PodNetworks,
    /// Where the agent reaches the API server.
    pub api_servers: BTreeSet<SocketAddr>,
}

/// The first packet of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Its source.
    pub source: IpAddr,
    /// Whether this node itself sends it.
    pub is_own: bool,
    /// Its destination.
    pub destination: IpAddr,
    /// Whether the kernel has the destination as an address of its own.
    pub is_local: bool,
    /// The number of its protocol.
    pub protocol: u8,
    /// Its destination port.
    pub port: u16,
}

/// What becomes of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has nothing to do with Services.
    Pass,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender is told.
    Reject,
    /// It goes to one of these, masqueraded (true) or not.
    Send(BTreeMap<Endpoint, bool>),
}

/// How a Service has a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    ClusterIp,
    LoadBalancer,
    ExternalIp,
    NodePort,
}

/// An endpoint of a Service port, as one slice has it.
struct Candidate<'a> {
    at: Endpoint,
    says: &'a object::Endpoint,
}

/// Numbers with leading zeros are decimal.
fn decimal(text: &str) -> String {
    let number = |part: &str| part.parse().map_or(part.to_owned(), |n: u32| n.to_string());
    let is_v4 = |text: &str| !text.contains(':');
    match text.split_once('/') {
        Some((address, prefix)) if is_v4(address) => format!("{}/{prefix}", decimal(address)),
        None if is_v4(text) => text.split('.').map(number).collect::<Vec<_>>().join("."),
        _ => text.to_owned(),
    }
}

fn ip(text: &str) -> Option<IpAddr> {
    let ip = decimal(text).parse::<IpAddr>().ok()?;
    Some(ip.to_canonical())
}

fn network(text: &str) -> Option<IpNetwork> {
    decimal(text.trim()).parse().ok()
}

fn is_in(texts: &[String], address: IpAddr) -> bool {
    texts.iter().any(|text| ip(text) == Some(address))
}

fn contains(cidr: &str, address: IpAddr) -> bool {
    network(cidr).is_some_and(|network| network.contains(address))
}

/// Whether no other machine has an address.
fn is_nobodys(address: IpAddr) -> bool {
    let nobodys = [
        "0.0.0.0/8",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "255.255.255.255/32",
        "::/127",
        "fe80::/10",
        "ff00::/8",
    ];
    nobodys.iter().any(|cidr| contains(cidr, address))
}

fn number(protocol: &str) -> Option<u8> {
    let numbers = [("TCP", 6), ("UDP", 17), ("SCTP", 132)];
    let found = numbers.iter().find(|(name, _)| *name == protocol);
    found.map(|(_, number)| *number)
}

impl Cluster {
    /// What becomes of a flow.
    #[must_use]
    pub fn evaluate(&self, flow: &Flow) -> Verdict {
        let Some((service, port, by)) = self.frontend(flow) else {
            return self.without_frontend(flow);
        };
        if matches!(by, By::LoadBalancer | By::ExternalIp) && !self.may_use(service, flow) {
            return Verdict::Drop;
        }
        let candidates = self.candidates(service, port, flow.destination.is_ipv4());
        let cluster = self.usable(&candidates);
        if cluster.is_empty() {
            return Verdict::Reject;
        }
        let is_pod = !flow.is_own && self.is_pod(flow.source);
        let is_outside = !flow.is_own && !is_pod;
        let external_local = external_local(service);
        let (local_only, masquerade) = match by {
            By::ClusterIp => (service.internal_local, !is_pod),
            _ if external_local => (is_outside, flow.is_own),
            _ => (false, true),
        };
        let chosen = if local_only {
            local(&candidates, &self.options.node_name)
        } else {
            cluster
        };
        if chosen.is_empty() {
            return Verdict::Drop;
        }
        let own = |at: &Endpoint| at.address == flow.source && self.is_own_endpoint(at.address);
        let passes = |at: &Endpoint| is_pod && self.passes_through(flow.source, at.address);
        let backends = chosen
            .into_iter()
            .map(|at| (at, masquerade || own(&at) || passes(&at)));
        Verdict::Send(backends.collect())
    }

    /// The Service port that has the frontend of a flow.
    fn frontend(&self, flow: &Flow) -> Option<(&Service, &ServicePort, By)> {
        let mut services: Vec<&Service> = self.services.iter().collect();
        services.sort_by_key(|one| (one.created, &one.namespace, &one.name));
        services.retain(|one| is_served(one) && has_family(one, flow.destination.is_ipv4()));
        for by in [By::ClusterIp, By::LoadBalancer, By::ExternalIp] {
            for service in &services {
                let addresses = match by {
                    By::LoadBalancer => &service.load_balancer_ips,
                    By::ExternalIp if self.options.external_ips => &service.external_ips,
                    By::ClusterIp => &service.cluster_ips,
                    By::ExternalIp | By::NodePort => continue,
                };
                if !is_in(addresses, flow.destination) || !self.may_have(by, flow.destination) {
                    continue;
                }
                if by != By::ClusterIp && self.is_api_server(flow) {
                    continue;
                }
                for port in &service.ports {
                    if number(&port.protocol) == Some(flow.protocol) && port.port == flow.port {
                        return Some((service, port, by));
                    }
                }
            }
        }
        let is_server = |server: &SocketAddr| {
            let ip = server.ip();
            let elsewhere = self.is_node(ip) && !self.own_addresses().contains(&ip);
            let same_family = ip.is_ipv4() == flow.destination.is_ipv4();
            same_family && server.port() == flow.port && self.is_node_port_place(ip) && !elsewhere
        };
        let is_reserved = flow.protocol == 6 && self.api_servers.iter().any(is_server);
        if !self.has_node_ports(flow) || is_reserved {
            return None;
        }
        for service in services {
            for port in &service.ports {
                let same = port.node_port == flow.port && flow.port != 0;
                if same && number(&port.protocol) == Some(flow.protocol) {
                    return Some((service, port, By::NodePort));
                }
            }
        }
        None
    }

    /// Whether Services may be reached at an address.
    fn may_have(&self, by: By, address: IpAddr) -> bool {
        let of_balancers = &self.options.load_balancer_cidrs;
        match by {
            By::ClusterIp | By::NodePort => true,
            _ if is_nobodys(address) => false,
            By::ExternalIp => true,
            By::LoadBalancer => of_balancers.iter().any(|cidr| cidr.contains(address)),
        }
    }

    /// Whether a flow is one to the API server, as the agent reaches it.
    fn is_api_server(&self, flow: &Flow) -> bool {
        let at = SocketAddr::new(flow.destination, flow.port);
        flow.protocol == 6 && self.api_servers.contains(&at)
    }

    fn is_node(&self, address: IpAddr) -> bool {
        let of_nodes = self.nodes.iter().flat_map(|node| &node.addresses);
        let mut usable =
            of_nodes.filter(|one| one.kind == "InternalIP" || one.kind == "ExternalIP");
        usable.any(|one| ip(&one.address) == Some(address))
    }

    /// Whether the destination of a flow is where node ports are.
    fn has_node_ports(&self, flow: &Flow) -> bool {
        let address = flow.destination;
        let own = self.own_addresses();
        let is_balancer = |service: &Service| {
            let has = is_in(&service.load_balancer_ips, address);
            has && is_served(service) && self.may_have(By::LoadBalancer, address)
        };
        if !flow.is_local {
            return false;
        }
        if self.services.iter().any(is_balancer) && !own.contains(&address) {
            return false;
        }
        self.is_node_port_place(address)
    }

    /// Whether node ports are at an address, if this machine has it.
    fn is_node_port_place(&self, address: IpAddr) -> bool {
        let own = self.own_addresses();
        if address.is_loopback() {
            return false;
        }
        let places = &self.options.node_port_addresses;
        let same_family = |one: &&IpAddr| one.is_ipv4() == address.is_ipv4();
        let is_primary = own.iter().find(same_family) == Some(&address);
        (places.primary && is_primary) || places.networks.iter().any(|one| one.contains(address))
    }

    fn own_node(&self) -> Option<&Node> {
        let mut nodes = self.nodes.iter();
        nodes.find(|node| node.name == self.options.node_name)
    }

    /// The addresses of this node, InternalIPs first.
    fn own_addresses(&self) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for kind in ["InternalIP", "ExternalIP"] {
            for one in self.own_node().into_iter().flat_map(|node| &node.addresses) {
                if one.kind == kind {
                    addresses.extend(ip(&one.address));
                }
            }
        }
        addresses
    }

    /// Whether source ranges let a flow pass.
    fn may_use(&self, service: &Service, flow: &Flow) -> bool {
        let is_v4 = flow.destination.is_ipv4();
        let counts = |text: &&String| {
            let looks_v4 = !text.contains(':');
            network(text).map_or(looks_v4, |network| network.is_ipv4()) == is_v4
        };
        let ranges: Vec<&String> = service.source_ranges.iter().filter(counts).collect();
        let passes = |address: &IpAddr| ranges.iter().any(|one| contains(one, *address));
        let addresses = self.own_addresses();
        let mut own = addresses.iter().filter(|one| one.is_ipv4() == is_v4);
        let is_all = |one: &&String| one.trim().ends_with("/0");
        ranges.is_empty()
            || ranges.iter().any(is_all)
            || if flow.is_own {
                own.any(passes)
            } else {
                passes(&flow.source)
            }
    }

    fn is_pod(&self, address: IpAddr) -> bool {
        let mut networks = self.pods.cluster.iter();
        networks.any(|one| one.contains(address))
    }

    fn is_own_pod(&self, address: IpAddr) -> bool {
        let mut networks = self.pods.own.iter();
        networks.any(|one| one.contains(address))
    }

    /// Whether a pod's flow to an endpoint comes from another node and leaves for another
    /// one.
    fn passes_through(&self, source: IpAddr, endpoint: IpAddr) -> bool {
        let is_here = self.is_own_pod(source) || self.is_own_pod(endpoint);
        !is_here && !self.own_addresses().contains(&endpoint)
    }

    /// Every endpoint of a Service port once: of several entries for one, the one that is
    /// least about to end.
    fn candidates(&self, service: &Service, port: &ServicePort, is_v4: bool) -> Vec<Candidate<'_>> {
        let belongs = |slice: &&EndpointSlice| {
            slice.namespace == service.namespace && slice.service == service.name
        };
        let mut slices: Vec<&EndpointSlice> = self.slices.iter().filter(belongs).collect();
        slices.retain(|slice| !slice.not_ours);
        slices.sort_by_key(|slice| &slice.name);
        let mut all: Vec<Candidate<'_>> = Vec::new();
        for slice in slices {
            for of_port in &slice.ports {
                if of_port.name != port.name || of_port.protocol != port.protocol {
                    continue;
                }
                for says in &slice.endpoints {
                    let Some(address) = ip(&says.address) else {
                        continue;
                    };
                    let at = Endpoint {
                        address,
                        port: of_port.port,
                    };
                    if address.is_ipv4() == is_v4 && !is_nobodys(address) {
                        all.push(Candidate { at, says });
                    }
                }
            }
        }
        let node = &self.options.node_name;
        all.sort_by_key(|one| {
            let says = one.says;
            let local = says.node == *node;
            (one.at, says.terminating, !says.ready, !says.serving, !local)
        });
        all.dedup_by_key(|one| one.at);
        all
    }

    /// Whether an address is that of an endpoint of this node, by its slice or because it is
    /// a pod's of this node: only its flows to itself come by here.
    fn is_own_endpoint(&self, address: IpAddr) -> bool {
        let is_v4 = address.is_ipv4();
        let mut services = self.services.iter().filter(|one| is_served(one));
        services.any(|service| {
            let of_port = |port| self.candidates(service, port, is_v4);
            let mut all = service.ports.iter().flat_map(of_port);
            has_family(service, is_v4)
                && all.any(|one| {
                    let here =
                        one.says.node == self.options.node_name || self.is_own_pod(one.at.address);
                    here && one.at.address == address && (one.says.ready || one.says.serving)
                })
        })
    }

    /// The endpoints that the traffic policy `Cluster` uses.
    fn usable(&self, candidates: &[Candidate<'_>]) -> BTreeSet<Endpoint> {
        let ready: Vec<&Candidate<'_>> = candidates.iter().filter(|one| one.says.ready).collect();
        if ready.is_empty() {
            let ending = |one: &&Candidate<'_>| one.says.serving && one.says.terminating;
            return candidates.iter().filter(ending).map(|one| one.at).collect();
        }
        let zone = self.own_node().and_then(|node| {
            let zone = node.labels.get("topology.kubernetes.io/zone");
            zone.filter(|zone| !zone.is_empty())
        });
        let node = Some(self.options.node_name.as_str());
        let by_node: Vec<&Vec<String>> = ready.iter().map(|one| &one.says.node_hints).collect();
        let by_zone: Vec<&Vec<String>> = ready.iter().map(|one| &one.says.zone_hints).collect();
        for (hints, wanted) in [(by_node, node), (by_zone, zone)] {
            let Some(wanted) = wanted else { continue };
            if hints.iter().any(|hint| hint.is_empty()) {
                continue;
            }
            let with_hints = ready.iter().zip(&hints);
            let fitting = with_hints.filter(|(_, hint)| hint.iter().any(|one| one == wanted));
            let hinted: BTreeSet<Endpoint> = fitting.map(|(one, _)| one.at).collect();
            if !hinted.is_empty() {
                return hinted;
            }
        }
        ready.iter().map(|one| one.at).collect()
    }

    /// What becomes of a flow to an address without such a port.
    fn without_frontend(&self, flow: &Flow) -> Verdict {
        // A cluster IP that is the server's own port is a frontend.
        let has_cluster_ip = |server: &SocketAddr| {
            let to_it = Flow {
                protocol: 6,
                port: server.port(),
                ..*flow
            };
            let frontend = self.frontend(&to_it);
            frontend.is_some_and(|(_, _, by)| by == By::ClusterIp)
        };
        let mut servers = self.api_servers.iter();
        let is_server =
            servers.any(|server| server.ip() == flow.destination && !has_cluster_ip(server));
        if self.is_node(flow.destination) || self.is_pod(flow.destination) || is_server {
            return Verdict::Pass;
        }
        let mut cidrs = self.cidrs.iter().flat_map(|one| &one.cidrs);
        let is_within = cidrs.any(|cidr| contains(cidr, flow.destination));
        let mut foreign = false;
        for service in &self.services {
            let has = is_in(&service.cluster_ips, flow.destination);
            if has && is_served(service) {
                return Verdict::Reject;
            }
            foreign |= has && service.not_ours && service.kind != "ExternalName";
        }
        if is_within && !foreign && !flow.is_local {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }
}

fn is_served(service: &Service) -> bool {
    !service.not_ours && service.kind != "ExternalName" && !service.cluster_ips.is_empty()
}

fn has_family(service: &Service, is_v4: bool) -> bool {
    let ips = service.cluster_ips.iter().filter_map(|text| ip(text));
    ips.into_iter().any(|ip| ip.is_ipv4() == is_v4)
}

/// Whether `externalTrafficPolicy: Local` counts for a Service.
fn external_local(service: &Service) -> bool {
    let is_external = match service.kind.as_str() {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !service.external_ips.is_empty(),
        _ => false,
    };
    service.external_local && is_external
}

/// The endpoints that the traffic policy `Local` uses.
fn local(candidates: &[Candidate<'_>], node: &str) -> BTreeSet<Endpoint> {
    let local = || candidates.iter().filter(|one| one.says.node == node);
    let ready: BTreeSet<Endpoint> = local()
        .filter(|one| one.says.ready)
        .map(|one| one.at)
        .collect();
    if !ready.is_empty() {
        return ready;
    }
    let ending = local().filter(|one| one.says.serving && one.says.terminating);
    ending.map(|one| one.at).collect()
}
