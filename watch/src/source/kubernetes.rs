//! Nodes from an API server: listed in pages, then watched.
//!
//! What always holds:
//! - protobuf is asked for, which is half of JSON's bytes and lets a decoder
//!   pass over what it does not want; a server that answers in JSON is
//!   understood as well;
//! - of a list in pages the next one is asked for while one is read, so that
//!   the server's work and the agent's go on side by side;
//! - only the few fields of a Node that are used are decoded, object by object
//!   while the body comes in (JSON: out of the page or line that is at hand; a
//!   whole list only where the server gave the pages up): an object that is no
//!   Node costs no other;
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

mod asker;
mod incoming;
mod json;
mod page;
mod protobuf;
mod said;

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::{Access, Failure};
use crate::source::NodeSource;
use asker::{Answer, Asker};
use incoming::Incoming;
use page::{Page, Part};
use said::{Said, Status};
use tweed_core::object::Event;
use tweed_core::object::node::Node;

/// Nodes in one page of a list: 4 MB as JSON, which has to be held whole.
const PAGE: u32 = 250;
/// More than a list of JSON in one piece ever is.
const LARGEST_LIST: usize = 1 << 30;
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
    async fn run(self, events: mpsc::Sender<Event<Node>>, stop: CancellationToken) {
        let mut session = Session {
            asker: Asker::new(self.access),
            events,
            pages: Pages {
                nodes: Request::new("/api/v1/nodes"),
                given_up: false,
            },
            version: None,
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
    asker: Asker,
    events: mpsc::Sender<Event<Node>>,
    pages: Pages,
    /// The version to watch from; none calls for a list.
    version: Option<String>,
    /// Whether the attempt at hand got anywhere: then the next is not put off.
    progress: bool,
    /// What was last reported as lost.
    lost: Option<String>,
}

/// A list's version, and what to ask for the next page with.
type Metadata = (Option<String>, Option<String>);
/// A list's version, and the answer of its next page.
type Taken = (Option<String>, Option<Answer>);

/// Why an attempt ended.
enum End {
    /// Nobody listens any more.
    Unheard,
    Failed(Failure),
}

impl From<mpsc::error::SendError<Event<Node>>> for End {
    fn from(_: mpsc::error::SendError<Event<Node>>) -> Self {
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
            Failure::Unauthorized { .. } | Failure::Unreachable { .. } => self.asker.reconnect(),
            _ => {}
        }
        let reason = failure.to_string();
        if self.lost.as_ref() != Some(&reason) {
            self.lost = Some(reason.clone());
            self.events.send(Event::Lost(reason)).await?;
        }
        Ok(())
    }

    async fn restored(&mut self) -> Result<(), End> {
        if self.lost.take().is_some() {
            self.events.send(Event::Restored).await?;
        }
        Ok(())
    }

    async fn list(&mut self) -> Result<(), End> {
        let mut answer = self.pages.ask(&mut self.asker, None).await?;
        self.events.send(Event::Init).await?;
        loop {
            let protobuf = answer.protobuf;
            let (version, next) = match protobuf {
                true => self.take_page(&mut answer.body).await?,
                false => self.take_json_page(&mut answer.body).await?,
            };
            if let Some(next) = next {
                answer = next;
                continue;
            }
            self.version = Some(version.ok_or_else(|| Failure::unversioned(&self.asker.url()))?);
            self.pages.given_up = false;
            tracing::debug!(protobuf, "Nodes are listed");
            self.events.send(Event::InitDone).await?;
            return self.restored().await;
        }
    }

    /// Takes in a page of protobuf; gives the list's version, and the answer of
    /// the next page, which is asked for while the Nodes of this one come in.
    async fn take_page(&mut self, body: &mut Incoming) -> Result<Taken, End> {
        let url = self.asker.url();
        let mut page = Page::new(body);
        // It stands before the Nodes.
        let metadata = list_until_metadata(&self.events, &url, &mut page).await?;
        let (version, token) = metadata.unwrap_or_default();
        let events = &self.events;
        let rest = async {
            while list_until_metadata(events, &url, &mut page)
                .await?
                .is_some()
            {}
            Ok(())
        };
        let next = self.pages.next(&mut self.asker, token);
        let ((), next) = tokio::try_join!(rest, next)?;
        Ok((version, next))
    }

    /// The same for a page of JSON.
    async fn take_json_page(&mut self, body: &mut Incoming) -> Result<Taken, End> {
        let text = body.rest(LARGEST_LIST).await;
        let text = text.map_err(|cut| self.asker.unlisted(cut))?;
        let page: json::Page<'_> =
            serde_json::from_slice(text).map_err(|e| Failure::garbage(&self.asker.url(), &e))?;
        let given = |text: &String| !text.is_empty();
        let token = page.metadata.go_on.filter(given);
        let events = &self.events;
        let list = async {
            for object in page.items.into_iter().flatten() {
                list_one(events, json::node(object)).await?;
            }
            Ok(())
        };
        let next = self.pages.next(&mut self.asker, token);
        let ((), next) = tokio::try_join!(list, next)?;
        Ok((page.metadata.resource_version.filter(given), next))
    }

    /// Watches from `version` on until the server ends it.
    async fn watch(&mut self, version: String) -> Result<(), End> {
        let params = WatchParams::default().timeout(WATCH);
        let request =
            (self.pages.nodes.watch(&params, &version)).map_err(|e| Failure::request(&e))?;
        let mut answer = self.asker.ask(request, SILENCE).await?;
        self.restored().await?;

        let since = Instant::now();
        loop {
            let said = self.hear(&mut answer).await;
            self.progress |= since.elapsed() >= STEADY;
            let (event, version) = match said? {
                None => return Ok(()),
                Some(Said::Error(Status { code, message })) => {
                    return Err(Failure::coded(&self.asker.url(), code, &message).into());
                }
                Some(Said::Changed(node, version)) => (Some(Event::Apply(node)), version),
                Some(Said::Deleted(name, version)) => (Some(Event::Delete(name.into())), version),
                Some(Said::Bookmark(version)) => (None, version),
                Some(Said::NotNode(why, version)) => {
                    tracing::warn!("passed over an object in the watch of Nodes: {why}");
                    (None, version)
                }
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

    /// The next event of a watch; none when the server has ended it.
    async fn hear(&self, answer: &mut Answer) -> Result<Option<Said>, Failure> {
        if answer.protobuf {
            let frame = answer.body.frame().await;
            let Some(frame) = frame.map_err(|cut| self.asker.unwatched(cut))? else {
                return Ok(None);
            };
            let said = protobuf::event(frame);
            return said
                .map(Some)
                .map_err(|e| Failure::garbage(&self.asker.url(), &e));
        }
        loop {
            let line = answer.body.line().await;
            let Some(line) = line.map_err(|cut| self.asker.unwatched(cut))? else {
                return Ok(None);
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            return json::line(line)
                .map(Some)
                .map_err(|error| match error.is_eof() {
                    // The last line of a connection that was cut off.
                    true => Failure::broken(&self.asker.url(), "it ended within a line"),
                    false => Failure::garbage(&self.asker.url(), &error),
                });
        }
    }
}

/// How lists are asked for.
struct Pages {
    nodes: Request,
    /// Whether the server gave the pages' snapshot up under way.
    given_up: bool,
}

impl Pages {
    async fn ask(&mut self, asker: &mut Asker, token: Option<String>) -> Result<Answer, Failure> {
        let params = ListParams {
            limit: (!self.given_up).then_some(PAGE),
            continue_token: token,
            ..ListParams::default()
        };
        let request = (self.nodes.list(&params)).map_err(|e| Failure::request(&e))?;
        match asker.ask(request, asker::ANSWER).await {
            // A list in one piece needs no snapshot.
            Err(Failure::Expired) if !self.given_up => {
                self.given_up = true;
                Err(Failure::Expired)
            }
            Err(Failure::Expired) => Err(Failure::expired_list(&asker.url())),
            answer => answer,
        }
    }

    /// The page that `token` stands for; none without one.
    async fn next(
        &mut self,
        asker: &mut Asker,
        token: Option<String>,
    ) -> Result<Option<Answer>, End> {
        match token {
            Some(token) => Ok(Some(self.ask(asker, Some(token)).await?)),
            None => Ok(None),
        }
    }
}

/// Passes the Nodes of a page on, up to its metadata or its end.
async fn list_until_metadata(
    events: &mpsc::Sender<Event<Node>>,
    url: &str,
    page: &mut Page<'_>,
) -> Result<Option<Metadata>, End> {
    loop {
        let part = page.next().await;
        match part.map_err(|cut| asker::unlisted(url, cut))? {
            Some(Part::Object(object)) => list_one(events, protobuf::node(object)).await?,
            Some(Part::Metadata(version, token)) => return Ok(Some((version, token))),
            None => return Ok(None),
        }
    }
}

async fn list_one(
    events: &mpsc::Sender<Event<Node>>,
    node: Result<Node, impl std::fmt::Display>,
) -> Result<(), End> {
    match node {
        Ok(node) => events.send(Event::InitApply(node)).await?,
        Err(why) => tracing::warn!("passed over an object in the list of Nodes: {why}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
