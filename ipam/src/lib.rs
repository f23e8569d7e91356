//! The address store of one node: which attachment has which address.
//!
//! There is no daemon. Every program that needs the store opens the same folder,
//! `/run/tweed/ipam/<network>/`, takes its lock and makes one change.
//!
//! ```text
//! network config ─▶ ranges   which addresses may be given
//!                   store ──▶ a record per attachment, a claim per address
//!                   sweep ──▶ frees records whose owner no longer exists
//! ```
//!
//! [`record`] is the frozen format of a record: programs of neighbouring versions
//! read each other's. The `tweed` plugin and the agent use the store as a library;
//! [`plugin`] is the program `tweed-ipam`, the store as an IPAM plugin for other
//! main plugins. Names and marks are in `tweed-core`, the CNI protocol is in
//! `tweed-cni`.

mod codes;
pub mod plugin;
mod process;
pub mod ranges;
pub mod record;
pub mod resolv_conf;
pub mod store;
pub mod sweep;
