//! What plugin, agent and installer ask of the kernel over netlink: typed,
//! synchronous, aware of network namespaces.
//!
//! The way of the data: [`link`], [`qdisc`], [`address`], [`route`], [`rule`], [`path`],
//! [`neighbour`] and [`fdb`] (rtnetlink) and [`nf`] (nf_tables) build a [`request::Request`]; a
//! [`socket::Socket`] sends it and reads the answer; the same modules decode what
//! the kernel dumps. A [`monitor::Monitor`] reads notifications, which say only
//! where to look again. Nothing but the socket, the monitor and [`netns`] does I/O.
//!
//! There is one socket for all netlink protocols, [`socket::Socket<P>`]. It is
//! synchronous: the plugin lives for a millisecond, and the agent's kernel thread
//! needs order, not concurrency. [`Socket`], [`Request`] and [`Monitor`] are those
//! of rtnetlink; [`nf`] has its own.
//!
//! [`owned`] is the table of what is tweed's in the kernel, [`leaving`] the
//! decision how links on their way out are deleted.

pub mod answer;
pub mod error;
pub mod leaving;
pub mod monitor;
pub mod netns;
pub mod nf;
pub mod owned;
pub mod protocol;
pub mod request;
mod rt;
pub mod socket;

pub use error::{Cause, Error};
pub use rt::{
    Monitor, Notification, Request, Rtnetlink, Socket, address, fdb, link, neighbour, path, qdisc,
    route, rule,
};
