//! Looks for other programs that serve Services, and for what a kube-proxy has left, on a
//! node whose agent is to serve them.
//!
//! It writes nothing. Changes are not followed: such rules are there for long, and those
//! of kube-proxy change with every endpoint.

use std::mem;

use tokio::sync::watch;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::service_proxy::{Found, find, problems};
use tweed_netlink::nf::Socket;
use tweed_netlink::nf::idle::Idle;

use super::outcome::Outcome;
use super::schedule::{Due, ResyncTarget};
use crate::serve::services::proxy_health::KubeProxyRules;

/// Names other service proxies while the agent serves Services, and always says whether
/// kube-proxy's rules are there.
pub struct ServiceProxyInspector {
    /// Gets whether there are rules of kube-proxy; none if the agent serves no Services.
    kube_proxy: Option<watch::Sender<KubeProxyRules>>,
    /// What was found last.
    problems: Vec<Problem>,
    /// What it asks with.
    nf_tables: Idle<Socket>,
    /// Whether the agent served Services then.
    serves: bool,
}

impl ServiceProxyInspector {
    /// `kube_proxy` is there if the agent is to serve Services.
    pub fn new(kube_proxy: Option<watch::Sender<KubeProxyRules>>) -> Self {
        Self {
            kube_proxy,
            problems: Vec::new(),
            nf_tables: Idle::default(),
            serves: false,
        }
    }

    /// Looks at once the first time and when the agent begins to serve Services, then when
    /// it is due. What is found is wrong only while the agent `serves` them.
    pub fn inspect(&mut self, serves: bool, due: Due) -> Outcome {
        let Some(kube_proxy) = &self.kube_proxy else {
            return Outcome::default();
        };
        let has_begun = !mem::replace(&mut self.serves, serves) && serves;
        let is_first = *kube_proxy.borrow() == KubeProxyRules::NotLooked;
        if is_first || has_begun || due.has(ResyncTarget::ForeignRules) {
            let found = find(&self.nf_tables);
            tell(kube_proxy, found.as_ref().ok());
            self.problems = match found {
                Ok(found) => problems(&found, None),
                Err(error) => vec![Problem::new(
                    ProblemKind::OtherTablesUnreadable,
                    "Services",
                    format!("whether another program serves Services is not known: {error}"),
                )],
            };
        }
        let problems = serves.then(|| self.problems.clone());
        Outcome::of(problems.unwrap_or_default())
    }
}

/// Says what was `found`. A look that fails changes nothing of what is known.
fn tell(kube_proxy: &watch::Sender<KubeProxyRules>, found: Option<&Found>) {
    kube_proxy.send_if_modified(|rules| {
        let now = match (found, *rules) {
            (Some(found), _) if found.kube_proxy.is_empty() => KubeProxyRules::Gone,
            (Some(_), _) => KubeProxyRules::There,
            (None, KubeProxyRules::NotLooked) => KubeProxyRules::NotKnown,
            (None, known) => known,
        };
        mem::replace(rules, now) != now
    });
}
