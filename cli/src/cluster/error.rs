//! Why the cluster, or one of its agents, does not answer.

use std::fmt;

use kube::Error;

use tweed_watch::client::chain;

/// A right that the account has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRight {
    /// What it may not do.
    pub verb: &'static str,
    /// With which resource.
    pub resource: String,
    /// In which namespace, if the resource has one.
    pub namespace: Option<String>,
}

impl MissingRight {
    /// The right to read what is at a path of the API: `/api/v1/namespaces/NAME/pods`.
    pub fn of_path(path: &str) -> Self {
        let without_query = path.split('?').next().unwrap_or_default();
        let words: Vec<&str> = without_query.trim_matches('/').split('/').collect();
        // Groups are below `apis`, the core is below `api`.
        let version = if words.first() == Some(&"apis") { 3 } else { 2 };
        let (namespace, words) = match words.get(version..).unwrap_or_default() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (verb, resource) = match words {
            [resource, _, part, ..] => ("get", format!("{resource}/{part}")),
            [resource, _] => ("get", (*resource).to_owned()),
            [resource] => ("list", (*resource).to_owned()),
            [] => ("get", path.to_owned()),
        };
        Self {
            verb,
            resource,
            namespace: namespace.map(ToOwned::to_owned),
        }
    }

    /// The right to run a program in pods of this namespace. WebSockets begin with GET; from
    /// Kubernetes 1.35 on the API server asks for `create` besides.
    pub fn exec(namespace: &str) -> Self {
        Self {
            verb: "get and, from Kubernetes 1.35 on, create",
            resource: "pods/exec".to_owned(),
            namespace: Some(namespace.to_owned()),
        }
    }
}

impl fmt::Display for MissingRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, resource, .. } = self;
        write!(f, "the right to {verb} {resource}")?;
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => write!(f, " in the whole cluster"),
        }
    }
}

/// What was asked of the API server has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// There is no kubeconfig, or it cannot be used.
    #[error("no kubeconfig can be used: {0}")]
    Kubeconfig(String),
    /// The API server does not know the account.
    #[error("the API server refuses the credentials: {0}")]
    Unauthorized(String),
    /// The account lacks a right.
    #[error("you lack {right}: {message}")]
    Forbidden {
        /// The right.
        right: MissingRight,
        /// The API server's words.
        message: String,
    },
    /// There is no such object.
    #[error("not found: {0}")]
    NotFound(String),
    /// The API server cannot be reached.
    #[error("the API server {server} cannot be reached: {why}")]
    Unreachable {
        /// Its URL.
        server: String,
        /// Why.
        why: String,
    },
    /// The API server answers something else.
    #[error("the API server answers: {0}")]
    Answer(String),
}

impl ClusterError {
    /// What an error of the client means. `right` is what a refusal is about.
    pub(super) fn of(error: Error, server: &str, right: impl FnOnce() -> MissingRight) -> Self {
        match error {
            Error::Api(status) => {
                let message = status.message.clone();
                match status.code {
                    401 => Self::Unauthorized(message),
                    403 => Self::Forbidden {
                        right: right(),
                        message,
                    },
                    404 => Self::NotFound(message),
                    _ => Self::Answer(message),
                }
            }
            error @ (Error::SerdeError(_) | Error::UpgradeConnection(_)) => {
                Self::Answer(chain(&error))
            }
            error @ Error::Auth(_) => Self::Unauthorized(chain(&error)),
            error => Self::Unreachable {
                server: server.to_owned(),
                why: match &error {
                    // Its own words say nothing.
                    Error::Service(source) => chain(&**source),
                    error => chain(error),
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_that_is_missing_is_named_exactly() {
        for (path, right) in [
            ("/api/v1/nodes?limit=5", "list nodes in the whole cluster"),
            (
                "/api/v1/namespaces/kube-system/pods?limit=5",
                "list pods in namespace kube-system",
            ),
            (
                "/api/v1/namespaces/n/pods/tweed-x/log?tailLines=5",
                "get pods/log in namespace n",
            ),
            (
                "/apis/apps/v1/namespaces/n/daemonsets/tweed",
                "get daemonsets in namespace n",
            ),
        ] {
            let expected = format!("the right to {right}");
            assert_eq!(MissingRight::of_path(path).to_string(), expected);
        }
        assert_eq!(
            MissingRight::exec("n").to_string(),
            "the right to get and, from Kubernetes 1.35 on, create pods/exec in namespace n"
        );
    }
}
