//! Objects from a file of manifests (`--nodes FILE`), for clusters without
//! Kubernetes.
//!
//! The file is checked twice a second: that costs two system calls a second,
//! works on every file system, and notices a file that is replaced by a rename,
//! which a watch on the file itself does not. A changed file is read when it has
//! not changed again until the next check, so that a file that is being written
//! in place is not read half. A file that is missing, incomplete or invalid is
//! reported, and the objects of the last good one stay valid.

pub mod manifests;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::{sync::mpsc, sync::mpsc::error::SendError};

use tweed_core::limits;
use tweed_core::object::{Event, node::Node};
use tweed_core::regular_file::{self, ReadError};

use crate::{LastContact, Source, kind::Kind};
use manifests::{Broken, has_node, parse};

/// Time between two checks of the file.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The source of the objects of one kind in a file of manifests, in YAML or
/// JSON: objects, and Lists of them, in one document or several. Other kinds are
/// skipped with a warning.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    own_node: String,
    last_contact: LastContact,
}

impl FileSource {
    /// The file at `path`, which need not exist yet. One without the Node `own_node` says
    /// nothing about objects of other kinds: it is empty, not whole, or of another cluster.
    /// Who keeps the Nodes decides that for these.
    pub fn new(path: impl Into<PathBuf>, own_node: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            own_node: own_node.into(),
            last_contact: LastContact::default(),
        }
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: ReadError },
    #[error("{path} is broken: {why}")]
    Broken { path: PathBuf, why: Broken },
}

/// The metadata of the file that changes with its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: SystemTime,
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> std::io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: meta.modified()?,
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }

    /// Whether the last write was at least one interval before `now`.
    fn is_old(&self, now: SystemTime) -> bool {
        let age = now.duration_since(self.modified);
        age.is_ok_and(|age| age >= CHECK_INTERVAL)
    }
}

/// The result of a check.
enum Check<K> {
    /// The file has not changed since it was read.
    Same,
    /// It has changed, and may still be changing: it was not read.
    Busy(Stamp),
    /// It was read.
    Read(Stamp, Result<Vec<K>, Broken>),
}

/// The stamps of earlier checks: when the file was read, and when it was busy.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    read: Option<Stamp>,
    busy: Option<Stamp>,
}

impl<K: Kind> Source<K> for FileSource {
    fn last_contact(&self) -> LastContact {
        self.last_contact.clone()
    }

    async fn run(self, events: mpsc::Sender<Event<K>>) {
        // It ends when the receiver is closed, which is no error.
        let _ = self.follow(&events).await;
    }
}

impl FileSource {
    /// Runs until the receiver of the events is closed.
    async fn follow<K: Kind>(
        self,
        events: &mpsc::Sender<Event<K>>,
    ) -> Result<(), SendError<Event<K>>> {
        let mut known = Known::default();
        let mut lost: Option<String> = None;
        loop {
            let (path, own_node) = (self.path.clone(), self.own_node.clone());
            // A file system can hang, and must not stop other tasks.
            let checked = tokio::task::spawn_blocking(move || check(&path, &own_node, known)).await;
            if matches!(checked, Ok(Ok(_))) {
                self.last_contact.now();
            }
            let error = match checked {
                Ok(Ok(Check::Same)) => None,
                Ok(Ok(Check::Busy(stamp))) => {
                    known.busy = Some(stamp);
                    None
                }
                Ok(Ok(Check::Read(stamp, Ok(objects)))) => {
                    known.read = Some(stamp);
                    send_list(events, objects).await?;
                    if lost.take().is_some() {
                        events.send(Event::Restored).await?;
                    }
                    None
                }
                Ok(Ok(Check::Read(stamp, Err(why)))) => {
                    known.read = Some(stamp);
                    let path = self.path.clone();
                    Some(FileError::Broken { path, why }.to_string())
                }
                Ok(Err(error)) => {
                    known = Known::default();
                    Some(error.to_string())
                }
                Err(panicked) => Some(panicked.to_string()),
            };
            if let Some(error) = error.filter(|error| lost.as_ref() != Some(error)) {
                lost = Some(error.clone());
                events.send(Event::Lost(error.into())).await?;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }
}

async fn send_list<K>(
    events: &mpsc::Sender<Event<K>>,
    objects: Vec<K>,
) -> Result<(), SendError<Event<K>>> {
    events.send(Event::Init).await?;
    for object in objects {
        events.send(Event::InitApply(object)).await?;
    }
    events.send(Event::InitDone).await
}

fn check<K: Kind>(path: &Path, own_node: &str, known: Known) -> Result<Check<K>, FileError> {
    let failed = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let stamp_of = |file| Stamp::of(file).map_err(|error| failed(error.into()));
    let file = regular_file::open(path).map_err(failed)?;
    let stamp = stamp_of(&file)?;
    if known.read == Some(stamp) {
        return Ok(Check::Same);
    }
    if known.busy != Some(stamp) && !stamp.is_old(SystemTime::now()) {
        return Ok(Check::Busy(stamp));
    }
    let bytes = regular_file::rest(&file, limits::NODES).map_err(failed)?;
    if stamp_of(&file)? != stamp {
        return Ok(Check::Busy(stamp));
    }
    Ok(Check::Read(stamp, parse_whole(&bytes, own_node)))
}

/// All objects of a kind. Those of other kinds than Node count only beside the own Node.
fn parse_whole<K: Kind>(bytes: &[u8], own_node: &str) -> Result<Vec<K>, Broken> {
    if K::NAME == Node::NAME || has_node(bytes, own_node)? {
        parse(bytes)
    } else {
        Err(Broken::NoOwnNode(own_node.to_owned()))
    }
}

#[cfg(test)]
mod tests;
