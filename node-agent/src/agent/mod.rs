//! The loop that ties everything together.
//!
//! Two threads. The first runs tokio: the Node source, signals, HTTP, the files
//! that are published; none of it may wait for the kernel. The second, the
//! kernel thread, owns the sockets to the kernel and goes through passes
//! ([`pass`]), one after the other. What it is told is state, not messages
//! ([`inbox`]); when it goes through is decided in [`schedule`]. It hands back
//! the state after each pass, of which only the last counts.
//!
//! Stopping leaves everything in the kernel as it is.

mod findings;
pub mod inbox;
mod pass;
pub mod schedule;
mod thread;

use std::io;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::publish::{self, Publisher};
use crate::serve::metrics::Metrics;
use crate::serve::status::StatusBoard;
use tweed_core::object::Event;
use tweed_core::object::node::Node;
use tweed_core::problem::Problem;
use tweed_watch::Source;

use inbox::Inbox;
use pass::Passes;

/// Where the kernel says which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Events of the source that wait to be taken in: more make the source wait.
const EVENTS: usize = 256;

/// Why the agent cannot run at all. Whatever can be mended while it runs is a
/// [`Problem`] instead.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The kernel gives no netlink socket.
    #[error("{0}: the agent needs CAP_NET_ADMIN and Linux 5.10 or later")]
    Netlink(#[from] tweed_netlink::Error),
    /// A file or a folder that the agent cannot do without.
    #[error("cannot {operation} {object}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The kernel thread ended by itself: an error in the program.
    #[error("the kernel thread has ended: please report what the log says before this")]
    ThreadEnded,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It was told to stop.
    Stopped,
    /// `--once`: everything is as it should be.
    Converged,
    /// `--once`: it is not, and why.
    NotConverged(Vec<Problem>),
}

/// The state after a pass.
#[derive(Debug, Clone, Default)]
struct Report {
    /// What the plugin has to know, once the kernel carries this node's traffic.
    network: Option<publish::Network>,
    /// Whether the pass knew what the source has to say.
    spoken: bool,
    /// Whether there is a list of Nodes with the own one in it.
    nodes_known: bool,
}

/// Keeps this node's network until `stop` is cancelled or, with `--once`, has
/// been brought about.
///
/// # Errors
/// [`AgentError`] when the agent cannot run at all.
pub async fn run(
    config: Arc<Config>,
    source: impl Source<Node>,
    board: Arc<StatusBoard>,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<Ending, AgentError> {
    let boot_id = std::fs::read_to_string(BOOT_ID).map_err(failed("read", BOOT_ID))?;
    let run_dir = config.run_dir.display().to_string();
    std::fs::create_dir_all(&config.run_dir).map_err(failed("make the folder", &run_dir))?;
    let mut publisher = Publisher::new(&config, boot_id.trim().to_owned());
    // A single run promises that the node converged, not that it had before.
    let was_ready = !config.once && publisher.was_ready();
    let inbox = Inbox::new(&config.overlay.node_name, was_ready)
        .map_err(failed("open", "an event file descriptor"))?;
    let inbox = Arc::new(inbox);
    let passes = Passes::open(&config, &inbox, &board, metrics.clone(), stop.clone())?;

    let (reports, mut report) = watch::channel(Report::default());
    let thread = thread::start(passes, Arc::clone(&inbox), reports)
        .map_err(failed("start", "the kernel thread"))?;
    let (events, heard) = mpsc::channel(EVENTS);
    let source_stop = stop.child_token();
    let sources = tokio::spawn(source.run(events, source_stop.clone()));
    let listening = tokio::spawn(listen(heard, Arc::clone(&inbox), metrics.clone()));

    let ending = loop {
        tokio::select! {
            () = stop.cancelled() => break Ok(Ending::Stopped),
            changed = report.changed() => if changed.is_err() {
                break Err(AgentError::ThreadEnded);
            },
        }
        let now = report.borrow_and_update().clone();
        publisher
            .publish(now.network.as_ref(), now.nodes_known, &board, &metrics)
            .await;
        if config.once && now.spoken {
            let status = board.status(std::time::Instant::now());
            break Ok(match status.ready() {
                true => Ending::Converged,
                false => Ending::NotConverged(status.problems),
            });
        }
    };
    source_stop.cancel();
    inbox.stop();
    // The thread ends after the pass that it is in; the board, and so the last
    // words of the log, are its until then.
    let ended = tokio::task::spawn_blocking(move || thread.join()).await;
    listening.abort();
    sources.abort();
    match ended {
        Ok(Ok(())) => ending,
        _ => Err(AgentError::ThreadEnded),
    }
}

/// Takes in what the source says.
async fn listen(mut events: mpsc::Receiver<Event<Node>>, inbox: Arc<Inbox>, metrics: Metrics) {
    let mut lost = false;
    while let Some(event) = events.recv().await {
        match &event {
            Event::Lost(_) if !lost => {
                lost = true;
                metrics.watch_restarted();
            }
            Event::Restored => lost = false,
            _ => {}
        }
        inbox.tell(event);
    }
}

fn failed(operation: &'static str, object: &str) -> impl FnOnce(io::Error) -> AgentError {
    let object = object.to_owned();
    move |source| AgentError::Io {
        operation,
        object,
        source,
    }
}
