//! What can be typed.

use clap::{Parser, Subcommand};

use crate::VERSION;
use crate::target::Common;
use crate::verbs::addresses::Addresses;
use crate::verbs::bundle::Bundle;
use crate::verbs::doctor::Doctor;
use crate::verbs::drops::Drops;
use crate::verbs::fast_path::FastPath;
use crate::verbs::graph::Graph;
use crate::verbs::papers::{Completion, Man};
use crate::verbs::peers::Peers;
use crate::verbs::status::Status;
use crate::verbs::version::Version;
use crate::verbs::where_to::WhereTo;
use crate::verbs::why::Why;

const EXAMPLES: &str = "\
With a kubeconfig it asks the agents of the cluster, by exec in their pods. This needs the
rights `get` and `list` on `nodes` and, in the namespace of tweed, on `pods`; there also
`get` and, from Kubernetes 1.35, `create` on `pods/exec`. On a node, with --run-dir or
without a kubeconfig, it asks the agent there on its socket, as root.

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
    /// How the nodes are, and what is wrong
    Status(Status),
    /// What stands in tweed's way, keeps changing its objects, or differs between nodes
    Doctor(Doctor),
    /// Whether a connection is allowed, and which policy decides, where
    Why(Why),
    /// Where new connections to a Service or an address go, and why
    Where(WhereTo),
    /// Whether the nodes reach each other, as they find by asking
    Peers(Peers),
    /// What tweed's rules have dropped, by reason
    Drops(Drops),
    /// Who has which address, and what is free, reserved or leaked
    Addresses(Addresses),
    /// Whether flows skip the host's stack; switches that off for a look with tcpdump
    FastPath(FastPath),
    /// Draw the nodes and the ways between them
    Graph(Graph),
    /// Everything that a report of a defect needs, in one archive, without secrets
    Bundle(Bundle),
    /// The versions of this program and of the agents
    Version(Version),
    /// A script by which a shell completes what is typed
    Completion(Completion),
    /// The manual pages
    Man(Man),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_verbs_are_typed_like_this() {
        Cli::command().debug_assert();
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        for line in [
            "tweedctl why shop/web shop/db:80 --exit-code",
            "tweedctl --run-dir /run/tweed why shop/web svc/shop/db:80 -o json",
            "tweedctl where shop/web --from pod --node a --node b",
            "tweedctl addresses -o wide --context c",
            "tweedctl completion bash",
            "tweedctl fast-path off --for 5m --node a",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
        }
        for line in [
            "tweedctl",
            "tweedctl why shop/web",
            "tweedctl why shop/web shop/db",
            "tweedctl version --run-dir /x --context c",
            "tweedctl version -o yaml",
            "tweedctl fast-path --for 5m",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn every_verb_has_examples() {
        let program = Cli::command();
        for verb in program.get_subcommands() {
            let after = verb.get_after_help().map(ToString::to_string);
            let name = verb.get_name();
            assert!(after.unwrap_or_default().contains("Examples:"), "{name}");
        }
    }
}
