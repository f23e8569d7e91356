//! Destinations that no Service has, and why not.

use tweed_component::explain::{Step, listed, protocol_name};
use tweed_core::family::Family;

use super::lookup::WithoutService;
use super::{Answer, MAX_NAMED, full_name, lookup, ports_of};
use crate::addresses::{Span, parse_cidr, within};
use crate::protocols::TCP;
use crate::services::model::claims::Class;
use crate::services::model::refusal::Refused;
use crate::services::model::spec::Spec;
use crate::services::model::value::{Frontend, NodePort, ServiceName, Tracked};

/// Another proxy serves it.
const NOT_OURS: &str = "its label service.kubernetes.io/service-proxy-name or \
    service.kubernetes.io/headless says that another proxy serves it, or none";

/// What becomes of connections to a destination that no Service has.
fn unserved(without: WithoutService, reason: String) -> Step {
    let what = match without {
        WithoutService::Rejected => "REJECTED",
        WithoutService::Dropped => "DROPPED",
        WithoutService::Untouched => "left as it is, nothing of Services",
    };
    Step::new(what).because(reason)
}

/// A Service that another proxy serves.
pub(super) fn not_ours() -> Step {
    unserved(WithoutService::Untouched, NOT_OURS.to_owned())
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
    pub(super) fn no_service(&mut self, key: Frontend, is_local: bool) -> Step {
        let address = key.address;
        let without = lookup::without(self.model(), address, is_local);
        let reason = match without {
            WithoutService::Rejected => self.no_such_port(&key),
            WithoutService::Dropped => Some(format!(
                "{address} is in a network of cluster IPs, and no Service has it"
            )),
            WithoutService::Untouched => self.untouched(&key, is_local),
        };
        if without == WithoutService::Untouched && !self.model().options.external_ips {
            let note = "spec.externalIPs of Services do not count: --external-ips off";
            self.notes.push(Step::note(note));
        }
        let nobody = || format!("no Service has {address}, and it is in no network of cluster IPs");
        unserved(without, reason.unwrap_or_else(nobody))
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
        let model = self.model();
        let overlap = || {
            let mut cidrs = model.cidrs.objects().values().flat_map(|one| &one.cidrs);
            let has = |cidr: &String| parse_cidr(cidr).is_some_and(|cidr| cidr.contains(address));
            let what = if within(&model.surroundings.pod_networks, address) {
                "in a range of pods"
            } else {
                "the address of a node"
            };
            let text =
                format!("{address} is {what}, which is let through though a ServiceCIDR has it");
            cidrs.any(has).then_some(text)
        };
        { self.no_such_port(key) }
            .or_else(|| self.not_at_address(key, is_local))
            .or_else(overlap)
    }

    /// A port that is nobody's node port.
    pub(super) fn no_node_port(&self, protocol: u8, port: u16) -> Step {
        let is_it = |one: &Refused| {
            one.class == Class::NodePort && one.port == Some(port) && protocol == TCP
        };
        let nobody = || {
            format!(
                "no Service has the node port {port}/{}",
                protocol_name(protocol)
            )
        };
        let refused = self.find_refused(is_it);
        let reason = refused.map_or_else(nobody, |(name, refused)| not_served(name, &refused));
        unserved(WithoutService::Untouched, reason)
    }

    /// The Service that would have a destination if it were served there.
    fn refused_at(&self, key: &Frontend, is_local: bool) -> Option<(&ServiceName, Refused)> {
        let has_node_ports = lookup::has_node_ports(self.model(), key.address, is_local);
        self.find_refused(|one| one.is_about(key, has_node_ports))
    }

    fn find_refused(&self, is_it: impl Fn(&Refused) -> bool) -> Option<(&ServiceName, Refused)> {
        let reserved = &self.model().reserved;
        let services = self.model().registry.services();
        let mut refused = services
            .filter(|(_, spec)| !spec.not_ours)
            .flat_map(|(name, spec)| reserved.refused(spec).map(move |one| (&**name, one)));
        refused.find(|(_, one)| is_it(one))
    }

    /// A Service has the address and not the port.
    fn no_such_port(&self, key: &Frontend) -> Option<String> {
        let what_of = |spec: &Spec| {
            let mut ways = [
                ("the cluster IP", &spec.cluster_ips),
                ("the load balancer's address", &spec.load_balancer_ips),
                ("an external IP", &spec.external_ips),
            ]
            .into_iter();
            let found = ways.find(|(_, addresses)| addresses.contains(&key.address));
            found.map(|(what, _)| what)
        };
        let (name, spec) = self.find(|spec| !spec.not_ours && what_of(spec).is_some())?;
        Some(format!(
            "{} is {} of Service {}, which has no port {}/{}; it has {}",
            key.address,
            what_of(spec)?,
            full_name(name),
            key.port,
            protocol_name(key.protocol),
            ports_of(spec)
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
        if lookup::has_node_ports(self.model(), address, is_local) {
            return Some(format!(
                "{address} has node ports, and no Service has the node port {port}/{protocol}"
            ));
        }
        let (name, ..) = self.planner.owner(at)?;
        let name = full_name(&name);
        let why = if !is_local {
            "this machine does not have the address"
        } else if address.is_loopback() {
            "loopback addresses have none"
        } else {
            "--nodeport-addresses leaves it out, or a load balancer has it"
        };
        Some(format!(
            "{port}/{protocol} is a node port of Service {name}, but not at {address}: {why}"
        ))
    }

    fn find(&self, has: impl Fn(&Spec) -> bool) -> Option<(&ServiceName, &Spec)> {
        let mut services = self.model().registry.services();
        let found = services.find(|(_, spec)| has(spec));
        found.map(|(name, spec)| (&**name, &**spec))
    }

    /// Where node ports are.
    pub(super) fn where_node_ports_are(&self) -> Step {
        let networks = &self.model().node_port_networks;
        let networks = listed(networks.iter().map(span), MAX_NAMED);
        Step::note(format!(
            "node ports are at those addresses of this machine that are in: {networks}"
        ))
    }
}

/// A span as people read it.
pub(super) fn span(span: &Span) -> String {
    let Span { first, last } = span;
    if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    }
}
