//! An answer of an API server without the server: the watcher's own reading of a page
//! and of a watch, over bytes.

use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tweed_core::object::{Event, ObjectKey};
use tweed_watch::Kind;
use tweed_watch::reading::{
    AttemptError, MAX_JSON_PAGE, Response, WatchEvent, next_event, read_page,
};

/// The body of an answer of status 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether it is protobuf; otherwise it is JSON.
    pub protobuf: bool,
    /// The bytes, in the pieces in which they arrive.
    pub pieces: Vec<Bytes>,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<K> {
    /// Its objects, without those that cannot be decoded.
    pub objects: Vec<K>,
    /// The version of the list; empty if the page does not name it.
    pub version: String,
    /// The token of the next page; empty on the last.
    pub continue_token: String,
}

/// A change in a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<K> {
    /// The object was added or changed.
    Apply(K),
    /// The object of this key was deleted.
    Delete(ObjectKey),
}

/// What is read from a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched<K> {
    /// The changes, without those of objects that cannot be decoded.
    pub changes: Vec<Change<K>>,
    /// The version to resume from, if an event named one.
    pub version: Option<String>,
    /// Why it cannot be read on; none if the server has ended it.
    pub failure: Option<String>,
}

impl Answer {
    /// Reads a page of a list.
    ///
    /// # Errors
    /// Why it is none, as text.
    pub async fn page<K: Kind>(self) -> Result<Page<K>, String> {
        let response = Response::of_pieces(self.protobuf, self.pieces);
        let (events, mut received) = mpsc::channel(1);
        let read = async move {
            let same = async |token: String| Ok(token);
            read_page(&events, response, MAX_JSON_PAGE, same).await
        };
        let collect = async {
            let mut objects = Vec::new();
            while let Some(event) = received.recv().await {
                if let Event::InitApply(object) = event {
                    objects.push(object);
                }
            }
            objects
        };
        let (read, objects) = tokio::join!(read, collect);
        match read {
            Ok((version, continue_token)) => Ok(Page {
                objects,
                version,
                continue_token,
            }),
            Err(AttemptError::Failed(failure)) => Err(failure.to_string()),
            Err(AttemptError::Closed) => Err("nobody reads the objects".to_owned()),
        }
    }

    /// Reads a watch to its end.
    pub async fn watch<K: Kind>(self) -> Watched<K> {
        let mut response = Response::of_pieces(self.protobuf, self.pieces);
        let mut watched = Watched {
            changes: Vec::new(),
            version: None,
            failure: None,
        };
        loop {
            let (change, version) = match next_event(&mut response).await {
                Ok(None) => return watched,
                Ok(Some(WatchEvent::Apply(object, version))) => {
                    (Some(Change::Apply(object)), version)
                }
                Ok(Some(WatchEvent::Delete(key, version))) => (Some(Change::Delete(key)), version),
                Ok(Some(WatchEvent::Bookmark(version) | WatchEvent::Invalid(_, version))) => {
                    (None, version)
                }
                Ok(Some(WatchEvent::Error(status))) => {
                    watched.failure = Some(status.message);
                    return watched;
                }
                Err(failure) => {
                    watched.failure = Some(failure.to_string());
                    return watched;
                }
            };
            watched.changes.extend(change);
            watched.version = version.or(watched.version);
        }
    }
}
