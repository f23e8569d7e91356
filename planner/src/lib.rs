//! What the kernel should hold, decided from data alone: no client and no I/O.
//!
//! ```text
//! watch ── Event<T> ──▶ store::Store<T> ─┐
//!                                        ├─▶ overlay::planner ─▶ Network, Delta, problems ─▶ reconcilers
//! kernel ── overlay::host::HostFacts ────┘
//! ```
//!
//! - [`tweed_component::store`] holds the objects of one kind, whichever it is: one store
//!   for each kind, fed by that kind's watch.
//! - [`overlay`] plans how packets reach the pods of other nodes. It needs the
//!   Nodes and what this machine has.
//! - [`probe`] asks the other nodes whether they are reached.
//! - Another planner (policy, services) is a folder beside `overlay`. It reads
//!   its own stores and has the same shape: from its inputs and from what has
//!   changed in them it makes either a whole new plan, or what makes that plan
//!   of the last one, or it holds, with the problems that say why. Until each
//!   store that it needs is complete it holds, so that nothing is removed from
//!   the kernel because an object is not known yet. A reconciler asks it what
//!   has changed since the [version](tweed_core::version::Version) that it last
//!   carried out.

mod addresses;
pub mod config;
// Tests here and beside this crate have files in common.
#[cfg(test)]
extern crate self as tweed_planner;
mod numbers;
pub mod overlay;
pub mod policy;
pub mod probe;
mod protocols;
pub mod services;
mod tables;

#[cfg(test)]
mod tests;
