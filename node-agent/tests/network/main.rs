//! The agent on a node of its own: what it makes of the kernel, seen with the
//! eyes of `ip` and `bridge`. Needs root, `ip`, `bridge` and `nft`: without
//! them the tests fail.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod churn;
mod conflicts;
mod cost;
mod descriptors;
mod endless_files;
mod families;
mod files;
mod foreign_rules;
mod leftovers;
mod link_cost;
mod namespace;
mod node;
mod nodes;
mod overlay;
mod overrun;
mod pod;
mod pods;
mod policy;
#[path = "../../../core/tests/common/script.rs"]
mod script;
mod service_health;
mod services;
mod stale_flows;
mod storm;
mod sysctls;
mod thread;
mod traffic_pod;
mod udp_servers;
mod underlay;
