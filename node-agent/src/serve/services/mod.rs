//! What load balancers and dashboards expect of whoever serves Services, under the names
//! and ports of kube-proxy; only with `--services on`.
//!
//! - [`health_checks`]: an HTTP server for each `healthCheckNodePort`.
//! - [`proxy_health`]: `/healthz` and `/livez` on port 10256.
//! - [`metrics`]: those of kube-proxy, on its port 10249 and beside the agent's own.
//!
//! All of them tell from [`sync`] how far the kernel is behind what was heard.

pub mod health_checks;
pub mod metrics;
pub mod proxy_health;
pub mod sync;
