//! The program `tweed-install`, run as a person or an init container runs it.
//!
//! The tests do not touch this machine: files are below a temporary `--root`, and
//! what reads the network runs in a temporary namespace. They need root for the
//! namespaces, and for file systems that refuse writes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends at what it did not expect"
)]

#[expect(dead_code, reason = "nothing is moved between these namespaces")]
#[path = "../../../nft/tests/nft/lab.rs"]
mod lab;
mod node;
#[path = "../../../node-agent/tests/program/refused_values.rs"]
mod refused_values;

mod check;
mod displaced;
mod docs;
mod host;
mod kube_proxy;
mod pause;
mod plugins;
mod uninstall;
