//! Failures of requests to an API server. Each message names the server and
//! what to look at.

#![expect(missing_docs, reason = "each failure is documented by its message")]

use std::iter::successors;
use std::path::{Path, PathBuf};
use std::{error::Error, fmt::Display, time::Duration};

use http::{HeaderValue, Uri};
use kube::client::AuthError;
use tweed_core::text::one_line;

use crate::kind::Kind;

/// Maximum time that a server is left alone because it asks for that.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// What an agent needs without policy.
const RIGHTS: &str = "get, list and watch nodes, patch their status, and create and patch events";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("the kubeconfig {path} cannot be used: {why}")]
    Kubeconfig { path: PathBuf, why: String },
    #[error(
        "no API server is known: {why} (outside of a pod, give --kubeconfig, or --nodes for a cluster without Kubernetes)"
    )]
    InCluster { why: String },
    #[error(
        "the API server {server} cannot be reached: the proxy that {origin} names cannot be used: {why} (give it as http://HOST:PORT, or list the server in NO_PROXY)"
    )]
    Proxy {
        server: String,
        origin: &'static str,
        why: String,
    },
    #[error(
        "the API server {url} does not accept the agent's credentials (401): check the kubeconfig or the service account's token"
    )]
    Unauthorized { url: String },
    #[error(
        "the API server {url} forbids it (403: {message}): RBAC must let the agent {right} (see the ClusterRoles of this version's manifests)"
    )]
    Forbidden {
        url: String,
        message: String,
        right: String,
    },
    /// The resource version or the continue token is too old (410).
    #[error("the version asked for is no longer kept (410)")]
    Expired,
    #[error("the API server {url} answered {code}: {message}")]
    Answered {
        url: String,
        code: u16,
        message: String,
        /// How long the server wants to be left alone (`Retry-After`).
        retry_after: Option<Duration>,
    },
    #[error("the API server {url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    #[error("the credentials for the API server {url} cannot be had: {why}")]
    Credentials { url: String, why: String },
    #[error("the API server {url} did not answer within {seconds} s")]
    Silent { url: String, seconds: u64 },
    /// The connection of a running watch was lost.
    #[error("the watch of {url} broke off: {why}")]
    Broken {
        url: String,
        why: String,
        /// Whether nothing came any more, and nothing said that it had ended.
        is_silent: bool,
    },
    #[error("the API server {url} sent an invalid answer: {why}")]
    Garbage { url: String, why: String },
    #[error("a request could not be built: {why}")]
    Request { why: String },
}

impl Failure {
    /// Whether the server answered with this HTTP status.
    pub fn is_answer(&self, status: u16) -> bool {
        matches!(self, Self::Answered { code, .. } if *code == status)
    }

    /// Whether the server could be reached and answered that it does not do what
    /// was asked for, while the credentials are valid.
    pub fn is_answered(&self) -> bool {
        matches!(self, Self::Answered { .. } | Self::Forbidden { .. })
    }

