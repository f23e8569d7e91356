//! What the planners of all components (overlay, policy, Services) have in common, and pure:
//! no client and no I/O.
//!
//! ```text
//! watch ── Event<T> ──▶ store::Store<T> ──▶ planner ── Step<Delta> ──▶ Progress, table in the kernel
//! ```
//!
//! - [`store`] holds the objects of one kind, whichever it is; [`watched`] says what an event
//!   calls for.
//! - [`schema`] makes of one row for each set what is desired, and the changes of it.
//! - [`step`] is what a planner says after each change of its inputs.
//! - [`progress`] is the only answer to "does the kernel hold the plan?".
//! - [`explain`] is what people ask, and what every component answers; [`message`] is how
//!   that is written on the agent's socket.
//! - [`drops`] says why rules drop packets.
//! - [`peers`] is what a node knows of the others by asking them.
//! - [`drops`] says why rules drop packets.

pub mod drops;
pub mod explain;
pub mod message;
pub mod peers;
pub mod progress;
pub mod schema;
pub mod step;
pub mod store;
pub mod watched;

pub use progress::Progress;
pub use step::Step;
