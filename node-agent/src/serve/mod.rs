//! What the agent tells over HTTP: whether it is alive (`/healthz`), whether
//! this node's network is ready and if not why (`/readyz`), and numbers
//! (`/metrics`).
//!
//! [`status`] is the board that everybody reports problems to and that
//! everything for people is read from; [`metrics`] are the numbers; [`http`]
//! answers. Nothing here reaches into the loop: it goes on when nobody asks,
//! and a port that is taken costs the answers, never the network.

mod connection_limit;
pub mod http;
pub mod metrics;
pub mod status;
