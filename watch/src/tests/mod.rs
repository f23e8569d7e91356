//! The watcher and the sources over a server that plays back answers, for every
//! kind.

mod absence;
mod credentials;
mod decoding;
mod failures;
mod http2;
pub(crate) mod kinds;
mod list;
mod message;
mod misbehaviour;
mod policies;
mod protobuf;
mod proxy;
mod scope;
mod server;
mod services;
mod watch;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use tweed_core::object::namespace::Namespace;
use tweed_core::object::node::Node;
use tweed_core::object::{Loss, ObjectKey};

use super::*;
use crate::client::{Access, ApiClient, Failure};
use crate::watcher::pause_after;
use kinds::for_each_kind;
use kinds::{TestKind, VALUE};
use message::Message;
use server::{Answer, End, Server};

/// Longer than any step takes: a test that waits for an event that does not come
/// fails.
pub(crate) const STUCK: Duration = Duration::from_secs(60);

/// The objects that a consumer knows after the events so far.
pub(crate) struct Store<K> {
    listing: BTreeMap<ObjectKey, K>,
    objects: Option<BTreeMap<ObjectKey, K>>,
}

impl<K: Kind> Store<K> {
    pub(crate) fn new() -> Self {
        Self {
            listing: BTreeMap::new(),
            objects: None,
        }
    }

    /// Applies an event; says whether the objects changed.
    pub(crate) fn apply(&mut self, event: Event<K>) -> bool {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => drop(self.listing.insert(object.key(), object)),
            Event::InitDone => self.objects = Some(std::mem::take(&mut self.listing)),
            Event::Apply(object) => {
                let objects = self.objects.as_mut().expect("a list before a change");
                let before = objects.insert(object.key(), object.clone());
                return before != Some(object);
            }
            Event::Delete(key) => {
                let objects = self.objects.as_mut().expect("a list before a change");
                return objects.remove(&key).is_some();
            }
            Event::Absent(_) | Event::Lost(_) | Event::Restored => {}
        }
        false
    }

    /// Applies events up to one that `last` accepts; returns all of them.
    pub(crate) async fn until(
        &mut self,
        events: &mut mpsc::Receiver<Event<K>>,
        last: impl Fn(&Event<K>) -> bool,
    ) -> Vec<Event<K>> {
        let mut seen = Vec::new();
        let stuck = tokio::time::Instant::now() + STUCK;
        loop {
            let received = tokio::time::timeout_at(stuck, events.recv()).await;
            let event = received.expect("the event that was waited for").unwrap();
            self.apply(event.clone());
            seen.push(event);
            if seen.last().is_some_and(&last) {
                return seen;
            }
        }
    }

    /// Names of the objects; `None` before the first list.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        let objects = self.objects.as_ref()?;
        Some(objects.keys().map(|key| key.name.clone()).collect())
    }
}

/// A watcher of a server, and what a consumer knows from it.
struct Watched<K> {
    folder: tempfile::TempDir,
    events: mpsc::Receiver<Event<K>>,
    store: Store<K>,
    task: JoinHandle<()>,
}

impl<K: Kind> Watched<K> {
    fn start(server: &Server) -> Self {
        let watched = Self::without_kubeconfig();
        watched.write_kubeconfig(&format!("http://{}", server.address));
        watched
    }

    fn without_kubeconfig() -> Self {
        Self::prepared(|_| {})
    }

    /// A watcher that `prepare` has changed, without a kubeconfig.
    fn prepared(prepare: impl FnOnce(&mut Watcher)) -> Self {
        Self::prepared_of(Scope::All, prepare)
    }

    /// The same, of the objects of `scope`.
    fn prepared_of(scope: Scope, prepare: impl FnOnce(&mut Watcher)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let access = Access::Kubeconfig(folder.path().join("kubeconfig"));
        let mut watcher = Watcher::new(ApiClient::new(access), scope);
        watcher.pauses = watcher.pauses.with_min_delay(Duration::from_millis(10));
        prepare(&mut watcher);
        let (sender, events) = mpsc::channel(4);
        Self {
            folder,
            events,
            store: Store::new(),
            task: tokio::spawn(watcher.run(sender)),
        }
    }

    fn write_kubeconfig(&self, url: &str) {
        write_kubeconfig(self.folder.path(), url);
    }

    /// Receives events up to one that `last` accepts; returns all of them.
    async fn until(&mut self, last: impl Fn(&Event<K>) -> bool) -> Vec<Event<K>> {
        self.store.until(&mut self.events, last).await
    }

    async fn listed(&mut self) -> Vec<Event<K>> {
        self.until(|event| *event == Event::InitDone).await
    }

    /// The reason of the next [`Event::Lost`].
    async fn lost(&mut self) -> String {
        self.loss().await.reason
    }

