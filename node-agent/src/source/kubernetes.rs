//! Nodes from an API server: listed in pages, then watched.
//!
//! What always holds:
//! - only the few fields of [`super::manifest`] are decoded, object by object
//!   out of the page or line that is at hand: neither a whole list nor a whole
//!   Node is ever held, and an object that is no Node costs no other;
//! - a watch goes on from the last version seen, bookmarks included, so a
//!   connection that breaks costs a reconnect and no list;
//! - a version that is too old (410, as HTTP status or as an event) or a stream
//!   that makes no sense costs a new list, which mends everything;
//! - attempts that get nowhere are put off longer and longer, up to half a
//!   minute, by a random part: a cluster's nodes do not come back all at once.
//!
//! Why not the `watcher` of kube's runtime: in 5.0 it repeats a watch that is
//! answered by HTTP 410 with the same version for ever, reconnects without a
//! pause to a server that ends each watch at once, fails a whole page for one
//! object, and does not tell that a quiet watch is back.

mod wire;

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::{AsyncBufReadExt, StreamExt};
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::{Access, Failure, Server};
use crate::source::{NodeEvent, NodeSource};
use wire::{Line, Page};

/// Nodes in one page of a list.
const PAGE: u32 = 500;
/// How long an answer may take: a page, or the head of a watch.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a watch is asked to last, in seconds. The server ends it then, and
/// sends bookmarks in between; one that says nothing for longer is dead.
const WATCH: u32 = 290;
const SILENCE: Duration = Duration::from_secs(WATCH as u64 + 5);
/// A watch that lasted this long was none that the server refuses.
const STEADY: Duration = Duration::from_secs(10);

/// Between attempts that get nowhere: each doubles, plus up to as much again at
/// random.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The Nodes of an API server.
#[derive(Debug)]
pub struct KubernetesSource {
    access: Access,
    pauses: ExponentialBuilder,
}

impl KubernetesSource {
    /// The API server that `access` leads to. Nothing is read yet: a kubeconfig
    /// that is not there yet is waited for.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self {
            access,
            pauses: ExponentialBuilder::default()
                .with_min_delay(FIRST_PAUSE)
                .with_max_delay(LONGEST_PAUSE)
                .with_jitter()
                .without_max_times(),
        }
    }
}

impl NodeSource for KubernetesSource {
    async fn run(self, events: mpsc::Sender<NodeEvent>, stop: CancellationToken) {
        let mut session = Session {
            access: self.access,
            events,
            nodes: Request::new("/api/v1/nodes"),
            server: None,
            version: None,
            paged: true,
            progress: false,
            lost: None,
        };
        tokio::select! {
            () = stop.cancelled() => {}
            _ = session.follow(self.pauses) => {}
        }
    }
}

struct Session {
    access: Access,
    events: mpsc::Sender<NodeEvent>,
    nodes: Request,
    /// Made when it is needed, and made anew when the credentials do not hold.
    server: Option<Server>,
    /// The version to watch from; none calls for a list.
    version: Option<String>,
    /// Whether lists are asked for in pages.
    paged: bool,
    /// Whether the attempt at hand got anywhere: then the next is not put off.
    progress: bool,
    /// What was last reported as lost.
    lost: Option<String>,
}

/// Why an attempt ended.
enum End {
    /// Nobody listens any more.
    Unheard,
    Failed(Failure),
}

