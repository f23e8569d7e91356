//! A Service as the planner keeps it: validated, and as small as can be.
//!
//! The API server lets no text through that is no address, so one is left out. A source
//! range that cannot be read lets nobody pass: left out it would open what it closes.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use tweed_core::family::Family;
use tweed_core::object::service::Service;

use super::claims::Class;
use super::options::Options;
use super::refusal::{Refusal, Refused};
use super::scope::PerScope;
use crate::addresses::Span;
use crate::addresses::{highest, merged, parse_address, parse_cidr, range, span};
use crate::protocols::protocol_number;

/// A Service that has cluster IPs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Its type.
    pub kind: Kind,
    /// Whether another proxy, or none, serves it.
    pub not_ours: bool,
    /// When it was created, in seconds since 1970.
    pub created: Option<i64>,
    /// Its cluster IPs. It has no frontends of other families than these.
    pub cluster_ips: Box<[IpAddr]>,
    /// Its external IPs, if they count.
    pub external_ips: Box<[IpAddr]>,
    /// The addresses of its load balancer.
    pub load_balancer_ips: Box<[IpAddr]>,
    /// Those of the latter two that are left out.
    pub refused: Box<[Refused]>,
    /// Who may use the latter two, for each family that is limited.
    pub limits: Box<[Sources]>,
    /// Its ports.
    pub ports: Box<[Port]>,
    /// Whether one of them has a node port.
    pub node_ports: bool,
    /// The affinity timeout in seconds.
    pub affinity: Option<u32>,
    /// Whether cluster IPs lead to this node's endpoints only.
    pub internal_local: bool,
    /// Whether other frontends lead to this node's endpoints only, from outside.
    pub external_local: bool,
    /// The port of its health checks.
    pub health_check: Option<u16>,
}

/// A family, and the sources in it that may use a frontend, in ascending order.
pub type Sources = (Family, Box<[Span]>);

/// The type of a Service that has cluster IPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `ClusterIP`, or one that is not known.
    ClusterIp,
    /// `NodePort`.
    NodePort,
    /// `LoadBalancer`.
    LoadBalancer,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: Box<str>,
    /// The number of its protocol.
    pub protocol: u8,
    /// Its port at addresses.
    pub port: u16,
    /// Its node port; 0 if it has none.
    pub node_port: u16,
    /// Whether no port before it has its number, and whether none has its node port: of two, which
    /// no API server lets through, the first one counts.
    pub is_first: (bool, bool),
    /// Where the next port of its name and protocol is. The first one of a name has the groups of
    /// all of them: slices do not tell them apart.
    pub next: Option<u32>,
    /// Whether it is the first one of its name and protocol.
    pub is_group: bool,
}

/// An address; one of IPv4 that is written as one of IPv6 is of IPv4.
pub fn address(text: &str) -> Option<IpAddr> {
    Some(parse_address(text)?.to_canonical())
}

fn addresses(texts: &[String]) -> Box<[IpAddr]> {
    texts.iter().filter_map(|text| address(text)).collect()
}

impl Spec {
    /// What counts of a Service. `None` if it has no frontends.
    pub fn read(service: &Service, options: &Options) -> Option<Self> {
        let cluster_ips = addresses(&service.cluster_ips);
        if cluster_ips.is_empty() || service.kind == "ExternalName" {
            return None;
        }
        let is_load_balancer = service.kind == "LoadBalancer";
        let reachable = is_load_balancer
            || service.kind == "NodePort"
            || (service.kind == "ClusterIP" && !service.external_ips.is_empty());
        let external_local = service.external_local && reachable;
        let check = service.health_check_node_port;
        let ports = ports(service);
        let mut refused = Vec::new();
        // What another proxy serves is its own matter.
        let mut served = |class, texts, why: &dyn Fn(IpAddr) -> Option<Refusal>| {
            let mut all = addresses(texts).into_vec();
            all.retain(|ip| {
                let why = why(*ip).filter(|_| !service.not_ours);
                refused.extend(why.map(|why| Refused::whole(class, *ip, why)));
                why.is_none()
            });
            all.into_boxed_slice()
        };
        let cidrs = &options.load_balancer_cidrs;
        let of_load_balancer = |ip| Refusal::of_load_balancer(ip, cidrs);
        let balancers = &service.load_balancer_ips;
        let load_balancer_ips = served(Class::LoadBalancer, balancers, &of_load_balancer);
        let external_ips = if options.external_ips {
            served(Class::ExternalIp, &service.external_ips, &Refusal::of)
        } else {
            Box::default()
        };
        Some(Self {
            kind: match service.kind.as_str() {
                "LoadBalancer" => Kind::LoadBalancer,
                "NodePort" => Kind::NodePort,
                _ => Kind::ClusterIp,
            },
            not_ours: service.not_ours,
            created: service.created,
            cluster_ips,
            external_ips,
            load_balancer_ips,
            refused: refused.into(),
            limits: (Family::BOTH.into_iter())
                .filter_map(|family| Some((family, limit(&service.source_ranges, family)?)))
                .collect(),
            node_ports: ports.iter().any(|port| port.node_port != 0),
            ports,
            affinity: service.affinity_seconds,
            internal_local: service.internal_local,
            external_local,
            health_check: (is_load_balancer && external_local && check != 0).then_some(check),
        })
    }

