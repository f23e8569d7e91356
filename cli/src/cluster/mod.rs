//! The cluster: its Nodes, tweed's pods on them, and asking the agents by exec.
//!
//! [`Cluster`] is synchronous for its callers; a runtime of its own runs the requests, many at
//! once where many agents are asked. Objects are read as JSON, with the fields used alone
//! ([`objects`]), so that no version of Kubernetes is too new.

mod error;
mod exec;
mod fan_out;
pub mod places;

use std::time::Duration;

use http::Request;
use kube::config::{Kubeconfig, KubeconfigError};
use kube::{Client, Error};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tweed_watch::client::{chain, client_of_people};

pub use error::{ClusterError, MissingRight};
pub use exec::{Output, PROGRAM};
pub use fan_out::fan_out;
pub use places::{Agent, Place};

use crate::agents::Agents;
use crate::answered::{Answered, Unanswered};
use crate::target::Common;
use fan_out::Progress;
use places::CONTAINER;

/// Selects the agents' pods: the labels of the DaemonSet.
pub const AGENT_LABELS: &str = "app.kubernetes.io/name=tweed,app.kubernetes.io/component=agent";
/// How many agents are asked at once.
const PARALLEL: usize = 32;
/// Maximum number of objects in one answer of the API server.
const PAGE: usize = 500;
/// Maximum time for one answer of the API server, besides those of agents.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Maximum time for the answer of an agent.
const ASK_WITHIN: Duration = Duration::from_secs(30);
/// The same where Kubernetes says that the node is not ready: mostly it is gone.
const UNREADY_WITHIN: Duration = Duration::from_secs(10);

/// A connection to a cluster, as of one kubeconfig, and which of its nodes are meant.
pub struct Cluster {
    runtime: Runtime,
    client: Client,
    server: String,
    namespace: String,
    /// The Nodes that were named; all if none was.
    chosen: Vec<String>,
}

impl Cluster {
    /// The cluster of a kubeconfig: of the one that was named, or else of `KUBECONFIG` or
    /// `~/.kube/config`. In a pod without one its service account is used.
    ///
    /// # Errors
    /// The kubeconfig cannot be used. Nobody is connected to yet.
    pub fn connect(common: &Common) -> Result<Self, ClusterError> {
        let kubeconfig = |error: &dyn std::error::Error| ClusterError::Kubeconfig(chain(error));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| kubeconfig(&error))?;
        let found = kubeconfig_of(common).map_err(|error| kubeconfig(&error))?;
        let client = runtime.block_on(client_of_people(found));
        let (client, server) = client.map_err(|error| kubeconfig(&*error))?;
        Ok(Self {
            runtime,
            client,
            server,
            namespace: common.namespace.clone(),
            chosen: common.nodes.clone(),
        })
    }

    /// tweed's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The Nodes that are meant, with their agents: those that were named, or all.
    ///
    /// # Errors
    /// [`ClusterError`]; one that was named is neither a Node nor has an agent.
    pub fn places(&self) -> Result<Vec<Place>, ClusterError> {
        let nodes = self.list("/api/v1/nodes", "")?;
        let path = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let labels = AGENT_LABELS.replace('=', "%3D");
        let pods = self.list(&path, &format!("labelSelector={labels}"))?;
        let mut places = places::places(&nodes, places::agents(&pods));
        let is_there = |name: &&String| places.iter().any(|place| place.node == **name);
        if let Some(missing) = self.chosen.iter().find(|name| !is_there(name)) {
            return Err(ClusterError::NotFound(format!(
                "there is no Node {missing}"
            )));
        }
        places.retain(|place| self.chosen.is_empty() || self.chosen.contains(&place.node));
        Ok(places)
    }

    /// Warnings of the agents about Nodes, and all about objects in tweed's namespace.
    ///
    /// # Errors
    /// [`ClusterError`].
    pub fn warnings(&self) -> Result<Vec<Value>, ClusterError> {
        let mut found = Vec::new();
        // Events of Nodes, which have no namespace, are in `default`.
        for (namespace, selector) in [
            (
                "default",
                "type%3DWarning,involvedObject.kind%3DNode,source%3Dtweed-agent",
            ),
            (&self.namespace, "type%3DWarning"),
        ] {
            let path = format!("/api/v1/namespaces/{namespace}/events");
            let query = format!("fieldSelector={selector}");
            found.extend(self.list(&path, &query)?);
        }
        Ok(found)
    }

    /// The last `lines` lines of the logs of the agents at these places, or of their containers
    /// before these, in the order of the places.
    pub fn logs(
        &self,
        places: &[Place],
        lines: usize,
        before: bool,
    ) -> Vec<Result<String, Unanswered>> {
        let read = async |place: &Place| {
            let agent = place.agent.as_ref().ok_or_else(no_agent)?;
            let path = format!(
                "/api/v1/namespaces/{}/pods/{}/log?container={}&tailLines={lines}&previous={before}",
                agent.namespace, agent.pod, CONTAINER
            );
            let text = async {
                self.client
                    .request_text(request(&path)?)
                    .await
                    .map_err(|error| self.error(error, &path))
            };
            let text = timeout(ANSWER_WITHIN, text).await;
            text.unwrap_or(Err(self.silent()))
                .map_err(|error| Unanswered::new(error.to_string()))
        };
        self.runtime
            .block_on(fan_out(places, PARALLEL, read, || ()))
    }

    /// Asks the agents at these places, many at once, with a bar on stderr if that is a terminal:
    /// what `tweedctl` with these words prints in their containers, each within `within`. The
    /// answers are in the order of the places.
    pub fn ask_all(
        &self,
        places: &[Place],
        words: &[String],
        within: Duration,
    ) -> Vec<Result<Output, Unanswered>> {
        let mut progress = Progress::on_terminal(places.len());
        let ask = async |place: &Place| {
            let agent = place.agent.as_ref().ok_or_else(no_agent)?;
            let is_ready = place.unready.is_none();
            let within = if is_ready {
                within
            } else {
                within.min(UNREADY_WITHIN)
            };
            exec::exec(&self.client, agent, words, within).await
        };
        let asked = fan_out(places, PARALLEL, ask, || progress.step());
        self.runtime.block_on(asked)
    }

    /// All objects at `path`, page by page.
    fn list(&self, path: &str, query: &str) -> Result<Vec<Value>, ClusterError> {
        let mut items = Vec::new();
        let mut page = String::new();
        loop {
            let mut list = self.read(&format!("{path}?limit={PAGE}{page}&{query}"))?;
            if let Value::Array(more) = list["items"].take() {
                items.extend(more);
            }
            match places::text(&list, "/metadata/continue") {
                "" => return Ok(items),
                next => page = format!("&continue={next}"),
            }
        }
    }

    fn read(&self, path: &str) -> Result<Value, ClusterError> {
        let read = self.client.request(request(path)?);
        let read = async { timeout(ANSWER_WITHIN, read).await };
        match self.runtime.block_on(read) {
            Ok(answer) => answer.map_err(|error| self.error(error, path)),
            Err(_) => Err(self.silent()),
        }
    }

    fn error(&self, error: Error, path: &str) -> ClusterError {
        ClusterError::of(error, &self.server, || MissingRight::of_path(path))
    }

    fn silent(&self) -> ClusterError {
        ClusterError::Unreachable {
            server: self.server.clone(),
            why: format!("no answer within {} s", ANSWER_WITHIN.as_secs()),
        }
    }
}

