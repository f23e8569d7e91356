//! Objects of one kind from an API server: listed in pages, then watched.
//!
//! What always holds:
//! - Protobuf is asked for: it has half the size of JSON, and its decoder skips
//!   unused fields without reading them. A server that answers in JSON is
//!   understood as well.
//! - While one page of a list is read, the next one is already requested, so
//!   that the server and the agent work at the same time.
//! - Objects are decoded one by one while the body arrives (JSON: from the page
//!   or line at hand; a whole list only if the server gave up the pages). An
//!   object that cannot be decoded is skipped and affects no other.
//! - A watch is resumed from the last version seen, bookmarks included, so a
//!   lost connection costs a reconnect and no list.
//! - A version that is too old (410, as HTTP status or as an event), a stream that is
//!   not understood, or another server, costs a new list, which corrects everything. A
//!   version means nothing to another server: it may be one that this has not reached.
//! - A collection that the server does not have is known to be empty, if its kind is
//!   optional (see `absence`).
//! - A connection that is dead is noticed: by TCP within half a minute, by pings of HTTP/2
//!   within three quarters of one (see `client`), and by the bookmarks that do not come,
//!   where the server sends them. It is left: no request is sent by it any more.
//! - Attempts without progress are delayed longer and longer, up to half a
//!   minute, by a partly random time: the nodes of a cluster must not come back
//!   all at once. A server that names a time (`Retry-After`) is not asked before, and the
//!   random time comes after it.
//! - A page that the server is too busy for is asked for again: a list is not begun anew
//!   for it, which would cost a busy server the pages before once more.
//!
//! Why not the `watcher` of kube's runtime: in 5.0 it repeats a watch that is
//! answered by HTTP 410 with the same version for ever, reconnects without a
//! pause to a server that ends each watch at once, fails a whole page for one
//! object, and does not report that a quiet watch works again.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use kube::{api::WatchParams, core::Request};
use tokio::sync::mpsc;

use tweed_core::object::{Event, Loss};

use crate::client::{ApiClient, Failure, Response};
use crate::event::{Status, WatchEvent};
use crate::{LastContact, Scope, Source, kind::Kind};
use crate::{json, protobuf};

/// How long the server is asked to keep a watch, in seconds. It sends bookmarks
/// meanwhile. Each watch gets a random time of these: those that began together, as after a
/// restart of the server, must not come back together for ever.
const WATCH_SECONDS: RangeInclusive<u32> = 200..=290;
/// Maximum times without data in a watch: after that it counts as broken.
const MAX_SILENCE: MaxSilence = MaxSilence {
    // The server should have ended the watch by then.
    without_bookmarks: Duration::from_secs(*WATCH_SECONDS.end() as u64 + 5),
    // An API server sends one each minute.
    with_bookmarks: Duration::from_secs(90),
};
/// A watch that lasted this long counts as progress, even without an event.
const STEADY: Duration = Duration::from_secs(10);

/// Pauses between attempts without progress: each is twice the one before, up to
/// the maximum, plus a random time of at most the same length.
const MIN_PAUSE: Duration = Duration::from_millis(250);
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(15);
/// Maximum pause, its random part included, after the server has ended a watch in order or
/// said that its version has expired: it works, so what follows an outage does not wait as
/// long as the outage has let the pauses grow.
pub(crate) const MAX_ANSWERED_PAUSE: Duration = Duration::from_secs(5);

/// How often a page of a list is asked for once more before the list is given up.
const PAGE_RETRIES: usize = 4;

/// Pause between two questions for a collection that the server does not have, plus a
/// random time of at most the same length.
const ABSENT_PAUSE: Duration = Duration::from_secs(30);

/// Maximum times without data in a watch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MaxSilence {
    /// Before the server has sent a bookmark in it: there are servers, and proxies
    /// before them, that send none, and one that does begins only when its version is
    /// newer than the one that the watch began with.
    pub without_bookmarks: Duration,
    /// After it has sent one: it then goes on.
    pub with_bookmarks: Duration,
}

/// The source of the objects of the kind `K` of an API server.
#[derive(Debug)]
pub struct Watcher {
    pub(crate) client: ApiClient,
    scope: Scope,
    last_contact: LastContact,
    pub(crate) pauses: ExponentialBuilder,
    pub(crate) absent_pauses: ExponentialBuilder,
    pub(crate) max_silence: MaxSilence,
}

