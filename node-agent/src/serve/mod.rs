//! The HTTP server: whether the agent is alive (`/healthz`), whether this node's
//! network is ready and if not why (`/readyz`), and metrics (`/metrics`).
//!
//! Every part of the agent reports its problems to the board in [`status`], and
//! counts in [`metrics`]; [`http`] answers from both. Nothing here calls the
//! reconcile loop: if the port is taken, there are no answers, but the network
//! is not affected.

mod connection_limit;
pub mod http;
pub mod metrics;
pub mod status;
