//! The first addresses of the own pod CIDRs, where no VXLAN device has them: other nodes probe
//! these. A local route gives the machine an address by which it is tweed's, unlike one on a
//! link of others.

use std::collections::BTreeSet;

use ipnetwork::IpNetwork;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_netlink::route::{self, Route};
use tweed_netlink::{Error, Request};
use tweed_planner::overlay::desired::ROUTE_PROTOCOL;

use super::Kernel;
use crate::reconcile::outcome::{ObjectKind, Outcome};

impl Kernel {
    /// Adds the routes to these addresses, and removes others of tweed.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn keep_local_routes(&mut self, addresses: &BTreeSet<IpNetwork>) -> Result<Outcome, Error> {
        let found = route::local(&mut self.socket, ROUTE_PROTOCOL)?;
        let requests = requests(addresses, &found);
        let mut outcome = Outcome::default();
        for (request, answer) in requests.iter().zip(self.send(&requests)?) {
            match answer {
                Err(error) if !(request.is_deletion() && error.is_absent()) => {
                    let text =
                        format!("{error}: with direct routes other nodes may find this one silent");
                    let problem = Problem::new(ProblemKind::WriteRefused, "local route", text);
                    outcome.fail(problem.with_effect(Effect::Warning));
                }
                _ => outcome.wrote(ObjectKind::Route, 1, &request.object),
            }
        }
        Ok(outcome)
    }
}

/// The requests after which there are the right ones of the routes that were found.
fn requests(addresses: &BTreeSet<IpNetwork>, found: &[Route]) -> Vec<Request> {
    let is_there = |address: &&IpNetwork| found.iter().any(|route| route.destination == **address);
    let is_other = |route: &&Route| !addresses.contains(&route.destination);
    let add = |address: &IpNetwork| route::add(&Route::local(*address, ROUTE_PROTOCOL));
    let others = found.iter().filter(is_other).map(route::delete);
    let missing = addresses.iter().filter(|address| !is_there(address));
    others.chain(missing.map(add)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_added_and_what_is_not_wanted_any_more_removed() {
        let route = |text: &str| Route::local(text.parse().unwrap(), ROUTE_PROTOCOL);
        let four: IpNetwork = "10.244.1.0/32".parse().unwrap();
        let six: IpNetwork = "fd00:1::/128".parse().unwrap();
        let made = |wanted: &[IpNetwork], found: &[Route]| {
            let requests = requests(&wanted.iter().copied().collect(), found);
            requests
                .iter()
                .map(Request::is_deletion)
                .collect::<Vec<_>>()
        };
        assert_eq!(made(&[four, six], &[]), [false, false]);
        assert_eq!(made(&[four, six], &[route("fd00:1::/128")]), [false]);
        assert_eq!(made(&[four], &[route("10.244.9.0/32")]), [true, false]);
        assert_eq!(made(&[], &[route("10.244.1.0/32")]), [true]);
        assert!(made(&[four], &[route("10.244.1.0/32")]).is_empty());
    }
}
