//! Other programs that serve Services, on a node whose agent does so. The agent looks for
//! their rules continuously; whether a kube-proxy runs is asked here only.

use tweed_diagnosis::service_proxy::{self, kube_proxy_mode};
use tweed_netlink::nf::idle::Idle;

use super::{Outcome, incomplete, or_ok};
use crate::kube_proxy::serves_services;
use crate::places::Places;

pub(super) fn find(places: &Places) -> Vec<Outcome> {
    let found = match serves_services(places) {
        Ok(true) => service_proxy::find(&Idle::default()),
        Ok(false) => return Vec::new(),
        Err(error) => {
            let message = format!("it is not known whether the agent serves Services: {error}");
            return vec![incomplete("agent.json", message)];
        }
    };
    match found {
        Ok(found) => {
            let problems = service_proxy::problems(&found, kube_proxy_mode().as_deref());
            or_ok(problems.into_iter().map(Err).collect(), || {
                "no other program serves Services, nor has left rules for them".to_owned()
            })
        }
        Err(error) => {
            let what = "it is not known whether another program serves Services";
            vec![incomplete("service-proxy", format!("{what}: {error}"))]
        }
    }
}
