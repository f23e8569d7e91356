//! The node agent: watches Nodes and keeps this node's kernel in the desired state.
//!
//! How data flows: `tweed_watch` turns an API server or a file of Nodes into
//! events; [`state`] stores them, [`kept_nodes`] keeps them for the next start; [`run_loop`] calls [`reconcile`] when something has
//! changed. There `tweed_planner` computes, purely, what the kernel should hold, and
//! one reconciler for each part of it observes the kernel, computes the difference
//! and applies it. [`publish`] then writes the files that others read. All of them
//! report problems to the board in [`serve`], which answers health checks and
//! metrics, and which [`report`] passes on to Kubernetes. [`agent`] connects these
//! parts, and [`program`] runs them with the resolved [`config`].

pub mod agent;
pub mod config;
pub mod kept_nodes;
pub mod logging;
pub mod program;
pub mod publish;
pub mod reconcile;
pub mod report;
pub mod run_loop;
pub mod serve;
pub mod state;
pub mod tasks;