impl Watcher {
    /// A watcher of the objects of `scope` that uses `client`, which other watchers may
    /// share.
    pub fn new(client: ApiClient, scope: Scope) -> Self {
        let pauses = |min, max| {
            ExponentialBuilder::default()
                .with_min_delay(min)
                .with_max_delay(max)
                .with_jitter()
                .without_max_times()
        };
        Self {
            client,
            scope,
            last_contact: LastContact::default(),
            max_silence: MAX_SILENCE,
            pauses: pauses(MIN_PAUSE, MAX_PAUSE),
            absent_pauses: pauses(ABSENT_PAUSE, ABSENT_PAUSE),
        }
    }
}

impl<K: Kind> Source<K> for Watcher {
    fn last_contact(&self) -> LastContact {
        self.last_contact.clone()
    }

    async fn run(self, events: mpsc::Sender<Event<K>>) {
        let mut session = Session {
            client: self.client,
            path: self.scope.path::<K>(),
            field_selector: self.scope.field_selector(),
            events,
            last_contact: self.last_contact,
            absence: None,
            max_silence: self.max_silence,
            page_pauses: self.pauses.with_max_times(PAGE_RETRIES),
            version: None,
            server: String::new(),
            pages_expired: false,
            progress: false,
            lost: None,
        };
        // It ends when the receiver is closed, which is no error.
        let _ = session.run(self.pauses, self.absent_pauses).await;
    }
}

pub(crate) struct Session<K> {
    pub client: ApiClient,
    /// Path of the collection.
    pub path: String,
    /// Selector of its objects.
    pub field_selector: Option<String>,
    pub events: mpsc::Sender<Event<K>>,
    pub last_contact: LastContact,
    /// Why the collection is known to be empty, while the server does not have it.
    pub absence: Option<String>,
    max_silence: MaxSilence,
    /// Pauses between attempts at one page of a list.
    pub page_pauses: ExponentialBuilder,
    /// The version to watch from; `None` requires a list.
    pub version: Option<String>,
    /// The server that `version` is of.
    pub server: String,
    /// Whether the server gave up the snapshot of a list during its pages: the
    /// next list is asked for in one piece.
    pub pages_expired: bool,
    /// Whether the current attempt made progress: the next is not delayed.
    progress: bool,
    /// The reason of the last [`Event::Lost`] without an [`Event::Restored`].
    lost: Option<String>,
}

/// Why an attempt ended.
pub enum AttemptError {
    /// The receiver of the events is closed.
    Closed,
    /// The server has not answered, or not as it should.
    Failed(Failure),
}

impl<K> From<mpsc::error::SendError<Event<K>>> for AttemptError {
    fn from(_: mpsc::error::SendError<Event<K>>) -> Self {
        Self::Closed
    }
}

impl From<Failure> for AttemptError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The pause after an attempt, where it would be `own` if the server were not heard of.
pub(crate) fn pause_after(failure: Option<&Failure>, own: Duration) -> Duration {
    match failure {
        None | Some(Failure::Expired) => {
            // Those that have waited for the same server must not list at the same moment.
            own.min(MAX_ANSWERED_PAUSE.mul_f64(0.5 + fastrand::f64() / 2.0))
        }
        Some(failure) => failure.pause(own),
    }
}

impl<K: Kind> Session<K> {
    /// Lists and watches until the receiver of the events is closed.
    async fn run(
        &mut self,
        pauses: ExponentialBuilder,
        absent_pauses: ExponentialBuilder,
    ) -> Result<(), AttemptError> {
        let mut pause: ExponentialBackoff = pauses.build();
        let mut absent_pause: ExponentialBackoff = absent_pauses.build();
        loop {
            self.progress = false;
            let attempt = match self.version.clone() {
                None => match self.list().await {
                    // A list alone is no progress: a server whose every watch
                    // requires a new list must not get them without a pause.
                    Ok(()) => continue,
                    failed => failed,
                },
                Some(version) => self.watch(version).await,
            };
            let failed = match attempt {
                Err(AttemptError::Failed(failure)) => match self.absent(failure).await {
                    Ok(()) => {
                        tokio::time::sleep(absent_pause.next().unwrap_or(ABSENT_PAUSE)).await;
                        continue;
                    }
                    failed => failed,
                },
                attempt => attempt,
            };
            let failure = match failed {
                Ok(()) => None,
                Err(AttemptError::Closed) => return Err(AttemptError::Closed),
                Err(AttemptError::Failed(failure)) => {
                    self.handle(&failure).await?;
                    Some(failure)
                }
            };
            // A watch whose version is lost costs a list, whatever it has brought.
            if self.progress && self.version.is_some() {
                pause = pauses.build();
            }
            // `without_max_times` makes the pauses endless.
            let own = pause.next().unwrap_or(MAX_PAUSE);
            tokio::time::sleep(pause_after(failure.as_ref(), own)).await;
        }
    }

