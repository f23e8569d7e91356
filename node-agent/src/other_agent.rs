//! Another agent of this node. The lock in the run folder keeps a second one from running, but
//! only where both have the same folder: agents with two folders would undo each other's changes.
//!
//! An abstract socket belongs to a network namespace (unix(7)), which is what a node is here,
//! whatever folders an agent sees. Each agent holds one for as long as it runs. Any program may
//! take its name, so whoever has it is named, and nothing else follows from it.

use std::future::pending;
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};
use tweed_core::problem::{Problem, ProblemKind};

use crate::serve::status::{Reporter, StatusBoard};

/// The name, without the zero byte before it.
const NAME: &str = "tweed-agent";
/// How often it is tried again while another process has the name.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Reports another agent to the board until it is gone, and holds the name then.
pub async fn watch(board: Arc<StatusBoard>) {
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        checks.tick().await;
        match hold() {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                board.report(Reporter::OtherAgent, vec![problem()], Instant::now());
            }
            held => {
                board.report(Reporter::OtherAgent, Vec::new(), Instant::now());
                // A kernel that gives no such socket tells of nobody.
                if let Err(error) = &held {
                    tracing::debug!(%error, "another agent of this node would not be noticed");
                }
                return pending().await;
            }
        }
    }
}

fn hold() -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(NAME)?)
}

fn problem() -> Problem {
    let text = "another agent runs on this node with another --run-dir, and each undoes what the \
        other one does where their flags differ";
    Problem::new(ProblemKind::OtherAgent, NAME, text)
}
