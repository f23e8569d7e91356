//! Where new connections to a destination go: the planner's explanation, with what the
//! kernel holds of it and the nodes that endpoints are on.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::agent_socket::service::{Client, Destination, Difference, Kernel, Located, Where};
use tweed_core::object::node::Node;
use tweed_netlink::path::lookup;
use tweed_netlink::route::Kind;
use tweed_nft::services::{self, Held, held};
use tweed_planner::services::desired::{Desired, Tracked};
use tweed_planner::services::{ExplainError, Explanation, OwnAddresses};

use super::index::ServiceIndex;
use crate::state::State;

/// Maximum number of differences between kernel and plan that are named.
const MAX_DIFFERENCES: usize = 16;
/// Maximum number of times that the kernel is read, if what is planned changes meanwhile.
const MAX_READS: u32 = 3;
/// The hint that what is planned and what is answered may differ.
const JUST_CHANGED: &str = "Services or endpoints have just changed: ask again";
/// `RTN_LOCAL`: the kind of the routes to this machine's own addresses.
const LOCAL: u8 = 2;

/// What is known of a destination; none if Services are switched off.
///
/// # Errors
/// When nothing is planned yet, or there is no such Service.
pub fn answer(
    state: &State,
    nodes: &[Node],
    asked: &Where,
) -> Result<Option<Located>, ExplainError> {
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
    let mut located = explain_and_read(state, asked, own, held)?;
    if let Some(located) = &mut located {
        name_nodes(located, nodes);
    }
    Ok(located)
}

/// Explains, and has `read` read what the kernel holds of it, while the kernel thread can
/// plan and write. If it has written something else of this meanwhile, what was read is no
/// answer, and is read again.
fn explain_and_read(
    state: &State,
    asked: &Where,
    own: OwnAddresses,
    read: impl Fn(&Desired, &[Tracked]) -> Result<Option<Held>, tweed_nft::Error>,
) -> Result<Option<Located>, ExplainError> {
    let explain = || -> Result<Option<(Explanation, Vec<String>)>, ExplainError> {
        let Some(index) = state.services() else {
            return Ok(None);
        };
        let explanation = index.planner.explain(asked, own)?;
        Ok(Some((explanation, hints(&index))))
    };
    let Some((mut explanation, _)) = explain()? else {
        return Ok(None);
    };
    let mut reads = 0;
    loop {
        let held = read(&explanation.planned, &explanation.frontends);
        reads += 1;
        let Some((now, mut hints)) = explain()? else {
            return Ok(None);
        };
        let is_current = now.planned == explanation.planned;
        if is_current || reads == MAX_READS {
            if !is_current {
                hints.insert(0, JUST_CHANGED.to_owned());
                hints.dedup();
            }
            let mut located = explanation.located;
            note_held(&mut located, held);
            located.hints.extend(hints);
            return Ok(Some(located));
        }
        explanation = now;
    }
}

/// What is to be known besides about an answer from the index.
fn hints(index: &ServiceIndex) -> Vec<String> {
    let changed = index.has_changed().then(|| JUST_CHANGED.to_owned());
    let unreadable = index.unreadable().map(|problem| problem.message);
    changed.into_iter().chain(unreadable).collect()
}

fn note_held(located: &mut Located, held: Result<Option<Held>, tweed_nft::Error>) {
    let hints = &mut located.hints;
    match held {
        Ok(Some(held)) => located.kernel = Some(kernel(held)),
        Ok(None) => hints.push(
            "the kernel has no rules of Services: /readyz says what keeps the agent from writing them"
                .to_owned(),
        ),
        Err(error) => hints.push(format!("the kernel cannot be read: {error}")),
    }
}

/// Whether this machine has an address.
fn is_local(address: IpAddr) -> bool {
    let socket = tweed_netlink::Socket::open();
    let route = socket.and_then(|mut socket| lookup(&mut socket, address.to_canonical(), None));
    // Where the kernel has no way to it, it is none of its own.
    matches!(route, Ok(Some(route)) if route.kind == Kind::Other(LOCAL))
}

fn kernel(held: Held) -> Kernel {
    let difference = |one: services::Difference| Difference {
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

#[cfg(test)]
mod tests;
