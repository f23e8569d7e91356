//! Where Nodes come from.
//!
//! A source is a task that sends [`NodeEvent`]s; it knows nothing of what they
//! are used for. The events are narrow enough for a file that is read whole,
//! and wide enough for a list that comes in pages and is decoded from raw
//! bytes: a source sends each Node as soon as it has it, and never has to hold
//! the list. What a Node says is passed on as it stands; [`crate::cluster`]
//! decides what of it is believed.

use std::future::Future;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cluster::node::Node;

pub mod file;
pub mod kubernetes;
mod manifest;

/// What a source has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEvent {
    /// A complete list begins. What was listed since the last one that did not
    /// end is void.
    ListStarted,
    /// A Node of the list.
    Listed(Node),
    /// The list is complete: a Node known before and not listed is gone.
    ListEnded,
    /// A Node was added or changed.
    Changed(Node),
    /// The Node of this name is gone.
    Deleted(String),
    /// The source cannot be read, and why; the last good state holds.
    Lost(String),
    /// The source can be read again.
    Restored,
}

/// A stream of Nodes that mends itself: [`NodeSource::run`] goes on through
/// every error, with back-off, and ends only when it is told to.
pub trait NodeSource: Send + 'static {
    /// Sends events until `stop` is cancelled or the receiver is gone.
    fn run(
        self,
        events: mpsc::Sender<NodeEvent>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send;
}
