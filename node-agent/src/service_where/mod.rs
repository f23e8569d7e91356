//! The command `service where`: asks the running agent of this node over its socket where
//! new connections to a destination go, and prints the answer.

mod destination;

use anyhow::Result;
use clap::Args;
use tweed_component::explain::{Client, Destination, Question, Where};

use crate::question::Asking;

const EXAMPLES: &str = "\
Examples:
  Where does a connection to this address go, and why to these endpoints?
    tweed-agent service where 10.96.0.10:53/UDP
    tweed-agent service where '[fd00:96::a]:443'

  All that a Service is reached by, or one of its ports:
    tweed-agent service where shop/web
    tweed-agent service where shop/web:80

  A node port; what a certain client meets; for a program:
    tweed-agent service where nodeport:30080 --from outside
    tweed-agent service where 203.0.113.7:443 --from 198.51.100.20 --json

  In a cluster, on the node that the client's packets reach first:
    kubectl -n kube-system exec tweed-x7k2p -c agent -- \\
      tweed-agent service where shop/web

Each node decides for itself: for a pod ask the agent of the pod's node, for a
client outside that of the node that gets its packets. Endpoints are those that
new connections are sent to; what was connected before stays where it is.

Exit codes: 0 answered, whatever the answer is; 1 the agent could not be asked,
or does not know the Service; 2 an invalid argument.";

/// The arguments of `service where`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Asked {
    /// ADDRESS:PORT, NAMESPACE/SERVICE[:PORT] or nodeport:PORT, with /TCP, /UDP or
    /// /SCTP; TCP if not given, of a Service all
    #[arg(value_name = "DESTINATION", value_parser = destination::destination)]
    to: Destination,

    /// Who connects: an address, or pod, node (this one) or outside; if not given,
    /// each of the three
    #[arg(long, value_name = "CLIENT", value_parser = destination::client)]
    from: Option<Client>,

    /// List up to 600 endpoints instead of 16 for a port
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    asking: Asking,
}

/// Asks the agent and prints what it answers.
///
/// # Errors
/// The agent is not running, or does not answer, or this process is not root.
pub fn run(asked: &Asked) -> Result<()> {
    asked.asking.run(Question::Where(Where {
        to: asked.to.clone(),
        from: asked.from,
        all: asked.all,
    }))
}
