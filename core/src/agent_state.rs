//! The files by which the agent tells the plugin, and people, how the node's network
//! is: `ready`, `agent.json` and `policy`, all in the run folder. Defined once, for the
//! agent that writes them and the plugin that reads them.
//!
//! They hold no time, so they change only when what they say does.

use std::collections::BTreeSet;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::problem::ProblemKind;

/// Name of the file that exists once the node's network has come up in this boot.
pub const READY_FILE: &str = "ready";
/// Name of the file with the agent's last published state.
pub const AGENT_STATE_FILE: &str = "agent.json";
/// Name of the file that exists while the kernel may isolate pods that are not enforced
/// by the policies yet. Only then does an ADD ask the agent, and wait.
///
/// The agent makes it before it reads the store for the first time with policies, and
/// the plugin looks for it after it has written its record: an ADD that misses the file
/// has a record that the agent finds.
pub const POLICY_FILE: &str = "policy";

/// The content of `ready`. The boot ID tells agent and plugin whether the file is of
/// this boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// The boot in which the node's network first came up.
    pub boot_id: String,
    /// The Node's name.
    pub node: String,
    /// The version of the agent that wrote the file.
    pub version: String,
}

impl Ready {
    /// The content for `node`, ready in this boot, by this version.
    pub fn new(node: &str, boot_id: &str) -> Self {
        Self {
            boot_id: boot_id.to_owned(),
            node: node.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// The content of `agent.json`. The plugin reads [`Readiness`] from it, the rest
/// is for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    /// The agent's version.
    pub version: &'static str,
    /// The Node's name.
    pub node: String,
    /// Whether pods can be served.
    #[serde(flatten)]
    pub readiness: Readiness,
    /// Problems that keep no pod from being served.
    pub warnings: Vec<String>,
    /// The kinds of all problems, for programs.
    pub kinds: BTreeSet<ProblemKind>,
    /// Whether the kernel serves all Services by the agent's rules, as they are. While it
    /// does not know yet which Services there are, a restarted agent says no.
    pub services: bool,
    /// Whether the kernel serves Services as an earlier plan had them, which need not be
    /// what they are: of an earlier run of the agent, or one whose successor is not written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub earlier_services: bool,
    /// MTU of pods, in bytes; none before the network was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The node's pod CIDRs.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<IpNetwork>,
    /// The path at which the program of the CNI plugin has been in this boot. The node is not
    /// ready when it is gone from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// The fast path; none if it is switched off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_path: Option<FastPathState>,
}

/// Whether established flows between pods skip the host's stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FastPathState {
    /// Whether they do.
    pub active: bool,
    /// Whether somebody has switched it off for a while.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Number of places at which a program is attached.
    pub hooks: usize,
    /// What takes the kernel's path all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl FastPathState {
    /// It in one sentence, for people.
    #[must_use]
    pub fn sentence(&self) -> String {
        match &self.why {
            Some(why) => format!("the fast path is off: {why}"),
            None if self.left.is_empty() => format!("the fast path is on ({} hooks)", self.hooks),
            None => {
                let left = self.left.join("; ");
                let hooks = self.hooks;
                format!("the fast path is on ({hooks} hooks); not for {left}")
            }
        }
    }
}

/// The part of `agent.json` by which STATUS answers. It can be read from the file
/// of an agent of another version: only `ready` must be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Whether new pods can be served.
    pub ready: bool,
    /// Whether running pods are affected too.
    #[serde(default)]
    pub affects_running: bool,
    /// Why it is not ready, a sentence each.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// The part of `agent.json` by which an agent that is started goes on, and by which
/// `tweed-install` knows what the node has. Older agents do not say all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LastState {
    /// See [`AgentState::mtu`].
    pub mtu: Option<u32>,
    /// See [`AgentState::services`].
    pub services: bool,
    /// See [`AgentState::earlier_services`].
    pub earlier_services: bool,
    /// See [`AgentState::pod_cidrs`].
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<IpNetwork>,
    /// See [`AgentState::plugin`].
    pub plugin: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frozen: plugin and agent of neighbouring versions read each other's files.
    #[test]
    fn the_bytes_of_the_files_are_frozen() {
        let readiness = Readiness {
            ready: false,
            affects_running: true,
            reasons: vec!["broken".to_owned()],
        };
        let mut state = AgentState {
            version: "1",
            node: "alpha".to_owned(),
            readiness: readiness.clone(),
            warnings: Vec::new(),
            kinds: [ProblemKind::Nftables].into(),
            services: true,
            earlier_services: false,
            mtu: Some(1450),
            pod_cidrs: vec!["10.244.1.0/24".parse().unwrap()],
            plugin: None,
            fast_path: None,
        };
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(
            text,
            r#"{"version":"1","node":"alpha","ready":false,"affectsRunning":true,"reasons":["broken"],"warnings":[],"kinds":["nftables"],"services":true,"mtu":1450,"podCIDRs":["10.244.1.0/24"]}"#
        );
        assert_eq!(serde_json::from_str::<Readiness>(&text).unwrap(), readiness);
        let last: LastState = serde_json::from_str(&text).unwrap();
        assert!(last.services);
        assert_eq!(
            (last.pod_cidrs, last.plugin),
            (state.pod_cidrs.clone(), None)
        );
        state.plugin = Some("/opt/cni/bin/tweed".to_owned());
        let with_plugin = serde_json::to_string(&state).unwrap();
        let end = r#","plugin":"/opt/cni/bin/tweed"}"#;
        assert_eq!(with_plugin, text.trim_end_matches('}').to_owned() + end);
        let last: LastState = serde_json::from_str(&with_plugin).unwrap();
        assert_eq!(last.plugin, state.plugin);
        assert_eq!(
            serde_json::from_str::<Readiness>(&with_plugin).unwrap(),
            readiness
        );
        state.mtu = None;
        (state.services, state.earlier_services) = (false, true);
        let text = serde_json::to_string(&state).unwrap();
        assert!(!text.contains("mtu"));
        assert!(text.contains(r#""services":false,"earlierServices":true"#));
        let last: LastState = serde_json::from_str(&text).unwrap();
        assert!(last.earlier_services);

        let ready = Ready {
            version: "1".to_owned(),
            ..Ready::new("alpha", "b")
        };
        let text = serde_json::to_string(&ready).unwrap();
        assert_eq!(text, r#"{"bootId":"b","node":"alpha","version":"1"}"#);
        assert_eq!(serde_json::from_str::<Ready>(&text).unwrap(), ready);
    }

    #[test]
    fn readiness_needs_nothing_but_ready() {
        let read = |text: &str| serde_json::from_str::<Readiness>(text);
        assert!(
            read(r#"{"ready":true,"podCIDRs":7,"new":[]}"#)
                .unwrap()
                .ready
        );
        assert!(read("{}").is_err());
        let older: LastState = serde_json::from_str(r#"{"ready":true}"#).unwrap();
        assert!(!older.services);
    }
}
