//! Watches objects of any [`Kind`], at an API server or in a file.
//!
//! A [`Source`] is a task that sends [`Event`]s: [`Watcher`] lists and watches
//! a collection of an API server, [`FileSource`] reads a file of manifests. On
//! the way from the server an object passes [`client`] (connection, request,
//! body), `page` or the lines of a watch (where one object ends and the next
//! begins), `protobuf` or `json` (the envelope around objects), and the
//! decoding of its kind in `kinds`. At most one object is held at a time.
//!
//! This is the only crate of the agent that uses kube and HTTP as a client. To
//! watch another kind, add its object to `tweed_core::object` and its decoding
//! to `kinds`.

mod absence;
pub mod client;
mod event;
mod file;
mod json;
mod kind;
mod kinds;
mod last_contact;
mod list;
mod page;
mod protobuf;
mod scope;
mod watcher;

use std::future::Future;

use tokio::sync::mpsc;

use tweed_core::object::Event;

/// What reads an answer of an API server, for tests over bytes.
#[doc(hidden)]
pub mod reading {
    pub use crate::client::Response;
    pub use crate::event::WatchEvent;
    pub use crate::list::{MAX_JSON_PAGE, read_page};
    pub use crate::watcher::{AttemptError, next_event};
}

pub use file::{FileSource, manifests};
pub use kind::{InvalidName, Kind};
pub use last_contact::LastContact;
pub use scope::Scope;
pub use watcher::Watcher;

/// A source of objects of the kind `K` that recovers by itself.
///
/// A source passes on what an object says as it stands; the consumer decides
/// which values it accepts.
pub trait Source<K>: Send + 'static {
    /// When this source was last heard of; current while it runs.
    fn last_contact(&self) -> LastContact;

    /// Sends events until the receiver is closed. Errors are reported as [`Event::Lost`]
    /// and retried after a back-off.
    fn run(self, events: mpsc::Sender<Event<K>>) -> impl Future<Output = ()> + Send;
}

#[cfg(test)]
mod tests;
