//! One request after the other to the API server: in the encoding that it
//! speaks, with refusals and broken connections in words.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use kube::client::Body;

use super::incoming::{Cut, Incoming};
use super::protobuf;
use super::said::Status;
use crate::api::{Access, Failure, Server};

/// How long an answer may take to begin, and how long a page may say nothing.
pub(super) const ANSWER: Duration = Duration::from_secs(60);
/// More than a refusal ever is.
const LARGEST_REFUSAL: usize = 1 << 20;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PREFERRED: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf,application/json");
const PLAIN: HeaderValue = HeaderValue::from_static("application/json");

/// Who asks.
pub(super) struct Asker {
    access: Access,
    /// Made when it is needed.
    server: Option<Server>,
    /// Whether the server takes no request that prefers protobuf.
    plain: bool,
}

/// An answer whose body comes in.
pub(super) struct Answer {
    /// Whether the body is protobuf; else it is JSON.
    pub protobuf: bool,
    pub body: Incoming,
}

impl Asker {
    pub(super) fn new(access: Access) -> Self {
        Self {
            access,
            server: None,
            plain: false,
        }
    }

    /// Has the next request look up the server and the credentials again.
    pub(super) fn reconnect(&mut self) {
        self.server = None;
    }

    /// Asks; what answers may say nothing for `patience` while its body comes.
    /// A refusal is a failure.
    pub(super) async fn ask(
        &mut self,
        request: http::Request<Vec<u8>>,
        patience: Duration,
    ) -> Result<Answer, Failure> {
        let (head, body) = request.into_parts();
        loop {
            let Server { client, url } = self.server().await?;
            let mut head = head.clone();
            let accept = if self.plain { PLAIN } else { PREFERRED };
            head.headers.insert(ACCEPT, accept);
            let request = http::Request::from_parts(head, Body::from(body.clone()));
            let answer = tokio::time::timeout(ANSWER, client.send(request)).await;
            let answer = answer
                .map_err(|_| Failure::silent(&url, ANSWER))?
                .map_err(|error| Failure::answer(&url, &error))?;
            let status = answer.status();
            let kind = answer.headers().get(CONTENT_TYPE);
            let protobuf =
                kind.is_some_and(|kind| kind.as_bytes().starts_with(PROTOBUF.as_bytes()));
            let refused = !status.is_success();
            let mut answer = Answer {
                protobuf,
                body: Incoming::new(answer.into_body(), if refused { ANSWER } else { patience }),
            };
            let unacceptable = [
                StatusCode::NOT_ACCEPTABLE,
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ]
            .contains(&status);
            if unacceptable && !self.plain {
                self.plain = true;
                continue;
            }
            if refused {
                return Err(self.refusal(status, &mut answer).await);
            }
            return Ok(answer);
        }
    }

    /// What the server said instead of what was asked for.
    async fn refusal(&self, status: StatusCode, answer: &mut Answer) -> Failure {
        let said = match answer.body.rest(LARGEST_REFUSAL).await {
            Ok(said) => said,
            Err(cut) => return self.unlisted(cut),
        };
        let read = match answer.protobuf {
            true => protobuf::object_in(said).and_then(protobuf::status).ok(),
            false => serde_json::from_slice::<Status>(said).ok(),
        };
        // What stands between may answer in a shape of its own: the code is
        // HTTP's, and what cannot be read is passed on as it came.
        let message = match read {
            Some(Status { message, .. }) if !message.is_empty() => message,
            _ => String::from_utf8_lossy(said).into_owned(),
        };
        Failure::coded(&self.url(), status.as_u16(), &message)
    }

    /// What it means that a list does not come through.
    pub(super) fn unlisted(&self, cut: Cut) -> Failure {
        unlisted(&self.url(), cut)
    }

    /// What it means that a watch does not go on.
    pub(super) fn unwatched(&self, cut: Cut) -> Failure {
        let url = self.url();
        match cut {
            Cut::Silent(_) | Cut::Broken(_) | Cut::Short => Failure::broken(&url, &cut.to_string()),
            Cut::TooLarge(_) | Cut::Malformed(_) => Failure::garbage(&url, &cut),
        }
    }

    /// The server, as people know it.
    pub(super) fn url(&self) -> String {
        (self.server.as_ref()).map_or_else(String::new, |server| server.url.clone())
    }

    async fn server(&mut self) -> Result<Server, Failure> {
        if let Some(server) = &self.server {
            return Ok(server.clone());
        }
        let server = self.access.connect().await?;
        self.plain = false;
        Ok(self.server.insert(server).clone())
    }
}

/// What it means that a list of the server at `url` does not come through.
pub(super) fn unlisted(url: &str, cut: Cut) -> Failure {
    match cut {
        Cut::Silent(waited) => Failure::silent(url, waited),
        Cut::Broken(error) => Failure::answer(url, &error),
        Cut::Short | Cut::TooLarge(_) | Cut::Malformed(_) => Failure::garbage(url, &cut),
    }
}
