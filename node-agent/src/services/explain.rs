//! Where new connections to a destination go: the planner's explanation, with what the
//! kernel holds of it and the nodes that endpoints are on.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::agent_socket::service::{Client, Destination, Difference, Kernel, Located, Where};
use tweed_core::object::node::Node;
use tweed_netlink::path::lookup;
use tweed_netlink::route::Kind;
use tweed_nft::inet_tweed::{self, Held, held};
use tweed_planner::services::{ExplainError, Explanation, OwnAddresses};

use super::index::ServiceIndex;

/// Maximum number of differences between kernel and plan that are named.
const MAX_DIFFERENCES: usize = 16;
/// `RTN_LOCAL`: the kind of the routes to this machine's own addresses.
const LOCAL: u8 = 2;

/// What is known of a destination. The index is the caller's meanwhile, so nothing is
/// written between what is planned and what the kernel holds.
///
/// # Errors
/// When nothing is planned yet, or there is no such Service.
pub fn answer(
    index: &ServiceIndex,
    nodes: &[Node],
    asked: &Where,
) -> Result<Located, ExplainError> {
    let own = OwnAddresses {
        destination: match asked.to {
            Destination::Address { address, .. } => is_local(address),
            Destination::Service { .. } | Destination::NodePort { .. } => false,
        },
        client: match asked.from {
            Some(Client::Address(address)) => is_local(address),
            Some(Client::Pod | Client::Node | Client::Outside) | None => false,
        },
    };
    let explanation = index.planner.explain(asked, own)?;
    let Explanation {
        mut located,
        frontends,
        planned,
    } = explanation;
    name_nodes(&mut located, nodes);
    let hints = &mut located.hints;
    match held(&planned, &frontends) {
        Ok(Some(held)) => located.kernel = Some(kernel(held)),
        Ok(None) => hints.push(
            "the kernel has no rules of Services: /readyz says what keeps the agent from writing them"
                .to_owned(),
        ),
        Err(error) => hints.push(format!("the kernel cannot be read: {error}")),
    }
    if index.has_changed() {
        hints.push("Services or endpoints have just changed: ask again".to_owned());
    }
    hints.extend(index.unreadable().map(|problem| problem.message));
    Ok(located)
}

/// Whether this machine has an address.
fn is_local(address: IpAddr) -> bool {
    let socket = tweed_netlink::Socket::open();
    let route = socket.and_then(|mut socket| lookup(&mut socket, address.to_canonical(), None));
    // Where the kernel has no way to it, it is none of its own.
    matches!(route, Ok(Some(route)) if route.kind == Kind::Other(LOCAL))
}

fn kernel(held: Held) -> Kernel {
    let difference = |one: inet_tweed::Difference| Difference {
        set: one.set,
        key: one.key,
        planned: one.planned,
        held: one.held,
    };
    Kernel {
        read: held.read,
        unread: held.unread,
        more_differences: held.differences.len().saturating_sub(MAX_DIFFERENCES),
        differences: (held.differences.into_iter())
            .take(MAX_DIFFERENCES)
            .map(difference)
            .collect(),
    }
}

/// Says of each endpoint which node it is on: that whose address it has, or that whose
/// pod CIDR has it. The planner does not keep the names, for there may be very many.
fn name_nodes(located: &mut Located, nodes: &[Node]) {
    let endpoints = located
        .ports
        .iter_mut()
        .flat_map(|port| &mut port.endpoints);
    let mut endpoints = endpoints.peekable();
    if endpoints.peek().is_none() {
        return;
    }
    let addresses = nodes.iter().flat_map(|node| {
        let addresses = node.addresses.iter();
        addresses.filter_map(|one| Some((one.address.parse::<IpAddr>().ok()?, &node.name)))
    });
    let addresses: HashMap<IpAddr, &String> = addresses.collect();
    let cidrs = nodes.iter().flat_map(|node| {
        let cidrs = node.pod_cidrs.iter();
        cidrs.filter_map(|cidr| Some((cidr.parse::<IpNetwork>().ok()?, &node.name)))
    });
    let cidrs: Vec<(IpNetwork, &String)> = cidrs.collect();
    for endpoint in endpoints {
        let address = endpoint.at.ip();
        let by_cidr = || cidrs.iter().find(|(cidr, _)| cidr.contains(address));
        let name = addresses.get(&address).copied();
        let name = name.or_else(|| by_cidr().map(|(_, name)| *name));
        endpoint.node = match endpoint.here {
            true => Some(located.node.clone()),
            false => name.cloned(),
        };
    }
}
