//! What of this machine is in tweed's way: the kernel's version, other tables that
//! drop pods' packets, other CNI configs.
//!
//! Each module looks at one thing and gives problems
//! ([`tweed_core::problem::Problem`]) with their cure. Nothing here changes anything.
//! The agent asks while it runs, `tweed-install check` once.

pub mod cni_configs;
pub mod forward_drop;
pub mod iptables_legacy;
pub mod kernel_version;
mod probe;
