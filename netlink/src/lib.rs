//! The little that plugin and agent share of rtnetlink: typed operations on
//! links, addresses, routes, neighbours and FDB entries.
//!
//! [`link`], [`address`], [`route`] and [`neighbour`] build [`request::Request`]s
//! and decode what the kernel dumps; they do no I/O but for the few functions
//! that take a [`socket::Socket`]. The socket is synchronous: the plugin lives
//! for a millisecond, and the agent's kernel thread wants order, not
//! concurrency. It insists on strict checking, repeats interrupted dumps, reads
//! the kernel's extended answers, and sends many requests in one system call,
//! with one answer each. [`monitor`] listens to changes; [`netns`] opens things
//! inside another network namespace.

pub mod address;
pub mod error;
pub mod leaving;
pub mod link;
pub mod monitor;
pub mod neighbour;
pub mod netns;
pub mod owned;
pub mod request;
pub mod route;
pub mod socket;

pub use error::{Cause, Error};
pub use request::Request;
pub use socket::Socket;
