//! What comes from outside, fuzzed.
//!
//! Each module is a target: its function `check` takes any bytes and asserts the laws
//! that must hold for them, by the public functions of the product's crates. The
//! programs in `fuzz_targets/` pass it what libFuzzer makes up (`make fuzz`), the test
//! `replay` passes it the files in `corpus/` and changes of them.
//!
//! A law that does not hold is a panic.

pub mod agent_socket;
mod answer;
pub mod flags;
pub mod iptables_legacy;
pub mod kept_nodes;
mod kinds;
pub mod nf_tables;
pub mod node_file;
pub mod node_list;
pub mod node_watch;
mod nodes;
pub mod plugin;
pub mod rtnetlink;
pub mod ruleset;
pub mod services;
pub mod store;

/// A target: its name, and its laws as a function that panics.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by the names of their corpora and of their programs.
pub const TARGETS: [Target; 13] = [
    ("agent_socket", agent_socket::check),
    ("flags", flags::check),
    ("iptables_legacy", iptables_legacy::check),
    ("kept_nodes", kept_nodes::check),
    ("nf_tables", nf_tables::check),
    ("node_file", node_file::check),
    ("node_list", node_list::check),
    ("node_watch", node_watch::check),
    ("plugin", plugin::check),
    ("rtnetlink", rtnetlink::check),
    ("ruleset", ruleset::check),
    ("services", services::check),
    ("store", store::check),
];
