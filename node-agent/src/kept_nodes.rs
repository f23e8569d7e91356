//! The last good snapshot of the Nodes, kept in a file of the run folder, so that
//! an agent that is restarted while its source is away still knows what the
//! kernel should hold.
//!
//! The file is one JSON value a line: a header, then lines. It is written
//! whole when a list has ended. After that each Node that changes is appended as
//! one line, so that a change among thousands of Nodes writes that Node and no
//! other; when the appended lines outweigh the rest, the file is written whole
//! again.
//!
//! The kernel thread is told of a change first, so that no route waits for a file,
//! and the file is written right after that. So a plan from the file is the plan that
//! was in force, unless the agent was killed at that very moment: then the file lacks
//! the last change.
//!
//! A file of another boot, of another node, of another source, of another
//! [`format::FORMAT`] or with a line that cannot be read is not used. Keys of a Node
//! that are not known are ignored. [`format`] is what is in it.

pub mod format;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{fs, sync::Arc};

use tweed_core::object::{Event, Object as _, ObjectKey, node::Node};
use tweed_core::{atomic_file, paths::NODES_KEPT};
use tweed_core::{limits, regular_file};

use crate::{config::Config, state::State};
use format::{FORMAT, Header, Line, Unusable, parse, push, write};

/// Bytes that may be appended however small the file was when it was written
/// whole.
const MIN_APPENDED: u64 = 64 << 10;
/// Nodes that are written at once. The kernel thread waits for no more than a copy of these.
const BATCH: usize = 100;

/// The file, for the agent that writes it.
#[derive(Debug)]
pub struct KeptNodes {
    path: PathBuf,
    config: Arc<Config>,
    boot_id: String,
    /// Size of the file when it was last written whole; none if it has to be
    /// written whole before anything can be appended.
    whole: Option<u64>,
    /// Bytes that were appended since.
    appended: u64,
    /// Whether the last write failed: this is logged once.
    failed: bool,
}

impl KeptNodes {
    /// The file in the run folder of `config`, which is not read yet. `boot_id` is
    /// that of this boot.
    pub fn new(config: &Arc<Config>, boot_id: &str) -> Self {
        Self {
            path: config.run_dir.join(NODES_KEPT),
            config: Arc::clone(config),
            boot_id: boot_id.to_owned(),
            whole: None,
            appended: 0,
            failed: false,
        }
    }

    /// The Nodes that an earlier run of this boot knew last from the same source;
    /// none if they are not known.
    pub async fn load(&self) -> Vec<Node> {
        let path = self.path.display();
        let header = self.header().await.map_err(Unusable::NoSource);
        match header.and_then(|header| read(&self.path, &header)) {
            Ok(nodes) => {
                let count = nodes.len();
                tracing::info!(%path, count, "using the saved Nodes of before the restart until the Nodes are listed");
                return nodes;
            }
            Err(Unusable::Read(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(unused @ Unusable::OtherBoot) => {
                tracing::info!(%path, "ignoring the saved Nodes: {unused}");
            }
            Err(unused) => tracing::warn!(
                %path,
                "ignoring the saved Nodes: {unused}; until the Nodes are listed nothing is repaired"
            ),
        }
        Vec::new()
    }

    /// Applies `event` to `state`, and keeps what it changes in the snapshot. If the
    /// last write failed, the own Node's next heartbeat has it tried again: those of
    /// all Nodes would do so many times a second.
    pub async fn update(&mut self, state: &State, event: Event<Node>) {
        // The Node that has changed; none after a list.
        let node = match &event {
            Event::InitDone => None,
            Event::Apply(node) => Some(node.key()),
            Event::Delete(key) => Some(key.clone()),
            _ => {
                state.update(event);
                return;
            }
        };
        let own = &self.config.overlay.node_name;
        let retry = self.failed && matches!(&event, Event::Apply(node) if node.name == *own);
        if state.update(event) || retry {
            self.keep(state, node).await;
        }
    }

    /// Keeps what has changed of `node`, or of all of them.
    async fn keep(&mut self, state: &State, node: Option<ObjectKey>) {
        // While an older snapshot is held, so is the file.
        if !state.read().nodes.is_current() {
            self.whole = None;
            return;
        }
        let has_room = |whole| self.appended <= MIN_APPENDED.max(whole);
        let written = match node.filter(|_| self.whole.is_some_and(has_room)) {
            Some(node) => self.append(state, &node),
            None => self.replace(state).await,
        };
        let Err(error) = written else {
            self.failed = false;
            return;
        };
        self.whole = None;
        let logged = std::mem::replace(&mut self.failed, true);
        let path = self.path.display();
        // What is no longer true must not be used.
        match remove(&self.path) {
            _ if logged => {}
            Ok(()) => tracing::warn!(
                %path,
                "the Nodes cannot be saved there: {error}; an agent that is restarted while the Nodes cannot be read will repair nothing"
            ),
            Err(left) => tracing::error!(
                %path,
                "the Nodes cannot be saved there: {error}, and the file of before cannot be removed: {left}; an agent that is restarted while the Nodes cannot be read will undo what has changed since: make the folder writable, or remove the file"
            ),
        }
    }

    fn append(&mut self, state: &State, node: &ObjectKey) -> io::Result<()> {
        let line = match state.read().nodes.get(node) {
            Some(node) => Line::Node(node.clone()),
            None => Line::Deleted(node.name.clone()),
        };
        let mut text = Vec::new();
        push(&mut text, &line)?;
        // By its name each time: a file that somebody removed is not written to.
        let file = regular_file::options().append(true).open(&self.path)?;
        let mut file = regular_file::checked(file)?;
        file.write_all(&text)?;
        self.appended += text.len() as u64;
        Ok(())
    }

    /// Nobody else changes the Nodes meanwhile.
    async fn replace(&mut self, state: &State) -> io::Result<()> {
        let header = self.header().await.map_err(io::Error::other)?;
        let batch = |count| {
            let stores = state.read();
            let nodes = stores.nodes.nodes().skip(count).take(BATCH);
            nodes.cloned().collect()
        };
        let size = atomic_file::replace_by(&self.path, atomic_file::PRIVATE, |file| {
            write(file, &header, batch)
        })?;
        self.whole = Some(size);
        self.appended = 0;
        Ok(())
    }

    /// What the Nodes belong to now. The source is asked each time: a kubeconfig
    /// may have come to name another server.
    async fn header(&self) -> Result<Header, String> {
        let source = self.config.source.identity().await?;
        Ok(Header {
            format: FORMAT,
            boot_id: self.boot_id.clone(),
            node: self.config.overlay.node_name.clone(),
            source: source.name,
            authorities: source.authorities,
        })
    }
}

/// Removes the file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Reads the Nodes from the file at `path`, which must be `expected`'s.
fn read(path: &Path, expected: &Header) -> Result<Vec<Node>, Unusable> {
    let text = regular_file::read(path, limits::NODES).map_err(io::Error::from)?;
    parse(&text, expected)
}

#[cfg(test)]
mod tests;
