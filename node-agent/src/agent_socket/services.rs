//! Where new connections to a destination go: the planner's explanation, and what the kernel
//! holds of it.

use std::net::IpAddr;

use tweed_component::explain::{Client, Destination, Step, Where};
use tweed_core::object::node::Node;
use tweed_netlink::path::lookup;
use tweed_netlink::route::Kind;
use tweed_nft::services::{Difference, Held, held};
use tweed_planner::services::desired::{Desired, Tracked};
use tweed_planner::services::{ExplainError, Explanation, OwnAddresses, Places};

use crate::index::ServiceIndex;
use crate::state::State;

/// Maximum number of differences between kernel and plan that are named.
const MAX_DIFFERENCES: usize = 16;
/// Maximum number of times that the kernel is read, if what is planned changes meanwhile.
const MAX_READS: u32 = 3;
/// The note that what is planned and what is answered may differ.
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
) -> Result<Option<Vec<Step>>, ExplainError> {
    let own = OwnAddresses {
        destination: matches!(asked.to, Destination::Address(at, _) if is_local(at.ip())),
        client: matches!(asked.from, Some(Client::Address(address)) if is_local(address)),
    };
    let places = Places::of(nodes);
    let explain = |index: &ServiceIndex| index.planner.explain(asked, own, &places);
    explain_and_read(state, explain, held)
}

/// Explains, and has `read` read what the kernel holds of it, while the kernel thread can
/// plan and write. If it has written something else of this meanwhile, what was read is no
/// answer, and is read again.
fn explain_and_read(
    state: &State,
    explain: impl Fn(&ServiceIndex) -> Result<Explanation, ExplainError>,
    read: impl Fn(&Desired, &[Tracked]) -> Result<Option<Held>, tweed_nft::Error>,
) -> Result<Option<Vec<Step>>, ExplainError> {
    let explain = || -> Result<Option<(Explanation, Vec<Step>)>, ExplainError> {
        let Some(index) = state.services() else {
            return Ok(None);
        };
        Ok(Some((explain(&index)?, notes(&index))))
    };
    let Some((mut explanation, _)) = explain()? else {
        return Ok(None);
    };
    let mut reads = 0;
    loop {
        let held = read(&explanation.planned, &explanation.frontends);
        reads += 1;
        let Some((now, mut notes)) = explain()? else {
            return Ok(None);
        };
        let is_current = now.planned == explanation.planned;
        if is_current || reads == MAX_READS {
            if !is_current {
                notes.insert(0, Step::note(JUST_CHANGED));
                notes.dedup();
            }
            let mut steps = explanation.steps;
            steps.extend(kernel(held));
            steps.extend(notes);
            return Ok(Some(steps));
        }
        explanation = now;
    }
}

/// What is to be known besides about an answer from the index.
fn notes(index: &ServiceIndex) -> Vec<Step> {
    let changed = index.has_changed().then(|| Step::note(JUST_CHANGED));
    let sources = index.unreadable();
    let unreadable = sources.map(|(_, problem)| Step::note(problem.message));
    changed.into_iter().chain(unreadable).collect()
}

/// What the kernel holds, next to the plan.
fn kernel(held: Result<Option<Held>, tweed_nft::Error>) -> Vec<Step> {
    let held = match held {
        Ok(Some(held)) => held,
        Ok(None) => {
            let none = "the kernel has no rules of Services: tweedctl status says what keeps \
                        the agent from writing them";
            return vec![Step::note(none)];
        }
        Err(error) => return vec![Step::note(format!("the kernel cannot be read: {error}"))],
    };
    let mut read = format!("{} elements read", held.read);
    if held.unread > 0 {
        read += &format!(", {} more not read", held.unread);
    }
    let is_planned = held.differences.is_empty();
    let not = if is_planned { "" } else { "NOT " };
    let mut steps = vec![Step::new(format!("the kernel is {not}as planned")).because(read)];
    let more = held.differences.len().saturating_sub(MAX_DIFFERENCES);
    let named = held.differences.into_iter().take(MAX_DIFFERENCES);
    steps.extend(named.map(|one| difference(one).depth(1)));
    if more > 0 {
        steps.push(Step::new(format!("and {more} more differences")).depth(1));
    }
    steps
}

/// An element of the kernel that is not as planned.
fn difference(one: Difference) -> Step {
    let or_nothing = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
    let (held, planned) = (or_nothing(one.held), or_nothing(one.planned));
    Step::new(format!(
        "{} {{ {} }}: {held}, planned {planned}",
        one.set, one.key
    ))
}

/// Whether this machine has an address.
fn is_local(address: IpAddr) -> bool {
    let socket = tweed_netlink::Socket::open();
    let to = address.to_canonical();
    let route = socket.and_then(|mut socket| lookup(&mut socket, to, None, None));
    // Where the kernel has no way to it, it is none of its own.
    matches!(route, Ok(Some(route)) if route.kind == Kind::Other(LOCAL))
}

#[cfg(test)]
mod tests;
