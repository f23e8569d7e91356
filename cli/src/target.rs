//! Who is asked: the agent of this node, or those of a cluster.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use tweed_core::agent_socket::path::AGENT_SOCKET;
use tweed_core::paths::DEFAULT_RUN_DIR;

use crate::node::Node;
use crate::output::Format;

/// The flags of every verb.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct Common {
    /// kubeconfig file of the cluster to ask; if not given, KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE", global = true, help_heading = "Whom to ask")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig; if not given, the current one
    #[arg(long, value_name = "NAME", global = true, help_heading = "Whom to ask")]
    pub context: Option<String>,

    /// Kubernetes namespace of tweed's pods
    #[arg(
        long,
        value_name = "NAME",
        global = true,
        default_value = "kube-system",
        help_heading = "Whom to ask"
    )]
    pub namespace: String,

    /// Only the agent of this node; it may be repeated
    #[arg(
        long = "node",
        value_name = "NAME",
        global = true,
        help_heading = "Whom to ask"
    )]
    pub nodes: Vec<String>,

    /// Ask the agent of this machine, whose state is in this folder, and no cluster; needs
    /// root
    #[arg(
        long,
        env = "TWEED_RUN_DIR",
        value_name = "DIR",
        global = true,
        conflicts_with_all = ["kubeconfig", "context", "nodes"],
        help_heading = "Whom to ask"
    )]
    pub run_dir: Option<PathBuf>,

    /// How answers are printed
    #[arg(
        short,
        long,
        value_enum,
        default_value_t,
        global = true,
        hide_possible_values = true,
        value_name = "table|wide|json",
        help_heading = "Output"
    )]
    pub output: Format,

    /// Print no colours; NO_COLOR does the same
    #[arg(long, global = true, help_heading = "Output")]
    pub no_color: bool,
}

/// What is there to be asked, besides what was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// Whether KUBECONFIG names a file, or ~/.kube/config exists.
    pub has_kubeconfig: bool,
    /// Whether an agent of this machine has a socket in the usual folder.
    pub has_socket: bool,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn find() -> Self {
        let is_set = std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
        let in_home = || {
            let home = std::env::var_os("HOME").map(PathBuf::from);
            home.is_some_and(|home| home.join(".kube/config").exists())
        };
        Self {
            has_kubeconfig: is_set || in_home(),
            has_socket: Path::new(DEFAULT_RUN_DIR).join(AGENT_SOCKET).exists(),
        }
    }
}

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The agent of this node.
    Node(Node),
    /// The agents of a cluster.
    Cluster,
}

/// Who is meant. What was typed comes first, then a kubeconfig, then this node.
///
/// # Errors
/// There is neither a kubeconfig nor an agent.
pub fn target(common: &Common, surroundings: Surroundings) -> Result<Target> {
    let node = |run_dir: &Path| {
        let run_dir = run_dir.to_owned();
        Ok(Target::Node(Node { run_dir }))
    };
    let is_cluster = common.kubeconfig.is_some() || common.context.is_some();
    match &common.run_dir {
        Some(run_dir) => node(run_dir),
        None if is_cluster || surroundings.has_kubeconfig => Ok(Target::Cluster),
        None if surroundings.has_socket => node(Path::new(DEFAULT_RUN_DIR)),
        None => bail!(
            "there is nobody to ask: no kubeconfig (--kubeconfig FILE, KUBECONFIG or ~/.kube/config) for a cluster, and no agent of this machine at {DEFAULT_RUN_DIR}/{AGENT_SOCKET} (--run-dir DIR names another folder)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_comes_before_a_kubeconfig_and_that_before_this_node() {
        let all = Surroundings {
            has_kubeconfig: true,
            has_socket: true,
        };
        let typed = |run_dir: Option<&str>, context: Option<&str>| Common {
            run_dir: run_dir.map(PathBuf::from),
            context: context.map(str::to_owned),
            ..Common::default()
        };
        let none = Surroundings::default();
        let socket = Surroundings {
            has_socket: true,
            ..none
        };
        let node = |run_dir: &str| {
            let run_dir = run_dir.into();
            Target::Node(Node { run_dir })
        };
        for (common, surroundings, expected) in [
            (typed(Some("/x"), None), all, node("/x")),
            (typed(None, None), all, Target::Cluster),
            (typed(None, Some("c")), socket, Target::Cluster),
            (typed(None, None), socket, node(DEFAULT_RUN_DIR)),
        ] {
            assert_eq!(target(&common, surroundings).unwrap(), expected);
        }
        let error = target(&typed(None, None), none).unwrap_err().to_string();
        for both in ["~/.kube/config", "agent.sock"] {
            assert!(error.contains(both), "{error}");
        }
    }
}
