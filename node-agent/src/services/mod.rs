//! What the agent watches for Services, and what it knows from that.
//!
//! How data goes through: a source of each kind runs from the start
//! ([`watches`]); each event goes into the [`index`], in the state that both threads
//! share, and wakes the kernel thread. That plans and writes
//! ([`crate::reconcile::services`]).

pub mod explain;
pub mod index;
pub mod watches;
