//! An EndpointSlice as the planner keeps it: validated, and as small as can be. Of node
//! names only what they mean for this node is kept.

use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::object::endpoint_slice::{self as object, EndpointSlice};

use super::refusal::Refusal;
use super::spec::address;
use crate::protocols::protocol_number;

/// An EndpointSlice of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice {
    /// Its ports.
    pub ports: Box<[Port]>,
    /// Its endpoints, by address in ascending order: those of all slices of a Service are
    /// sorted at each change, which is less work so.
    pub endpoints: Box<[Entry]>,
}

/// A port of all endpoints of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The name of the Service's port.
    pub name: Box<str>,
    /// The number of its protocol.
    pub protocol: u8,
    /// Where the endpoints listen.
    pub port: u16,
}

/// An endpoint, for each port of its slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its address.
    pub address: IpAddr,
    /// Whether new flows are to be sent to it.
    pub ready: bool,
    /// Whether it serves, be it ready or about to end.
    pub serving: bool,
    /// Whether it is about to end.
    pub terminating: bool,
    /// Whether it is on this node.
    pub local: bool,
    /// The nodes that are to prefer it.
    pub node_hint: NodeHint,
    /// The zones that are to prefer it, shared within the slice.
    pub zones: Option<Arc<[Box<str>]>>,
}

/// Which nodes are to prefer an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeHint {
    /// There is no hint.
    None,
    /// Others.
    Others,
    /// This node, and maybe others.
    Own,
}

impl Slice {
    /// What counts of a slice on the Node of this name. Addresses that are nobody's are no
    /// endpoints: a flow that is sent to 127.0.0.1 reaches what listens on this machine alone.
    pub fn read(slice: &EndpointSlice, node: &str) -> Self {
        let ports = slice.ports.iter().filter_map(|port| {
            Some(Port {
                protocol: protocol_number(&port.protocol)?,
                name: port.name.as_str().into(),
                port: port.port,
            })
        });
        let mut shared: Vec<Arc<[Box<str>]>> = Vec::new();
        let entries = slice.endpoints.iter().filter_map(|one| {
            Some(Entry {
                address: address(&one.address).filter(|ip| Refusal::of(*ip).is_none())?,
                ready: one.ready,
                serving: one.serving,
                terminating: one.terminating,
                local: one.node == node,
                node_hint: NodeHint::read(one, node),
                zones: zones(&one.zone_hints, &mut shared),
            })
        });
        let mut endpoints: Box<[Entry]> = entries.collect();
        endpoints.sort_by_key(|one| one.address);
        Self {
            ports: ports.collect(),
            endpoints,
        }
    }
}

impl NodeHint {
    fn read(endpoint: &object::Endpoint, node: &str) -> Self {
        match &*endpoint.node_hints {
            [] => Self::None,
            nodes if nodes.iter().any(|one| one == node) => Self::Own,
            _ => Self::Others,
        }
    }
}

/// Zones as they are in a slice already, if they are.
fn zones(names: &[String], shared: &mut Vec<Arc<[Box<str>]>>) -> Option<Arc<[Box<str>]>> {
    if names.is_empty() {
        return None;
    }
    let same = |one: &&Arc<[Box<str>]>| one.iter().map(|zone| &**zone).eq(names);
    if let Some(known) = shared.iter().find(same) {
        return Some(known.clone());
    }
    let zones: Arc<[Box<str>]> = names.iter().map(|name| name.as_str().into()).collect();
    shared.push(zones.clone());
    Some(zones)
}