impl Agents for Cluster {
    fn ask(
        &self,
        nodes: Option<&[String]>,
        arguments: &[String],
    ) -> anyhow::Result<Vec<Answered<Vec<u8>>>> {
        let mut places = self.places()?;
        if let Some(nodes) = nodes {
            places.retain(|place| nodes.contains(&place.node));
        }
        let json = ["-o".to_owned(), "json".to_owned()];
        let words = [arguments, &json].concat();
        let answers = self.ask_all(&places, &words, ASK_WITHIN);
        let printed = |answer: Result<Output, Unanswered>| match answer? {
            output if output.stdout.is_empty() => Err(Unanswered::new(format!(
                "its tweedctl ends with {} and says: {}",
                output.code, output.stderr
            ))),
            output => Ok(output.stdout),
        };
        let names = places.into_iter().map(|place| place.node);
        Ok(names.zip(answers.into_iter().map(printed)).collect())
    }

    fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.read(path) {
            Err(ClusterError::NotFound(_)) => Ok(None),
            read => Ok(Some(read?)),
        }
    }
}

fn no_agent() -> Unanswered {
    Unanswered::new("no agent runs there: tweed's DaemonSet has no pod on this Node")
}

fn request(path: &str) -> Result<Request<Vec<u8>>, ClusterError> {
    let request = Request::get(path).body(Vec::new());
    request.map_err(|error| ClusterError::Answer(format!("{path}: {error}")))
}

/// The kubeconfig that was typed, or else the usual one with the context that was typed; none in
/// a pod without one.
fn kubeconfig_of(common: &Common) -> Result<Option<Kubeconfig>, KubeconfigError> {
    let read = match &common.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let is_usual = common.kubeconfig.is_none() && common.context.is_none();
    match read {
        Err(_) if is_usual && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => Ok(None),
        read => {
            let mut kubeconfig = read?;
            if common.context.is_some() {
                kubeconfig.current_context.clone_from(&common.context);
            }
            Ok(Some(kubeconfig))
        }
    }
}

#[cfg(test)]
mod tests;
