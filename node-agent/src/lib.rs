//! The node agent: watches Nodes and policies and keeps this node's kernel in the
//! desired state.
//!
//! How data flows: `tweed_watch` turns an API server or a file of manifests into
//! events ([`sources`]); [`state`] stores them, each component's in its [`index`];
//! [`kept_nodes`] keeps the Nodes for the next start; [`run_loop`] calls [`reconcile`]
//! when something has changed. There `tweed_planner` computes, purely, what the kernel
//! should hold, and one reconciler for each part of it observes the kernel, computes the
//! difference and applies it. [`publish`] then writes the files that others read. All of
//! them report problems to the board in [`serve`], which answers health checks and
//! metrics, and which [`report`] passes on to Kubernetes. The plugin asks on a socket,
//! [`agent_socket`], when the policies are enforced for its pod ([`enforce`]); [`waiting_pods`] holds who waits.
//! [`agent`] connects these parts, and [`program`] runs them with the resolved
//! [`config`]. What others ask for may use [`descriptors`] up to its share, and what is not
//! needed any more of [`memory`] is given back. [`probe`] asks the other nodes whether they
//! are reached. [`fast_path`] is what people say of the fast path.

pub mod agent;
pub mod agent_socket;
pub mod config;
pub mod descriptors;
pub mod drop_log;
pub mod enforce;
pub mod fast_path;
pub mod index;
pub mod kept_nodes;
pub mod logging;
mod members;
pub mod memory;
pub mod other_agent;
pub mod packet;
pub mod probe;
pub mod program;
pub mod publish;
pub mod reconcile;
pub mod report;
pub mod run_loop;
pub mod serve;
pub mod sources;
pub mod spread;
pub mod state;
pub mod tasks;
#[cfg(test)]
mod testing;
pub mod waiting_pods;

/// The version of the agent, with its commit.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TWEED_COMMIT"), ")");
