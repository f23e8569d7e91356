//! An answer of an API server without the server: the watcher's own reading of a page
//! and of a watch, over bytes. Tests use it.

use std::time::Duration;

use futures::stream;
use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tweed_core::object::{Event, ObjectKey};

use crate::client::{Response, body::Body};
use crate::event::WatchEvent;
use crate::kind::Kind;
use crate::list::{MAX_JSON_PAGE, read_json_page, read_page};
use crate::watcher::{AttemptError, next_event};

/// Never reached: all pieces are there.
const MAX_SILENCE: Duration = Duration::from_secs(60);

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
        let Response {
            url,
            protobuf,
            mut body,
        } = self.response();
        let (events, mut received) = mpsc::channel(1);
        let read = async move {
            let same = async |token: String| Ok(token);
            match protobuf {
                true => read_page(&events, &url, &mut body, same).await,
                false => read_json_page(&events, &url, &mut body, MAX_JSON_PAGE, same).await,
            }
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
        let mut response = self.response();
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

    fn response(self) -> Response {
        let pieces = self.pieces.into_iter().map(Ok);
        Response {
            url: "the answer".to_owned(),
            protobuf: self.protobuf,
            body: Body::new(stream::iter(pieces), MAX_SILENCE),
        }
    }
}