    /// Whether a retry alone cannot succeed. A server that is overloaded (429)
    /// or has an error of its own (500 and above) has refused nothing.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Answered { code, .. } => (400..500).contains(code) && *code != 429,
            Self::Forbidden { .. } | Self::Unauthorized { .. } | Self::Garbage { .. } => true,
            Self::Kubeconfig { .. } | Self::InCluster { .. } | Self::Proxy { .. } => true,
            Self::Credentials { .. } | Self::Request { .. } => true,
            _ => false,
        }
    }

    /// Whether the same request may succeed a moment later: the server is overloaded, or has
    /// an error of its own.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Answered { code, .. } => *code == 429 || *code >= 500,
            Self::Silent { .. } => true,
            _ => false,
        }
    }

    /// Whether another connection, with address and credentials read again, may be better than
    /// the one that a request was sent by. One that says nothing may not have been asked: a
    /// program that gives new credentials hangs, which the next connection names, and starts no
    /// second one.
    pub(crate) fn is_of_connection(&self) -> bool {
        match self {
            Self::Unauthorized { .. } | Self::Credentials { .. } => true,
            Self::Silent { .. } | Self::Unreachable { .. } => true,
            Self::Broken { is_silent, .. } => *is_silent,
            _ => false,
        }
    }

    /// The pause before the next attempt, where it would be `own` without the server's wish to
    /// be left alone. That has bounds: a wrong number must not keep the agent from knowing the
    /// cluster. `own`, with its random part, comes after it: those that were refused at the same
    /// moment must not come back at the same moment.
    pub fn pause(&self, own: Duration) -> Duration {
        let asked = match self {
            Self::Answered {
                retry_after: Some(pause),
                ..
            } => MAX_RETRY_AFTER.min(*pause),
            _ => Duration::ZERO,
        };
        asked.saturating_add(own)
    }

    /// The same with what the header `Retry-After` of the answer says, in seconds.
    pub(crate) fn with_retry_after(mut self, header: Option<&HeaderValue>) -> Self {
        if let Self::Answered { retry_after, .. } = &mut self {
            let seconds = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            *retry_after = seconds.map(Duration::from_secs);
        }
        self
    }

    /// The failure of a list or a watch of this kind: it names the right for that.
    pub(crate) fn for_kind<K: Kind>(self) -> Self {
        match self {
            Self::Forbidden { url, message, .. } => Self::Forbidden {
                url,
                message,
                right: format!("get, list and watch {}", K::resource()),
            },
            other => other,
        }
    }

    pub(crate) fn kubeconfig(path: &Path, error: &dyn Error) -> Self {
        let (path, why) = (path.to_owned(), chain(error));
        Self::Kubeconfig { path, why }
    }

    pub(crate) fn in_cluster(error: &dyn Error) -> Self {
        Self::InCluster { why: chain(error) }
    }

    pub(crate) fn proxy(server: &Uri, origin: &'static str, error: &dyn Error) -> Self {
        Self::Proxy {
            server: server.to_string(),
            origin,
            why: chain(error),
        }
    }

    pub(crate) fn request(error: &dyn Error) -> Self {
        Self::Request { why: chain(error) }
    }

    pub(crate) fn silent(url: &str, waited: Duration) -> Self {
        let (url, seconds) = (url.to_owned(), waited.as_secs());
        Self::Silent { url, seconds }
    }

    pub(crate) fn broken(url: &str, why: &str) -> Self {
        Self::Broken {
            url: url.to_owned(),
            why: one_line(why),
            is_silent: false,
        }
    }

    pub(crate) fn garbage(url: &str, error: &dyn Display) -> Self {
        let (url, why) = (url.to_owned(), one_line(&error.to_string()));
        Self::Garbage { url, why }
    }

    /// A new list in one piece, which needs no old version, was answered by 410.
    pub(crate) fn expired_list(url: &str) -> Self {
        Self::Answered {
            url: url.to_owned(),
            code: 410,
            message: "a new list has expired".to_owned(),
            retry_after: None,
        }
    }

    /// The server cannot be reached, or is not asked for want of credentials.
    pub(crate) fn unreachable(url: &str, error: &kube::Error) -> Self {
        let (url, why) = (url.to_owned(), chain(error));
        if is_of_credentials(error) {
            Self::Credentials { url, why }
        } else {
            Self::Unreachable { url, why }
        }
    }

    /// The failure that a status describes.
    pub(crate) fn status(url: &str, code: u16, message: &str) -> Self {
        let url = url.to_owned();
        let message = one_line(message);
        match code {
            401 => Self::Unauthorized { url },
            403 => Self::Forbidden {
                url,
                message,
                right: RIGHTS.to_owned(),
            },
            410 => Self::Expired,
            code => Self::Answered {
                url,
                code,
                message,
                retry_after: None,
            },
        }
    }
}

/// The messages of an error and of its sources, without repetition.
pub fn chain(error: &dyn Error) -> String {
    let mut messages: Vec<String> = Vec::new();
    for text in successors(Some(error), |error| (*error).source()).map(ToString::to_string) {
        // Many errors repeat the message of their source.
        if !messages.iter().any(|earlier| earlier.contains(&text)) {
            messages.push(text);
        }
    }
    one_line(&messages.join(": "))
}

/// Whether an error or one of its sources is that the credentials cannot be had.
fn is_of_credentials(error: &kube::Error) -> bool {
    let error: &(dyn Error + 'static) = error;
    successors(Some(error), |error| (*error).source()).any(|error| error.is::<AuthError>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_is_too_busy_for_or_fails_at_is_no_refusal() {
        for (code, refused) in [
            (400, true),
            (401, true),
            (403, true),
            (404, true),
            (422, true),
            (429, false),
            (500, false),
            (503, false),
        ] {
            let failure = Failure::status("https://api", code, "no");
            assert_eq!(failure.is_refusal(), refused, "{code}");
        }
    }

    #[test]
    fn a_pause_that_the_server_asks_for_is_kept_within_bounds_and_the_own_comes_after_it() {
        for (text, asked) in [
            (None, 0),
            (Some("7"), 7),
            (Some(" 7 "), 7),
            (Some("86400"), 60),
            (Some("-1"), 0),
            (Some("Thu, 26 Nov 2026 12:00:00 GMT"), 0),
        ] {
            let header = text.map(HeaderValue::from_static);
            let failure = Failure::status("https://api", 429, "too many requests")
                .with_retry_after(header.as_ref());
            for own in [250, 400].map(Duration::from_millis) {
                assert_eq!(
                    failure.pause(own),
                    Duration::from_secs(asked) + own,
                    "{header:?}"
                );
            }
        }
    }
}
