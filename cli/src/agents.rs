//! What the verbs need of a cluster: its agents, and objects of its API.

use anyhow::Result;
use serde_json::Value;

use crate::answered::Answered;

/// The agents of a cluster.
pub trait Agents {
    /// Has `tweedctl ARGUMENTS -o json` run beside the agent of each of these nodes, or of all
    /// that were chosen by `--node`, which without it are all; what each prints, in the order
    /// of the nodes' names. A node without an agent that runs is one that has not answered.
    ///
    /// # Errors
    /// The cluster cannot be asked at all.
    fn ask(&self, nodes: Option<&[String]>, arguments: &[String])
    -> Result<Vec<Answered<Vec<u8>>>>;

    /// The object or the list at this path of the API, with its query; none if it does not
    /// exist.
    ///
    /// # Errors
    /// The API server does not answer, or forbids it.
    fn get(&self, path: &str) -> Result<Option<Value>>;
}
