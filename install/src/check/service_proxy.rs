//! Other programs that serve Services, on a node whose agent does so. The agent looks for
//! their rules continuously; whether a kube-proxy runs is asked here only.

use tweed_core::problem::Problem;
use tweed_diagnosis::service_proxy::{self, FindError, Found, kube_proxy_mode};
use tweed_netlink::nf::idle::Idle;

use super::{Outcome, incomplete, ok};
use crate::kube_proxy::serves_services;
use crate::places::Places;

pub(super) fn find(places: &Places) -> Vec<Outcome> {
    match serves_services(places) {
        Ok(false) => Vec::new(),
        Ok(true) => judge(
            service_proxy::find(&Idle::default()),
            kube_proxy_mode().as_deref(),
        ),
        Err(error) => vec![incomplete(
            "agent.json",
            format!("it is not known whether the agent serves Services: {error}"),
        )],
    }
}

fn judge(found: Result<Found, FindError>, mode: Option<&str>) -> Vec<Outcome> {
    match found {
        Ok(found) => {
            let problems: Vec<Problem> = service_proxy::problems(&found, mode);
            if problems.is_empty() {
                vec![ok(
                    "no other program serves Services, nor has left rules for them",
                )]
            } else {
                problems.into_iter().map(Err).collect()
            }
        }
        Err(error) => vec![incomplete(
            "service-proxy",
            format!("it is not known whether another program serves Services: {error}"),
        )],
    }
}
