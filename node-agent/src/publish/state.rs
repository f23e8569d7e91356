//! What `agent.json` and `ready` say: pure. No time stands in them, so they
//! change only when what they say does.

use std::path::Path;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use super::Network;
use crate::serve::status::Status;
use tweed_core::problem::{Effect, Problem};

/// The agent's last published state. The plugin reads `ready`,
/// `affectsRunning` and `reasons`; the rest is for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    version: &'static str,
    node: String,
    ready: bool,
    affects_running: bool,
    reasons: Vec<String>,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<IpNetwork>,
}

impl AgentState {
    /// The state of `node`; `network` as it was last published.
    #[must_use]
    pub fn new(node: &str, network: Option<&Network>, status: &Status) -> Self {
        let texts = |wanted: fn(&Problem) -> bool| -> Vec<String> {
            let problems = status.problems.iter();
            problems
                .filter(|p| wanted(p))
                .map(Problem::to_string)
                .collect()
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            node: node.to_owned(),
            ready: status.ready(),
            affects_running: status.affects_running(),
            reasons: texts(|problem| problem.effect > Effect::Warning),
            warnings: texts(|problem| problem.effect == Effect::Warning),
            mtu: network.map(|network| network.mtu),
            pod_cidrs: network
                .map(|network| network.pod_cidrs.clone())
                .unwrap_or_default(),
        }
    }
}

/// What the `ready` file says. Its being there is what counts for ADD; the
/// boot ID tells the agent whether it is of this boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// The boot in which the node's network first came up.
    pub boot_id: String,
    node: String,
    version: String,
}

impl Ready {
    /// That `node` is ready in this boot.
    #[must_use]
    pub fn new(node: &str, boot_id: &str) -> Self {
        Self {
            boot_id: boot_id.to_owned(),
            node: node.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// What the file at `path` says; none if it is not there or not ours.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use tweed_core::problem::ProblemKind;

    fn state(problems: Vec<Problem>, network: Option<&Network>) -> Value {
        let status = Status {
            problems,
            unchanged_for: Duration::from_secs(7),
        };
        serde_json::to_value(AgentState::new("alpha", network, &status)).unwrap()
    }

    #[test]
    fn it_says_what_status_asks_for() {
        let network = Network {
            mtu: 1450,
            host_sources: Vec::new(),
            pod_cidrs: vec!["10.244.1.0/24".parse().unwrap()],
        };
        let problem = |effect| {
            Problem::new(ProblemKind::NoPodCidr, "o", "broken")
                .with_effect(effect)
                .with_cure("mend it")
        };
        let mut expected = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "node": "alpha",
            "ready": true,
            "affectsRunning": false,
            "reasons": [],
            "warnings": ["broken (o): mend it"],
            "mtu": 1450,
            "podCIDRs": ["10.244.1.0/24"],
        });
        assert_eq!(
            state(vec![problem(Effect::Warning)], Some(&network)),
            expected
        );
        expected["ready"] = json!(false);
        expected["warnings"] = json!([]);
        expected["reasons"] = json!(["broken (o): mend it"]);
        assert_eq!(
            state(vec![problem(Effect::NewPods)], Some(&network)),
            expected
        );
        expected["affectsRunning"] = json!(true);
        assert_eq!(
            state(vec![problem(Effect::RunningPods)], Some(&network)),
            expected
        );
    }

    #[test]
    fn before_the_first_convergence_it_names_no_mtu() {
        let state = state(Vec::new(), None);
        assert_eq!(state.get("mtu"), None);
        assert_eq!(state["podCIDRs"], json!([]));
    }
}
