//! What goes wrong between the agent and an API server, in words that name the
//! server and what to look at.

#![expect(missing_docs, reason = "each failure is its message")]

use std::error::Error;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tweed_core::text::one_line;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("the kubeconfig {path} cannot be used: {why}")]
    Kubeconfig { path: PathBuf, why: String },
    #[error(
        "no API server is known: {why} (outside of a pod, give --kubeconfig, or --nodes for a cluster without Kubernetes)"
    )]
    InCluster { why: String },
    #[error(
        "the API server {url} does not accept the agent's credentials (401): check the kubeconfig or the service account's token"
    )]
    Unauthorized { url: String },
    #[error(
        "the API server {url} forbids it (403: {message}): RBAC must let the agent get, list and watch Nodes, patch their status, and create and patch Events"
    )]
    Forbidden { url: String, message: String },
    /// The version or the page asked for is no longer kept.
    #[error("the version asked for is no longer kept (410)")]
    Expired,
    #[error("the API server {url} answered {code}: {message}")]
    Answered {
        url: String,
        code: u16,
        message: String,
    },
    #[error("the API server {url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    #[error("the API server {url} did not answer within {seconds} s")]
    Silent { url: String, seconds: u64 },
    /// The connection of a watch was lost under way.
    #[error("the watch of {url} broke off: {why}")]
    Broken { url: String, why: String },
    #[error("the API server {url} sent what makes no sense: {why}")]
    Garbage { url: String, why: String },
    #[error("a request could not be built: {why}")]
    Request { why: String },
}

impl Failure {
    /// Whether it is the server's answer with this status.
    pub fn is_answer(&self, status: u16) -> bool {
        matches!(self, Self::Answered { code, .. } if *code == status)
    }

    /// Whether the server is there and will not do it: asking again changes
    /// nothing by itself. One that has too much to do (429), or is ill itself
    /// (500 and more), refuses nothing.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Answered { code, .. } => (400..500).contains(code) && *code != 429,
            Self::Forbidden { .. } | Self::Unauthorized { .. } | Self::Garbage { .. } => true,
            Self::Kubeconfig { .. } | Self::InCluster { .. } | Self::Request { .. } => true,
            _ => false,
        }
    }

    pub fn kubeconfig(path: &Path, error: &dyn Error) -> Self {
        Self::Kubeconfig {
            path: path.to_owned(),
            why: chain(error),
        }
    }

    pub fn in_cluster(error: &dyn Error) -> Self {
        Self::InCluster { why: chain(error) }
    }

    pub fn request(error: &dyn Error) -> Self {
        Self::Request { why: chain(error) }
    }

    pub fn silent(url: &str, waited: Duration) -> Self {
        Self::Silent {
            url: url.to_owned(),
            seconds: waited.as_secs(),
        }
    }

    pub fn broken(url: &str, why: &str) -> Self {
        Self::Broken {
            url: url.to_owned(),
            why: one_line(why),
        }
    }

    pub fn garbage(url: &str, error: &dyn Display) -> Self {
        Self::Garbage {
            url: url.to_owned(),
            why: one_line(&error.to_string()),
        }
    }

    pub fn unversioned(url: &str) -> Self {
        Self::Garbage {
            url: url.to_owned(),
            why: "the list has no resourceVersion".to_owned(),
        }
    }

    /// A list that needs nothing kept, and is answered so all the same.
    pub fn expired_list(url: &str) -> Self {
        Self::Answered {
            url: url.to_owned(),
            code: 410,
            message: "a new list has expired".to_owned(),
        }
    }

    /// An error of the client, which may be the server's answer.
    pub fn answer(url: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::coded(url, status.code, &status.message),
            other => Self::Unreachable {
                url: url.to_owned(),
                why: chain(other),
            },
        }
    }

    /// What the server said instead of what was asked for.
    pub fn coded(url: &str, code: u16, message: &str) -> Self {
        let url = url.to_owned();
        let message = one_line(message);
        match code {
            401 => Self::Unauthorized { url },
            403 => Self::Forbidden { url, message },
            410 => Self::Expired,
            code => Self::Answered { url, code, message },
        }
    }
}

/// What an error and those behind it say, each thing once.
fn chain(error: &dyn Error) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // Many errors repeat what is behind them.
        said.retain(|earlier| !earlier.contains(&text));
        said.push(text);
        next = error.source();
    }
    one_line(&said.join(": "))
}
