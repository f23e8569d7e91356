//! The content of `agent.json`: a pure function of the board.

use serde_json::{Map, Value};
use tweed_core::agent_state::{AgentState, LastState, Readiness};
use tweed_core::problem::{Effect, Problem};

use super::NodeNetwork;
use crate::serve::status::Status;

/// Which Services the kernel serves by tweed's rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Served {
    /// None.
    #[default]
    Nothing,
    /// Those of an earlier plan, of an earlier run of the agent too.
    Earlier,
    /// All, as they are.
    All,
}

/// The state of `node`, with what its kernel serves of Services; `network` as it was last
/// published.
pub(super) fn of_status(
    node: &str,
    services: Served,
    network: Option<&NodeNetwork>,
    status: &Status,
) -> AgentState {
    let texts = |is_wanted: fn(&Problem) -> bool| -> Vec<String> {
        let problems = status.problems.iter().filter(|problem| is_wanted(problem));
        problems.map(Problem::to_string).collect()
    };
    AgentState {
        version: env!("CARGO_PKG_VERSION"),
        node: node.to_owned(),
        readiness: Readiness {
            ready: status.ready(),
            affects_running: status.affects_running(),
            reasons: texts(|problem| problem.effect > Effect::Warning),
        },
        warnings: texts(|problem| problem.effect == Effect::Warning),
        kinds: status.problems.iter().map(|problem| problem.kind).collect(),
        services: services == Served::All,
        earlier_services: services == Served::Earlier,
        mtu: network.map(|network| network.mtu),
        pod_cidrs: network
            .map(|network| network.pod_cidrs.clone())
            .unwrap_or_default(),
        plugin: None,
        fast_path: None,
    }
}

/// What an earlier run has said of Services.
pub(super) fn served(last: &LastState) -> Served {
    match (last.services, last.earlier_services) {
        (true, _) => Served::All,
        (false, true) => Served::Earlier,
        (false, false) => Served::Nothing,
    }
}

/// Changes what a state says of Services.
pub(super) fn set_served(state: &mut Map<String, Value>, services: Served) {
    for (key, is_so) in [
        ("services", Served::All),
        ("earlierServices", Served::Earlier),
    ] {
        state.insert(key.to_owned(), (services == is_so).into());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use tweed_core::problem::ProblemKind;

    fn state(problems: Vec<Problem>, network: Option<&NodeNetwork>) -> Value {
        let status = Status {
            problems,
            notes: Vec::new(),
            unchanged_for: Duration::from_secs(7),
        };
        serde_json::to_value(of_status("alpha", Served::All, network, &status)).unwrap()
    }

    #[test]
    fn it_says_what_status_asks_for() {
        let network = NodeNetwork {
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
            "kinds": ["no-pod-cidr"],
            "services": true,
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
