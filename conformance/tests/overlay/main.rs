//! The overlay of several nodes: real agents in namespaces that read a node file, pods
//! attached by `cnitool`, and an underlay that drops foreign sources. The tests check
//! what a user can see: whether a packet arrives, the output of `ip`, `bridge` and
//! `nft`, and the agent's answers. Needs root.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends at an unexpected result, and says how much it has tried"
)]

mod packets;
mod state;

mod crash;
mod fast_path;
mod hostile;
mod injected;
mod ipvs;
mod lossy;
mod nodes;
mod paths;
mod policy;
mod probes;
mod repair;
mod restart;
mod sctp;
mod tweedctl;
mod underlay;
