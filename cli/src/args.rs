//! What can be typed.

use clap::{Parser, Subcommand};

use crate::VERSION;
use crate::target::Common;
use crate::verbs::version::Version;

const EXAMPLES: &str = "\
With a kubeconfig it asks the agents of the cluster, by exec in their pods; this needs the
right `get` on `pods`, and `get` and, from Kubernetes 1.35, `create` on `pods/exec`, in the
namespace of tweed. On a node, with --run-dir or without a kubeconfig, it asks the agent
there on its socket, as root.

Exit codes: 0 fine; 1 there are findings; 2 what was typed is wrong; 3 the connection is
denied (`why --exit-code`); 4 something could not be determined. 1 comes before 4, and 4
never becomes 0.";

/// Asks tweed's agents, those of a cluster or the one of this node, and prints what they
/// answer
#[derive(Debug, Clone, Parser)]
#[command(name = "tweedctl", version = VERSION, after_help = EXAMPLES)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub command: Command,
    /// The flags of every verb.
    #[command(flatten)]
    pub common: Common,
}

/// The verbs.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// The versions of this program and of the agents
    Version(Version),
}
