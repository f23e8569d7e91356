//! The program `tweed-install`, run as a person or an init container runs it.
//!
//! Nothing of it meets this machine: files are below a temporary `--root`, and
//! whatever looks at the network does so in a namespace that is thrown away.
//! Needs root, for those and for file systems that refuse.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends at what it did not expect"
)]

mod node;

mod check;
mod displaced;
mod docs;
mod host;
mod pause;
mod plugins;
mod uninstall;
