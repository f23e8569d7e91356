//! Destinations that no Service has, and why not.

use std::net::IpAddr;

use tweed_core::agent_socket::service::{NoService, NoServiceFate};
use tweed_core::agent_socket::why::protocol_name;
use tweed_core::family::Family;

use super::{Answer, full_name, lookup, ports};
use crate::addresses::parse_cidr;
use crate::services::claims::Class;
use crate::services::desired::{Frontend, NodePort, ServiceName, Span, Tracked};
use crate::services::refusal::{Refused, TCP};
use crate::services::spec::Spec;

/// Another proxy serves it.
const NOT_OURS: &str = "its label service.kubernetes.io/service-proxy-name or \
    service.kubernetes.io/headless says that another proxy serves it, or none";

/// A Service that another proxy serves.
pub(super) fn not_ours() -> NoService {
    NoService {
        fate: NoServiceFate::Untouched,
        reason: NOT_OURS.to_owned(),
    }
}

/// Why a Service is not served where it says.
pub(super) fn not_served(name: &ServiceName, refused: &Refused) -> String {
    format!(
        "Service {} is not served at this: {refused}",
        full_name(name)
    )
}

impl Answer<'_> {
    /// Why no Service has a destination.
    pub(super) fn no_service(&mut self, key: Frontend, is_local: bool) -> NoService {
        let desired = self.planner.desired();
        let fate = lookup::without(desired, key.address, is_local);
        let reason = match fate {
            NoServiceFate::Rejected => self.no_such_port(&key, "the cluster IP", |spec| {
                !spec.not_ours && spec.cluster_ips.contains(&key.address)
            }),
            NoServiceFate::Dropped => Some(format!(
                "{} is in a network of cluster IPs, and no Service has it",
                key.address
            )),
            NoServiceFate::Untouched => self.untouched(&key, is_local),
        };
        if fate == NoServiceFate::Untouched && !self.planner.options.external_ips {
            let hint = "spec.externalIPs of Services do not count: --external-ips off";
            self.located.hints.push(hint.to_owned());
        }
        NoService {
            fate,
            reason: reason.unwrap_or_else(|| {
                format!(
                    "no Service has {}, and it is in no network of cluster IPs",
                    key.address
                )
            }),
        }
    }

    fn untouched(&self, key: &Frontend, is_local: bool) -> Option<String> {
        let address = key.address;
        if let Some((name, _)) =
            self.find(|spec| spec.not_ours && spec.cluster_ips.contains(&address))
        {
            let name = full_name(name);
            return Some(format!(
                "{address} is the cluster IP of Service {name}, and {NOT_OURS}"
            ));
        }
        if let Some((name, refused)) = self.refused_at(key, is_local) {
            return Some(not_served(name, &refused));
        }
        let of_node = || self.not_at_address(key, is_local);
        let balancer = self.no_such_port(key, "the load balancer's address", |spec| {
            !spec.not_ours && spec.load_balancer_ips.contains(&address)
        });
        let external = || {
            self.no_such_port(key, "an external IP", |spec| {
                !spec.not_ours && spec.external_ips.contains(&address)
            })
        };
        let planner = self.planner;
        let overlap = || {
            let mut cidrs = planner.cidrs.objects().iter().flat_map(|one| &one.cidrs);
            let has = |cidr: &String| parse_cidr(cidr).is_some_and(|cidr| cidr.contains(address));
            let what = match lookup::within(&planner.desired().pod_networks, address) {
                true => "in a range of pods",
                false => "the address of a node",
            };
            let text =
                format!("{address} is {what}, which is let through though a ServiceCIDR has it");
            cidrs.any(has).then_some(text)
        };
        { balancer.or_else(external) }
            .or_else(of_node)
            .or_else(overlap)
    }

    /// A port that is nobody's node port.
    pub(super) fn no_node_port(&self, protocol: u8, port: u16) -> NoService {
        let is_it = |one: &Refused| {
            one.class == Class::NodePort && one.port == Some(port) && protocol == TCP
        };
        let refused = self.find_refused(is_it);
        let nobody = || {
            let protocol = protocol_name(protocol);
            format!("no Service has the node port {port}/{protocol}")
        };
        NoService {
            fate: NoServiceFate::Untouched,
            reason: refused.map_or_else(nobody, |(name, refused)| not_served(name, &refused)),
        }
    }

    /// The Service that would have a destination if it were served there.
    fn refused_at(&self, key: &Frontend, is_local: bool) -> Option<(&ServiceName, Refused)> {
        let desired = self.planner.desired();
        let has_node_ports = lookup::has_node_ports(desired, key.address, is_local);
        self.find_refused(|one| one.is_about(key, has_node_ports))
    }

    fn find_refused(&self, is_it: impl Fn(&Refused) -> bool) -> Option<(&ServiceName, Refused)> {
        let reserved = &self.planner.compiled.reserved;
        let services = self.planner.registry.services();
        let mut refused = services
            .filter(|(_, spec)| !spec.not_ours)
            .flat_map(|(name, spec)| reserved.refused(spec).map(move |one| (&**name, one)));
        refused.find(|(_, one)| is_it(one))
    }

    /// A Service has the address and not the port.
    fn no_such_port(
        &self,
        key: &Frontend,
        what: &str,
        has: impl Fn(&Spec) -> bool,
    ) -> Option<String> {
        let (name, spec) = self.find(has)?;
        Some(format!(
            "{} is {what} of Service {}, which has no port {}/{}; it has {}",
            key.address,
            full_name(name),
            key.port,
            protocol_name(key.protocol),
            ports(spec)
        ))
    }

    /// A node port of this number is elsewhere, or none is at this address.
    fn not_at_address(&self, key: &Frontend, is_local: bool) -> Option<String> {
        let Frontend {
            address,
            protocol,
            port,
        } = *key;
        let at = Tracked::NodePort(NodePort {
            family: Family::of(address),
            protocol,
            port,
        });
        let protocol = protocol_name(protocol);
        if lookup::has_node_ports(self.planner.desired(), address, is_local) {
            return Some(format!(
                "{address} has node ports, and no Service has the node port {port}/{protocol}"
            ));
        }
        let (name, ..) = self.planner.owner(at)?;
        let name = full_name(&name);
        let why = match is_local {
            true if address.is_loopback() => "loopback addresses have none",
            true => "--nodeport-addresses leaves it out, or a load balancer has it",
            false => "this machine does not have the address",
        };
        Some(format!(
            "{port}/{protocol} is a node port of Service {name}, but not at {address}: {why}"
        ))
    }

    fn find(&self, has: impl Fn(&Spec) -> bool) -> Option<(&ServiceName, &Spec)> {
        let mut services = self.planner.registry.services();
        let found = services.find(|(_, spec)| has(spec));
        found.map(|(name, spec)| (&**name, &**spec))
    }

    /// Where node ports are, in words.
    pub(super) fn where_node_ports_are(&self) -> String {
        let networks = &self.planner.desired().node_port_networks;
        let networks = super::listed(networks.iter().map(span));
        format!("node ports are at those addresses of this machine that are in: {networks}")
    }
}

/// A span as people read it.
pub(super) fn span(span: &Span) -> String {
    let Span { first, last } = span;
    let (lowest, highest): (&IpAddr, &IpAddr) = (first, last);
    match lowest == highest {
        true => lowest.to_string(),
        false => format!("{lowest}-{highest}"),
    }
}
