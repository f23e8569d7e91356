//! A complete list of the objects of a kind, in pages.

use std::sync::Arc;

use backon::BackoffBuilder as _;
use kube::{api::ListParams, core::Request};
use tokio::sync::mpsc;

use tweed_core::object::Event;

use crate::client::{ANSWER_TIMEOUT, Connection, Failure, Response};
use crate::kind::{InvalidObject, Kind};
use crate::page::{Element, Page};
use crate::watcher::{AttemptError, Session, warn_skipped};
use crate::{client::body::Body, event::ListMetadata};
use crate::{json, protobuf};

/// Objects in one page. A page of Nodes is about 4 MB as JSON, which has to be
/// held as a whole.
const PAGE_SIZE: u32 = 250;
/// Maximum size of a page of JSON, in bytes: 1 MiB for each of its objects.
pub const MAX_JSON_PAGE: usize = 256 << 20;
/// Maximum size of a whole list of JSON, in bytes, if the server gave up the pages.
const MAX_JSON_LIST: usize = 1 << 30;

/// Maximum number of pages of a list: a quarter of a million objects, more than a cluster
/// has of any kind. A server whose pages never end must not fill the memory of whoever
/// keeps them.
pub(crate) const MAX_PAGES: usize = 1000;

/// The pages of a list so far.
#[derive(Debug, Default)]
struct Pages {
    count: usize,
    /// The token that the last one was asked for with.
    token: String,
}

impl Pages {
    /// Notes the token of the next page; why there is none otherwise.
    fn turn(&mut self, token: &str) -> Result<(), String> {
        self.count += 1;
        if token == self.token {
            return Err("a page of the list has the same continue token as the one before".into());
        }
        if self.count >= MAX_PAGES {
            return Err(format!("the list has more than {MAX_PAGES} pages"));
        }
        token.clone_into(&mut self.token);
        Ok(())
    }
}

impl<K: Kind> Session<K> {
    /// Lists all objects. Afterwards `self.version` is that of the list.
    pub(crate) async fn list(&mut self) -> Result<(), AttemptError> {
        let (mut response, mut connection) = self.request_page(None).await?;
        self.events.send(Event::Init).await?;
        let mut pages = Pages::default();
        loop {
            let (url, protobuf) = (response.url.clone(), response.protobuf);
            let events = self.events.clone();
            let max = if self.pages_expired {
                MAX_JSON_LIST
            } else {
                MAX_JSON_PAGE
            };
            let read = read_page(&events, response, max, |token| {
                self.next_page(&mut pages, token)
            });
            let (version, next) = read.await.inspect_err(|error| {
                if let AttemptError::Failed(failure) = error {
                    self.client.leave_for(&connection, failure);
                }
            })?;
            if let Some(next) = next {
                // The token means nothing to another server.
                if next.0.url != url {
                    return Err(Failure::Expired.into());
                }
                (response, connection) = next;
                continue;
            }
            if version.is_empty() {
                return Err(Failure::garbage(&url, &"the list has no resourceVersion").into());
            }
            self.version = Some(version);
            self.server = url;
            self.pages_expired = false;
            tracing::debug!(protobuf, "{} are listed", K::KINDS);
            self.present();
            self.events.send(Event::InitDone).await?;
            return self.restored().await;
        }
    }

    /// The response of the page that `token` stands for; `None` if it is empty.
    async fn next_page(
        &mut self,
        pages: &mut Pages,
        token: String,
    ) -> Result<Option<(Response, Arc<Connection>)>, AttemptError> {
        if token.is_empty() {
            return Ok(None);
        }
        let url = self.client.url();
        pages
            .turn(&token)
            .map_err(|why| Failure::garbage(&url, &why))?;
        Ok(Some(self.request_page(Some(token)).await?))
    }

    /// The response of the page that `token` stands for, or of the first one. For a page
    /// that is not the first the server is given several chances: the pages before would be
    /// lost, and its snapshot lasts for minutes.
    async fn request_page(
        &mut self,
        token: Option<String>,
    ) -> Result<(Response, Arc<Connection>), Failure> {
        let mut pauses = token.is_some().then(|| self.page_pauses.build());
        loop {
            let failure = match self.try_page(token.clone()).await {
                Err(failure) if failure.may_pass() => failure,
                answer => return answer,
            };
            let Some(pause) = pauses.as_mut().and_then(Iterator::next) else {
                return Err(failure);
            };
            tracing::debug!(%failure, "a page of {} is asked for again", K::KINDS);
            tokio::time::sleep(failure.pause(pause)).await;
        }
    }

