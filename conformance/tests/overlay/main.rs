//! The overlay, whole and real: agents in namespaces over a node file, pods
//! attached by `cnitool`, on an underlay as hostile as real ones. What is
//! asserted is what a user would see: a packet that arrives or does not, what
//! `ip`, `bridge` and `nft` print, what the agent says. Needs root.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends at what it did not expect"
)]

mod forge;
mod shape;

mod heal;
mod hostile;
mod nodes;
mod paths;
mod restart;
mod underlay;
