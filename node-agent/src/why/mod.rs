//! The command `policy why`: asks the running agent of this node over its socket why a
//! connection is allowed or denied, and prints the answer.

pub(crate) mod endpoint;

use anyhow::Result;
use clap::Args;
use tweed_component::explain::{End, Question};

use crate::question::Asking;
use endpoint::Destination;

const EXAMPLES: &str = "\
Examples:
  May web-0 of namespace shop talk to port 5432 of db-0?
    tweed-agent policy why shop/web-0 shop/db-0:5432

  DNS, and an address outside the cluster:
    tweed-agent policy why shop/web-0 10.244.3.7:53/UDP
    tweed-agent policy why shop/web-0 '[2001:db8::7]:443'

  Who may ping db-0, for a program:
    tweed-agent policy why 192.0.2.1 shop/db-0:icmp --json

  In a cluster, on the node where the pod is:
    kubectl -n kube-system exec tweed-x7k2p -c agent -- \\
      tweed-agent policy why shop/web-0 shop/db-0:5432

The agent of the source's node decides what may leave the source, that of the
destination's node what may reach the destination: ask both. A Service has no
policies: name the pod behind it and the pod's own port.

Exit codes: 0 answered, whatever the answer is; 1 the agent could not be asked;
2 an invalid argument.";

/// The arguments of `policy why`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Asked {
    /// Who begins the connection: NAMESPACE/POD, or an address
    #[arg(value_name = "FROM", value_parser = endpoint::end)]
    from: End,

    /// Who answers: NAMESPACE/POD:PORT or IP:PORT, with /TCP (if not given), /UDP
    /// or /SCTP; :icmp instead of a port means ping
    #[arg(value_name = "TO", value_parser = endpoint::destination)]
    to: Destination,

    #[command(flatten)]
    asking: Asking,
}

/// Asks the agent and prints what it answers.
///
/// # Errors
/// The agent is not running, or does not answer, or this process is not root.
pub fn run(asked: &Asked) -> Result<()> {
    let why = asked.to.question(&asked.from);
    asked.asking.run(Question::Why(why))
}
