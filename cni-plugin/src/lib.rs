//! The CNI plugin: one veth pair, its addresses and its routes.
//!
//! ```text
//! runtime ─▶ main ─▶ protocol::run ─▶ plugin::Tweed ─┬▶ add     reserve, build, answer
//!            (edges)                                 ├▶ del     take away, free
//!                                                    ├▶ check   expected against observed
//!                                                    ├▶ status  may pods come?
//!                                                    └▶ gc      del of all that is not listed
//! ```
//!
//! [`config`] reads what stdin says; [`plan`] decides, purely, which steps make
//! an attachment; [`kernel`] carries steps out and observes; [`delegate`] runs
//! other IPAM plugins. [`identity`] says what belongs to whom. The address store
//! and the protocol itself are in `tweed-ipam`.
//!
//! What always holds: an ADD that fails leaves nothing; an ADD that is killed
//! leaves a record by which DEL, GC or the agent's sweep find the rest; nothing
//! that is not ours is changed.

mod add;
mod check;
pub mod config;
mod del;
pub mod delegate;
mod gc;
pub mod identity;
mod ipam;
pub mod kernel;
pub mod plan;
mod plugin;
mod status;

pub use plugin::Tweed;
