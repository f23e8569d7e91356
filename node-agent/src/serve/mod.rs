//! The HTTP server: whether the agent is alive (`/healthz`), whether this node's
//! network is ready and if not why (`/readyz`), and metrics (`/metrics`).
//!
//! Every part of the agent reports its problems to the board in [`status`], and
//! counts in [`metrics`]; [`http`] answers from both. Nothing here calls the
//! reconcile loop: if a port is taken, there are no answers, but the network
//! is not affected.
//!
//! There are two listeners. That for metrics may be reached by anybody, and
//! [`connections`] limits what anybody can hold open there; that for the probes is
//! on the loopback address, so that nobody outside the node can make the kubelet
//! end the agent.
//!
//! With `--services on` load balancers and dashboards find in [`services`] what kube-proxy
//! has for them.
//!
//! systemd is told by [`watchdog`] what kubelet asks `/healthz`.

mod connections;
pub mod details;
mod drops;
mod exposition;
pub mod fast_path;
pub mod http;
mod listener;
pub mod metrics;
pub mod process_metrics;
pub mod review;
pub mod services;
pub mod status;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod watch_silence;
pub mod watchdog;