    /// Prepares the next attempt after a failure, and reports the failure.
    async fn handle(&mut self, failure: &Failure) -> Result<(), AttemptError> {
        match failure {
            Failure::Expired => {
                tracing::debug!(
                    "the version asked for is too old, {} are listed again",
                    K::KINDS
                );
                self.version = None;
                return Ok(());
            }
            // API servers restart, and load balancers cut long connections: this
            // is reported only if the next attempt fails too. A silent one was left.
            Failure::Broken { .. } if self.progress => {
                tracing::debug!(%failure, "the watch is resumed");
                return Ok(());
            }
            Failure::Garbage { .. } => self.version = None,
            _ => {}
        }
        // Address and credentials may be those of another server, which may be no API server,
        // or of another user.
        self.client.reconnect_if_changed();
        let forbidden = matches!(failure, Failure::Forbidden { .. });
        let reason = failure.clone().for_kind::<K>().to_string();
        if self.lost.as_ref() != Some(&reason) {
            self.lost = Some(reason.clone());
            let loss = Loss { reason, forbidden };
            self.events.send(Event::Lost(loss)).await?;
        }
        Ok(())
    }

    pub(crate) async fn restored(&mut self) -> Result<(), AttemptError> {
        if self.lost.take().is_some() {
            self.events.send(Event::Restored).await?;
        }
        Ok(())
    }

    /// Watches from `version` on until the server ends the watch.
    async fn watch(&mut self, version: String) -> Result<(), AttemptError> {
        let mut parameters = WatchParams::default().timeout(fastrand::u32(WATCH_SECONDS));
        parameters.field_selector.clone_from(&self.field_selector);
        let request = Request::new(self.path.as_str())
            .watch(&parameters, &version)
            .map_err(|e| Failure::request(&e))?;
        let max_silence = self.max_silence.without_bookmarks;
        let (mut response, connection) = self.client.open(request, max_silence).await?;
        self.last_contact.now();
        if response.url != self.server {
            tracing::info!("{} are listed again, now from {}", K::KINDS, response.url);
            self.version = None;
            return Ok(());
        }
        self.restored().await?;
        let ended = self.follow(&mut response).await;
        if let Err(AttemptError::Failed(failure)) = &ended {
            self.client.leave_for(&connection, failure);
        }
        ended
    }

    /// Passes on the events of a watch until the server ends it.
    async fn follow(&mut self, response: &mut Response) -> Result<(), AttemptError> {
        let since = Instant::now();
        loop {
            let next = next_event(response).await;
            self.progress |= since.elapsed() >= STEADY;
            let next = next?;
            self.last_contact.now();
            let (event, version) = match next {
                None => return Ok(()),
                Some(WatchEvent::Error(Status { code, message })) => {
                    let code = u16::try_from(code).unwrap_or_default();
                    return Err(Failure::status(&response.url, code, &message).into());
                }
                Some(WatchEvent::Apply(object, version)) => (Some(Event::Apply(object)), version),
                Some(WatchEvent::Delete(key, version)) => (Some(Event::Delete(key)), version),
                Some(WatchEvent::Bookmark(version)) => {
                    let max_silence = self.max_silence.with_bookmarks;
                    response.body.set_max_silence(max_silence);
                    (None, version)
                }
                Some(WatchEvent::Invalid(why, version)) => {
                    warn_skipped::<K>("watch", &why);
                    (None, version)
                }
            };
            self.progress = true;
            if let Some(event) = event {
                self.events.send(event).await?;
            }
            // Only after the event was delivered: a resumed watch skips none.
            if version.is_some() {
                self.version = version;
            }
        }
    }
}

/// The next event of a watch; `None` when the server has ended it.
///
/// # Errors
/// It cannot be read.
pub async fn next_event<K: Kind>(
    response: &mut Response,
) -> Result<Option<WatchEvent<K>>, Failure> {
    let Response {
        url,
        protobuf,
        body,
    } = response;
    if *protobuf {
        let frame = body.frame().await.map_err(|error| error.of_watch(url))?;
        let event = frame.map(protobuf::event).transpose();
        return event.map_err(|error| Failure::garbage(url, &error));
    }
    while let Some(line) = body.line().await.map_err(|error| error.of_watch(url))? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        return json::event(line).map(Some).map_err(|error| {
            if error.is_eof() {
                // The last line of a connection that was cut.
                Failure::broken(url, "it ended within a line")
            } else {
                Failure::garbage(url, &error)
            }
        });
    }
    Ok(None)
}

/// Logs that an object of a list or of a watch is not used.
pub(crate) fn warn_skipped<K: Kind>(origin: &str, why: &impl Display) {
    tracing::warn!("skipped an object in the {origin} of {}: {why}", K::KINDS);
}
