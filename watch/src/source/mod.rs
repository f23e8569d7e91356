//! Where Nodes come from.
//!
//! A source is a task that sends [`Event<Node>`]s; it knows nothing of what they
//! are used for. The events are narrow enough for a file that is read whole,
//! and wide enough for a list that comes in pages and is decoded from raw
//! bytes: a source sends each Node as soon as it has it, and never has to hold
//! the list. What a Node says is passed on as it stands; the planner
//! decides what of it is believed.

use std::future::Future;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use tweed_core::object::Event;
use tweed_core::object::node::Node;

pub mod file;
pub mod kubernetes;
mod manifest;

/// A stream of Nodes that mends itself: [`NodeSource::run`] goes on through
/// every error, with back-off, and ends only when it is told to.
pub trait NodeSource: Send + 'static {
    /// Sends events until `stop` is cancelled or the receiver is gone.
    fn run(
        self,
        events: mpsc::Sender<Event<Node>>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send;
}