impl From<mpsc::error::SendError<NodeEvent>> for End {
    fn from(_: mpsc::error::SendError<NodeEvent>) -> Self {
        Self::Unheard
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Session {
    /// Goes on until nobody listens.
    async fn follow(&mut self, pauses: ExponentialBuilder) -> Result<(), End> {
        let mut pause: ExponentialBackoff = pauses.build();
        loop {
            self.progress = false;
            let attempt = match self.version.clone() {
                None => match self.list().await {
                    // A list alone is no progress: a server whose every watch
                    // calls for a new list must not get them without a pause.
                    Ok(()) => continue,
                    failed => failed,
                },
                Some(version) => self.watch(version).await,
            };
            match attempt {
                Ok(()) => {}
                Err(End::Unheard) => return Err(End::Unheard),
                Err(End::Failed(failure)) => self.take(failure).await?,
            }
            if self.progress {
                pause = pauses.build();
            }
            // Endless by `without_max_times`; were it not, the longest stays.
            tokio::time::sleep(pause.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }

    /// Draws the consequences of a failure.
    async fn take(&mut self, failure: Failure) -> Result<(), End> {
        match &failure {
            Failure::Expired => {
                tracing::debug!("what was asked for is no longer kept, Nodes are listed again");
                self.version = None;
                return Ok(());
            }
            // API servers restart, and load balancers cut long connections: it
            // is a trouble only if the next attempt fails too.
            Failure::Broken { .. } if self.progress => {
                tracing::debug!(%failure, "the watch is resumed");
                return Ok(());
            }
            Failure::Garbage { .. } => self.version = None,
            // Credentials and addresses change under a name.
            Failure::Unauthorized { .. } | Failure::Unreachable { .. } => self.server = None,
            _ => {}
        }
        let reason = failure.to_string();
        if self.lost.as_ref() != Some(&reason) {
            self.lost = Some(reason.clone());
            self.events.send(NodeEvent::Lost(reason)).await?;
        }
        Ok(())
    }

    async fn restored(&mut self) -> Result<(), End> {
        if self.lost.take().is_some() {
            self.events.send(NodeEvent::Restored).await?;
        }
        Ok(())
    }

    async fn list(&mut self) -> Result<(), End> {
        let Server { client, url } = self.server().await?;
        let mut token: Option<String> = None;
        loop {
            let params = ListParams {
                limit: self.paged.then_some(PAGE),
                continue_token: token.clone(),
                ..ListParams::default()
            };
            let request = (self.nodes.list(&params)).map_err(|e| Failure::request(&e))?;
            let answer = tokio::time::timeout(ANSWER, client.request_text(request)).await;
            let text = match answer {
                Err(_) => return Err(Failure::silent(&url, ANSWER).into()),
                Ok(Err(error)) => {
                    let failure = match Failure::answer(&url, &error) {
                        // The server gave the pages' snapshot up under way. A
                        // list in one piece needs none.
                        Failure::Expired if self.paged => {
                            self.paged = false;
                            Failure::Expired
                        }
                        Failure::Expired => Failure::expired_list(&url),
                        other => other,
                    };
                    return Err(failure.into());
                }
                Ok(Ok(text)) => text,
            };
            let page: Page<'_> =
                serde_json::from_str(&text).map_err(|e| Failure::garbage(&url, &e))?;
            if token.is_none() {
                self.events.send(NodeEvent::ListStarted).await?;
            }
            for object in page.items.into_iter().flatten() {
                match wire::node(object) {
                    Ok(node) => self.events.send(NodeEvent::Listed(node)).await?,
                    Err(why) => tracing::warn!("passed over an object in the list of Nodes: {why}"),
                }
            }
            token = page.metadata.go_on.filter(|token| !token.is_empty());
            if token.is_some() {
                continue;
            }
            let version = page.metadata.resource_version.filter(|v| !v.is_empty());
            self.version = Some(version.ok_or_else(|| Failure::unversioned(&url))?);
            self.paged = true;
            self.events.send(NodeEvent::ListEnded).await?;
            return self.restored().await;
        }
    }

    /// Watches from `version` on until the server ends it.
    async fn watch(&mut self, version: String) -> Result<(), End> {
        let Server { client, url } = self.server().await?;
        let params = WatchParams::default().timeout(WATCH);
        let request = (self.nodes.watch(&params, &version)).map_err(|e| Failure::request(&e))?;
        let answer = tokio::time::timeout(ANSWER, client.request_stream(request)).await;
        let stream = answer
            .map_err(|_| Failure::silent(&url, ANSWER))?
            .map_err(|error| Failure::answer(&url, &error))?;
        self.restored().await?;

        let since = Instant::now();
        let mut lines = std::pin::pin!(stream.lines());
        loop {
            let line = tokio::time::timeout(SILENCE, lines.next()).await;
            self.progress |= since.elapsed() >= STEADY;
            let line = match line {
                Err(_) => return Err(Failure::broken(&url, "it went silent").into()),
                Ok(None) => return Ok(()),
                Ok(Some(Err(error))) => {
                    return Err(Failure::broken(&url, &error.to_string()).into());
                }
                Ok(Some(Ok(line))) => line,
            };
            if line.is_empty() {
                continue;
            }
            let (event, version) = match wire::line(&line) {
                Ok(Line::Error(status)) => {
                    return Err(Failure::coded(&url, status.code, &status.message).into());
                }
                Ok(Line::Changed(node, version)) => (Some(NodeEvent::Changed(node)), version),
                Ok(Line::Deleted(name, version)) => (Some(NodeEvent::Deleted(name)), version),
                Ok(Line::Bookmark(version)) => (None, version),
                Ok(Line::NotNode(why, version)) => {
                    tracing::warn!("passed over an object in the watch of Nodes: {why}");
                    (None, version)
                }
                // The last line of a connection that was cut off.
                Err(error) if error.is_eof() => {
                    return Err(Failure::broken(&url, "it ended within a line").into());
                }
                Err(error) => return Err(Failure::garbage(&url, &error).into()),
            };
            self.progress = true;
            if let Some(event) = event {
                self.events.send(event).await?;
            }
            // After the event was taken: none is skipped by a resumed watch.
            if version.is_some() {
                self.version = version;
            }
        }
    }

    async fn server(&mut self) -> Result<Server, Failure> {
        if let Some(server) = &self.server {
            return Ok(server.clone());
        }
        let server = self.access.connect().await?;
        Ok(self.server.insert(server).clone())
    }
}

#[cfg(test)]
mod tests;
