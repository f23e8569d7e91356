//! `--nodes FILE`: Nodes out of a file of manifests, for clusters without
//! Kubernetes.
//!
//! The file is looked at twice a second: that costs two system calls a second,
//! works on every file system, and sees a file that is renamed over, which a
//! watch on the file itself does not. It is read when it has changed and then
//! has been quiet for one look, so that a file which is being written in place
//! is not taken for a whole one. A file that is missing, half written or wrong
//! is reported, and the last good one stays in force.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::OFlag;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::source::NodeSource;
use crate::source::manifest::{Manifest, Metadata, NotNode, Spec, Status};
use tweed_core::object::Event;
use tweed_core::object::node::Node;
use tweed_core::text::one_line;
use tweed_core::text::printable;

/// Between two looks at the file.
const LOOK: Duration = Duration::from_millis(500);

/// The largest file that is read: 5,000 Nodes as `kubectl get nodes -o yaml`
/// prints them, 10 KiB each, fit.
const LARGEST: u64 = 64 << 20;

/// A file of Node manifests, in YAML or JSON: Nodes, and Lists of them, in one
/// document or several. Other kinds are passed over with a warning.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
}

impl FileSource {
    /// The file at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

/// Why a file gives no Nodes.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{0} is not a file")]
    NotFile(PathBuf),
    #[error("{path} has more than {} MiB", LARGEST >> 20)]
    TooLarge { path: PathBuf },
    #[error("{path} is broken: {why}")]
    Broken { path: PathBuf, why: Broken },
}

/// What is wrong inside a file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Broken {
    #[error("it is not UTF-8")]
    NotText,
    #[error("{0}")]
    Syntax(String),
    #[error("object {0} has no kind")]
    NoKind(usize),
    #[error("object {0} {1}")]
    NotNode(usize, NotNode),
    #[error("there are two Nodes of the name {0}")]
    Twice(String),
}

/// What tells one state of the file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> std::io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }

    /// Whether nothing was written for the time of a look before `now`.
    fn is_old(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.modified;
        let (Ok(seconds), Ok(nanoseconds)) = (seconds.try_into(), nanoseconds.try_into()) else {
            return false;
        };
        let modified = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        now.duration_since(modified).is_ok_and(|age| age >= LOOK)
    }
}

/// What a look at the file gave.
enum Look {
    /// It is as it was when it was last read.
    Same,
    /// It is not: to be looked at again before it is read.
    Busy(Stamp),
    /// It was read.
    Read(Stamp, Result<Vec<Node>, Broken>),
}

/// The file as it was known.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    read: Option<Stamp>,
    seen: Option<Stamp>,
}

impl NodeSource for FileSource {
    async fn run(self, events: mpsc::Sender<Event<Node>>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = self.follow(&events) => {}
        }
    }
}