    /// Whether the list is asked for without pages. A selection fits into one: where an API
    /// server looks for the objects of a page in etcd, it reads the whole collection for it, and
    /// what it is asked for in one piece comes from its memory (since Kubernetes 1.31).
    fn is_in_one_piece(&self) -> bool {
        self.pages_expired || self.field_selector.is_some()
    }

    async fn try_page(
        &mut self,
        token: Option<String>,
    ) -> Result<(Response, Arc<Connection>), Failure> {
        let parameters = ListParams {
            limit: (!self.is_in_one_piece()).then_some(PAGE_SIZE),
            continue_token: token,
            field_selector: self.field_selector.clone(),
            ..ListParams::default()
        };
        let request = Request::new(self.path.as_str())
            .list(&parameters)
            .map_err(|e| Failure::request(&e))?;
        match self.client.open(request, ANSWER_TIMEOUT).await {
            // A list in one piece needs no snapshot.
            Err(Failure::Expired) if !self.pages_expired => {
                self.pages_expired = true;
                Err(Failure::Expired)
            }
            Err(Failure::Expired) => Err(Failure::expired_list(&self.client.url())),
            Err(failure) => Err(failure),
            Ok(response) => {
                self.last_contact.now();
                Ok(response)
            }
        }
    }
}

/// Sends the objects of a page, which has at most `max` bytes if it is JSON. Returns the
/// version of the list, empty if the page does not name it, and what `next` makes of the
/// token of the next page; it is called while the objects arrive.
///
/// # Errors
/// The page cannot be read, or that of `next`.
pub async fn read_page<K: Kind, N, F: Future<Output = Result<N, AttemptError>>>(
    events: &mpsc::Sender<Event<K>>,
    response: Response,
    max: usize,
    next: impl FnOnce(String) -> F,
) -> Result<(String, N), AttemptError> {
    let Response {
        url,
        protobuf,
        mut body,
    } = response;
    if protobuf {
        read_protobuf_page(events, &url, &mut body, next).await
    } else {
        read_json_page(events, &url, &mut body, max, next).await
    }
}

async fn read_protobuf_page<K: Kind, N, F: Future<Output = Result<N, AttemptError>>>(
    events: &mpsc::Sender<Event<K>>,
    url: &str,
    body: &mut Body,
    next: impl FnOnce(String) -> F,
) -> Result<(String, N), AttemptError> {
    let mut page = Page::new(body);
    // The metadata precedes the objects, so that the next page can be
    // requested while they arrive.
    let found = send_until_metadata(events, url, &mut page).await?;
    let metadata = found.unwrap_or_default();
    let rest = async {
        while (send_until_metadata(events, url, &mut page).await?).is_some() {}
        Ok(())
    };
    let next = next(metadata.continue_token);
    let ((), next) = tokio::try_join!(rest, next)?;
    Ok((metadata.resource_version, next))
}

async fn read_json_page<K: Kind, N, F: Future<Output = Result<N, AttemptError>>>(
    events: &mpsc::Sender<Event<K>>,
    url: &str,
    body: &mut Body,
    max: usize,
    next: impl FnOnce(String) -> F,
) -> Result<(String, N), AttemptError> {
    let text = body.rest(max).await.map_err(|e| e.of_answer(url))?;
    let page: json::Page<'_> =
        serde_json::from_slice(text).map_err(|e| Failure::garbage(url, &e))?;
    let objects = async {
        for object in page.items.into_iter().flatten() {
            send_object(events, json::object(object)).await?;
        }
        Ok(())
    };
    let next = next(page.metadata.continue_token);
    let ((), next) = tokio::try_join!(objects, next)?;
    Ok((page.metadata.resource_version, next))
}

/// Sends the objects of a page up to its metadata; `None` at the page's end.
async fn send_until_metadata<K: Kind>(
    events: &mpsc::Sender<Event<K>>,
    url: &str,
    page: &mut Page<'_>,
) -> Result<Option<ListMetadata>, AttemptError> {
    loop {
        let element = page.next().await.map_err(|error| error.of_answer(url))?;
        match element {
            Some(Element::Object(object)) => send_object(events, protobuf::object(object)).await?,
            Some(Element::Metadata(metadata)) => return Ok(Some(metadata)),
            None => return Ok(None),
        }
    }
}

async fn send_object<K: Kind>(
    events: &mpsc::Sender<Event<K>>,
    object: Result<K, InvalidObject>,
) -> Result<(), AttemptError> {
    match object {
        Ok(object) => events.send(Event::InitApply(object)).await?,
        Err(why) => warn_skipped::<K>("list", &why),
    }
    Ok(())
}
