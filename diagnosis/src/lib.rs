//! What of this machine is in tweed's way.

pub mod cni_configs;
pub mod iptables_legacy;
pub mod kernel_version;
