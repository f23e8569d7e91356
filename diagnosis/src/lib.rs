//! What of this machine is in tweed's way: the kernel's version, other tables that
//! drop packets of pods or of the overlay or rewrite those between pods, other CNI configs,
//! plugins that cannot be looked at, routing rules that hide the routes to pods, other
//! programs that serve Services.
//!
//! Each module looks at one thing and gives problems
//! ([`tweed_core::problem::Problem`]) with their cure. Nothing here changes anything.
//! The agent asks while it runs, `tweed-install check` once.

pub mod cni_configs;
pub mod cni_plugins;
mod extension;
pub mod iptables_legacy;
pub mod kernel_version;
pub mod nf_tables;
pub mod policy_routing;
mod probe;
mod ranges;
pub mod service_proxy;
mod walk;

pub use probe::{Flow, FlowLink, Packets, Vxlan};