    /// The next [`Event::Lost`].
    async fn loss(&mut self) -> Loss {
        let seen = self.until(|e| matches!(e, Event::Lost(_))).await;
        match seen.into_iter().next_back() {
            Some(Event::Lost(loss)) => loss,
            other => panic!("{other:?}"),
        }
    }

    /// The reason of the next [`Event::Absent`].
    async fn absent(&mut self) -> String {
        let seen = self.until(|e| matches!(e, Event::Absent(_))).await;
        match seen.into_iter().next_back() {
            Some(Event::Absent(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    async fn restored(&mut self) -> Vec<Event<K>> {
        self.until(|event| *event == Event::Restored).await
    }

    /// Names of the objects that a consumer knows.
    fn known(&self) -> Vec<String> {
        self.store.names().unwrap()
    }

    /// The object of this name that a consumer knows.
    fn object(&self, name: &str) -> &K {
        let mut objects = self.store.objects.as_ref().unwrap().iter();
        objects.find(|(key, _)| key.name == name).unwrap().1
    }

    /// Ends the source, which must not have ended by itself.
    async fn end(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// Writes the file `kubeconfig` into `folder`, in one step.
fn write_kubeconfig(folder: &Path, url: &str) {
    write_kubeconfig_of(folder, json!({"server": url}));
}

/// The same with more about the cluster than its URL.
fn write_kubeconfig_of(folder: &Path, cluster: Value) {
    write_kubeconfig_as(folder, cluster, json!({"token": "t"}));
}

/// The same with these credentials.
fn write_kubeconfig_as(folder: &Path, cluster: Value, user: Value) {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    });
    let other = folder.join("other");
    std::fs::write(&other, kubeconfig.to_string()).unwrap();
    std::fs::rename(other, folder.join("kubeconfig")).unwrap();
}

/// The name of the object that an event applies.
fn applied<K: Kind>(event: &Event<K>) -> Option<String> {
    match event {
        Event::Apply(object) => Some(object.key().name),
        _ => None,
    }
}

/// An object as JSON.
fn object<K: TestKind>(name: &str, version: &str) -> Value {
    K::json(name, version, VALUE)
}

fn page(items: &[Value], version: &str, token: &str) -> Answer {
    let page = json!({
        "kind": "ExampleList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": version, "continue": token},
        "items": items,
    });
    Answer::Whole(200, page.to_string())
}

/// A list of objects of these names, all of one version.
fn list_of<K: TestKind>(names: &[&str], version: &str) -> Answer {
    let objects = names.iter().map(|name| object::<K>(name, version));
    page(&objects.collect::<Vec<_>>(), version, "")
}

fn line(of: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": of, "object": object}))
}

fn bookmark(version: &str) -> String {
    line(
        "BOOKMARK",
        &json!({"kind": "Example", "metadata": {"resourceVersion": version}}),
    )
}

fn status(code: u16, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Because", "code": code,
    })
}

fn refusal(code: u16, message: &str) -> Answer {
    Answer::Whole(code, status(code, message).to_string())
}

/// A watch that stays open and sends nothing.
fn quiet() -> Answer {
    Answer::Stream(vec![], End::Open)
}

/// The request of a watch from this version on.
fn watch_from<K: Kind>(version: &str) -> String {
    let parameters = "watch=true&allowWatchBookmarks=true&resourceVersion=";
    format!("{}?&{parameters}{version}", K::PATH)
}

/// The request of the first page of a list.
fn first_page<K: Kind>() -> String {
    format!("{}?&limit=250", K::PATH)
}

/// After an outage the server says that the version has expired: what has changed is known
/// soon, and not at the same moment by all nodes.
#[test]
fn pauses_after_an_answer_are_short_whatever_was_before() {
    let max = crate::watcher::MAX_ANSWERED_PAUSE;
    for failure in [None, Some(&Failure::Expired)] {
        let pauses = [Duration::from_secs(30); 100].map(|own| pause_after(failure, own));
        assert!(pauses.iter().all(|one| (max / 2..=max).contains(one)));
        assert_ne!(pauses.iter().min(), pauses.iter().max());
        let short = Duration::from_millis(300);
        assert_eq!(pause_after(failure, short), short);
    }
    let away = Failure::garbage("https://server", &"not JSON");
    let long = Duration::from_secs(30);
    assert_eq!(pause_after(Some(&away), long), long);
}

#[test]
fn pauses_between_attempts_grow_up_to_half_a_minute() {
    use backon::BackoffBuilder as _;
    let max = crate::watcher::MAX_PAUSE;
    let client = ApiClient::new(Access::InCluster { server: None });
    let pauses: Vec<_> = Watcher::new(client, Scope::All)
        .pauses
        .build()
        .take(1000)
        .collect();
    assert_eq!(pauses.len(), 1000);
    assert!(pauses[0] < Duration::from_secs(1));
    assert!(pauses.iter().all(|pause| *pause <= 2 * max));
    assert!(pauses[20..].iter().all(|pause| *pause >= max));
}
