//! What becomes of a flow by the model.

use std::net::IpAddr;

use tweed_core::family::Family;

use crate::addresses::within;
use crate::services::model::Model;
use crate::services::model::scope::Scope;
use crate::services::model::service::To;
use crate::services::model::spec::Sources;
use crate::services::model::value::{Frontend, Masquerade, NodePort, Tracked};

/// Who begins a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A pod of the cluster.
    Pod,
    /// This node.
    Node,
    /// Anybody else.
    Outside,
}

/// What becomes of a flow to a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It is sent to an endpoint.
    Sent {
        /// Where the endpoint is.
        scope: Scope,
        /// Whether it is masqueraded, whichever endpoint it gets.
        masquerade: bool,
    },
    /// It is rejected: there is no endpoint anywhere.
    Rejected,
    /// It is dropped: the traffic policy is `Local`, and all endpoints are on other nodes.
    NoLocalEndpoint,
    /// It is dropped: the source may not use the frontend.
    SourceNotAllowed,
}

/// What becomes of a flow to a destination that no Service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutService {
    /// It is rejected.
    Rejected,
    /// It is dropped.
    Dropped,
    /// It is nothing of Services, and left as it is.
    Untouched,
}

/// Whether node ports are at an address; `is_local` says whether this machine has it.
pub fn has_node_ports(model: &Model, address: IpAddr, is_local: bool) -> bool {
    is_local
        && within(&model.node_port_networks, address)
        && !model.node_port_exceptions().any(|ip| ip == address)
}

/// The frontend that a flow meets.
pub fn frontend(model: &Model, key: Frontend, is_local: bool) -> Option<Tracked> {
    let node_port = Tracked::NodePort(NodePort {
        family: Family::of(key.address),
        protocol: key.protocol,
        port: key.port,
    });
    let at = Tracked::Address(key);
    if model.frontend(at).is_some() {
        return Some(at);
    }
    let is_node_port =
        has_node_ports(model, key.address, is_local) && model.frontend(node_port).is_some();
    is_node_port.then_some(node_port)
}

/// What becomes of a flow to a frontend; none if there is no such frontend. Without a
/// source it is one that may use the frontend.
pub fn way(model: &Model, at: Tracked, origin: Origin, source: Option<IpAddr>) -> Option<Way> {
    let served = model.frontend(at)?;
    let passes = |sources| passes(model, sources, origin, source);
    if !served.sources().is_none_or(passes) {
        return Some(Way::SourceNotAllowed);
    }
    Some(match served.to(origin == Origin::Outside) {
        To::Reject => Way::Rejected,
        To::Drop => Way::NoLocalEndpoint,
        To::Backends(scope) => Way::Sent {
            scope,
            masquerade: match served.masquerade() {
                None => origin != Origin::Pod,
                Some(Masquerade::All) => true,
                Some(Masquerade::OwnNode) => origin == Origin::Node,
            },
        },
    })
}

fn passes(model: &Model, sources: &Sources, origin: Origin, source: Option<IpAddr>) -> bool {
    match (origin, source) {
        (Origin::Node, _) => model.surroundings.is_among(sources),
        (_, Some(source)) => {
            let mut spans = sources.1.iter();
            spans.any(|span| (span.first..=span.last).contains(&source))
        }
        (_, None) => true,
    }
}

/// Why a flow is masqueraded to an endpoint, whatever its frontend says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// The client is the endpoint.
    Hairpin,
    /// The client is a pod of another node, and the endpoint is not on this one: the answer
    /// has to come back by this node.
    PassingThrough,
}

/// Whether and why a flow from `source` is masqueraded to an endpoint, whatever its
/// frontend says.
pub fn masqueraded_to(
    model: &Model,
    origin: Origin,
    source: IpAddr,
    endpoint: IpAddr,
) -> Option<Because> {
    if source == endpoint && model.hairpin.iter().any(|ip| *ip == source) {
        return Some(Because::Hairpin);
    }
    let surroundings = &model.surroundings;
    let is_own_pod = |ip| surroundings.is_own_pod(ip);
    // What is sent to an address of this machine is not sent on.
    let is_own = |ip| is_own_pod(ip) || surroundings.own.addresses.contains(&ip);
    let passes_through = origin == Origin::Pod && !is_own_pod(source) && !is_own(endpoint);
    passes_through.then_some(Because::PassingThrough)
}

/// What becomes of a flow without a frontend; `is_local` says whether this machine has the
/// address.
pub fn without(model: &Model, to: IpAddr, is_local: bool) -> WithoutService {
    let is_foreign = || model.foreign.iter().any(|ip| *ip == to);
    if model.cluster_ips().any(|ip| ip == to) {
        WithoutService::Rejected
    } else if within(&model.networks.networks, to) && !is_local && !is_foreign() {
        WithoutService::Dropped
    } else {
        WithoutService::Untouched
    }
}