impl FileSource {
    /// Goes on until the receiver is gone.
    async fn follow(
        self,
        events: &mpsc::Sender<Event<Node>>,
    ) -> Result<(), mpsc::error::SendError<Event<Node>>> {
        let mut known = Known::default();
        let mut lost: Option<String> = None;
        loop {
            let path = self.path.clone();
            // A file system can hang; the agent's other tasks must not.
            let looked = tokio::task::spawn_blocking(move || look(&path, known)).await;
            let error = match looked {
                Ok(Ok(Look::Same)) => None,
                Ok(Ok(Look::Busy(stamp))) => {
                    known.seen = Some(stamp);
                    None
                }
                Ok(Ok(Look::Read(stamp, Ok(nodes)))) => {
                    known.read = Some(stamp);
                    send_list(events, nodes).await?;
                    if lost.take().is_some() {
                        events.send(Event::Restored).await?;
                    }
                    None
                }
                Ok(Ok(Look::Read(stamp, Err(why)))) => {
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
                events.send(Event::Lost(error)).await?;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn send_list(
    events: &mpsc::Sender<Event<Node>>,
    nodes: Vec<Node>,
) -> Result<(), mpsc::error::SendError<Event<Node>>> {
    events.send(Event::Init).await?;
    for node in nodes {
        events.send(Event::InitApply(node)).await?;
    }
    events.send(Event::InitDone).await
}

fn look(path: &Path, known: Known) -> Result<Look, FileError> {
    let read = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    // Not blocking: a pipe in the file's place is refused, not waited for.
    let mut file = (File::options().read(true))
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)
        .map_err(read)?;
    if !file.metadata().map_err(read)?.is_file() {
        return Err(FileError::NotFile(path.to_owned()));
    }
    let stamp = Stamp::of(&file).map_err(read)?;
    if known.read == Some(stamp) {
        return Ok(Look::Same);
    }
    if known.seen != Some(stamp) && !stamp.is_old(SystemTime::now()) {
        return Ok(Look::Busy(stamp));
    }
    let mut bytes = Vec::new();
    (&mut file)
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    if bytes.len() as u64 > LARGEST {
        return Err(FileError::TooLarge {
            path: path.to_owned(),
        });
    }
    if Stamp::of(&file).map_err(read)? != stamp {
        return Ok(Look::Busy(stamp));
    }
    Ok(Look::Read(stamp, parse(&bytes)))
}

/// A document of the file, or an item of a List.
#[derive(Debug, Deserialize)]
struct Object {
    kind: Option<String>,
    items: Option<Vec<Object>>,
    metadata: Option<Metadata>,
    spec: Option<Spec>,
    status: Option<Status>,
}

fn parse(bytes: &[u8]) -> Result<Vec<Node>, Broken> {
    let text = std::str::from_utf8(bytes).map_err(|_| Broken::NotText)?;
    let mut found = Found::default();
    for object in documents(text)?.into_iter().flatten() {
        found.take(object)?;
    }
    if !found.passed_over.is_empty() {
        let kinds: Vec<String> = found.passed_over.into_iter().collect();
        tracing::warn!(kinds = kinds.join(", "), "passed over what is no Node");
    }
    Ok(found.nodes)
}

fn documents(text: &str) -> Result<Vec<Option<Object>>, Broken> {
    // JSON by its own parser, which is the faster; YAML's reads JSON too, so
    // what looks like JSON and is not is no loss.
    if text.trim_start().starts_with('{') {
        let parsed: Result<Vec<_>, _> = serde_json::Deserializer::from_str(text)
            .into_iter()
            .collect();
        if let Ok(objects) = parsed {
            return Ok(objects);
        }
    }
    // Room for LARGEST bytes of honest manifests. Anchors and aliases, which
    // few manifests have, get little; the rest (depth, merge keys) is bounded
    // by default.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 16 << 20,
            max_nodes: 16 << 20,
            max_documents: 1 << 20,
            max_recorded_anchor_events: 50_000,
            max_recorded_anchor_bytes: 4 << 20,
        },
        with_snippet: false,
    };
    // What the parser says can quote the file.
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| Broken::Syntax(one_line(&error.to_string())))
}

#[derive(Default)]
struct Found {
    /// Objects met so far.
    objects: usize,
    names: BTreeSet<String>,
    nodes: Vec<Node>,
    /// Kinds that are no Node.
    passed_over: BTreeSet<String>,
}

impl Found {
    fn take(&mut self, object: Object) -> Result<(), Broken> {
        self.objects += 1;
        let number = self.objects;
        let kind = object.kind.ok_or(Broken::NoKind(number))?;
        match kind.as_str() {
            "List" | "NodeList" => {
                for mut item in object.items.unwrap_or_default() {
                    // The items of a NodeList need not say what they are.
                    if item.kind.is_none() && kind == "NodeList" {
                        item.kind = Some("Node".to_owned());
                    }
                    self.take(item)?;
                }
            }
            "Node" => {
                let manifest = Manifest {
                    metadata: object.metadata,
                    spec: object.spec,
                    status: object.status,
                };
                let node = (manifest.node()).map_err(|why| Broken::NotNode(number, why))?;
                if !self.names.insert(node.name.clone()) {
                    return Err(Broken::Twice(node.name));
                }
                self.nodes.push(node);
            }
            other => {
                self.passed_over.insert(printable(other));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