    /// The families of its frontends.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        let has = |family: &Family| self.cluster_ips.iter().any(|ip| Family::of(*ip) == *family);
        Family::BOTH.into_iter().filter(has)
    }

    /// Where its ports are that have groups: the first one of each name and protocol.
    pub fn groups(&self) -> impl Iterator<Item = usize> {
        let ports = self.ports.iter().enumerate();
        ports.filter_map(|(index, port)| port.is_group.then_some(index))
    }

    /// The ports that have the groups of the one at `index`, which is the first of them.
    pub fn of_group(&self, index: usize) -> impl Iterator<Item = &Port> {
        let next = |port: &&Port| self.ports.get(usize::try_from(port.next?).ok()?);
        std::iter::successors(self.ports.get(index), next)
    }

    /// Its first family.
    pub fn first_family(&self) -> Option<Family> {
        self.cluster_ips.first().map(|ip| Family::of(*ip))
    }

    /// To which endpoints its frontends in a family lead.
    pub fn scopes(&self, family: Family) -> PerScope<bool> {
        let external = self.is_external(family);
        PerScope {
            cluster: !self.internal_local || external,
            local: self.internal_local || (self.external_local && external),
        }
    }

    /// Whether it has frontends of a family other than cluster IPs.
    pub fn is_external(&self, family: Family) -> bool {
        let mut addresses = self.external_ips.iter().chain(&self.load_balancer_ips);
        self.node_ports || addresses.any(|ip| Family::of(*ip) == family)
    }
}

fn ports(service: &Service) -> Box<[Port]> {
    let (mut numbers, mut node_ports) = (HashSet::new(), HashSet::new());
    let mut last_of_name: HashMap<(&str, u8), usize> = HashMap::new();
    let mut ports: Vec<Port> = Vec::with_capacity(service.ports.len());
    for port in &service.ports {
        let Some(protocol) = protocol_number(&port.protocol) else {
            continue;
        };
        let index = ports.len();
        let before = last_of_name.insert((port.name.as_str(), protocol), index);
        if let Some(before) = before.and_then(|before| ports.get_mut(before)) {
            before.next = u32::try_from(index).ok();
        }
        ports.push(Port {
            protocol,
            name: port.name.as_str().into(),
            port: port.port,
            node_port: port.node_port,
            is_first: (
                numbers.insert((protocol, port.port)),
                node_ports.insert((protocol, port.node_port)),
            ),
            next: None,
            is_group: before.is_none(),
        });
    }
    ports.into()
}

/// The sources that may pass in a family. `None` is no limit: no range is of the family,
/// or one is all of it. A range that cannot be read is one of nobody, in the family that it
/// looks like.
fn limit(texts: &[String], family: Family) -> Option<Box<[Span]>> {
    let mut ranges = Vec::new();
    let mut limited = false;
    for text in texts {
        match parse_cidr(text.trim()) {
            Some(network) if Family::of(network.network()) == family => {
                limited = true;
                ranges.push(range(&network));
            }
            Some(_) => {}
            None => limited |= text.contains(':') == (family == Family::V6),
        }
    }
    let ranges = merged(ranges);
    let all = ranges == [(0, highest(family))];
    (limited && !all).then(|| ranges.into_iter().map(|one| span(family, one)).collect())
}
