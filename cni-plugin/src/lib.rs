//! The CNI plugin: it connects a pod to its node by a veth pair, with its addresses
//! and its routes.
//!
//! ```text
//! runtime ─▶ main ─▶ tweed_cni::run ─▶ plugin ─▶ verbs ─┬▶ add     reserve, create, return the result
//!                                                       ├▶ del     put the link out of use, free the address
//!                                                       ├▶ check   compare expected with actual state
//!                                                       ├▶ status  could a pod be added now?
//!                                                       └▶ gc      del of everything that is not listed
//! ```
//!
//! A verb reads what it needs of the network config ([`config`]), takes addresses
//! from the store in `tweed-ipam` or from another IPAM plugin ([`delegate`]), and
//! changes the kernel through a [`datapath`], where a pure plan decides on the steps.
//! While network policies are in force an ADD waits until the agent has enforced its pod
//! ([`enforcement`]).
//! The protocol itself is in `tweed-cni`; names and marks are in `tweed-core`.
//!
//! What always holds: an ADD that fails leaves nothing; an ADD that is killed
//! leaves a record by which DEL, GC or the agent's sweep find the rest; nothing
//! that does not belong to tweed is changed.

pub mod config;
pub mod datapath;
pub mod delegate;
mod enforcement;
mod ipam;
pub mod not_done;
mod plugin;
mod ready;
// One piece for the tests of all crates.
#[cfg(test)]
#[path = "../../core/tests/common/script.rs"]
mod script;
mod tweed;
mod verbs;

pub use tweed::Tweed;
