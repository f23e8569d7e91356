//! The node agent: watches Nodes and keeps this node's kernel as it should be.
//!
//! How data flows: [`source`] turns an API server or a node file into events;
//! [`cluster`] keeps them as a snapshot and refuses what a Node may not claim;
//! [`plan`] decides, purely, what the kernel should hold ([`plan::desired`]);
//! `kernel` observes, diffs and applies, one reconciler per kind of object,
//! `nft` does the same for the table `inet tweed`, `pods` for the links of
//! local pods, and `legacy` looks at the old iptables; `publish` writes the files that others read, `serve` answers
//! health checks and metrics, [`report`] tells Kubernetes. `agent` is the loop that ties them, `program` what
//! runs it, and `sole` sees to it that there is only one.

pub mod agent;
pub mod config;
pub mod kernel;
pub mod logging;
pub mod pods;
pub mod program;
pub mod publish;
pub mod report;
pub mod serve;
