//! `tweed-install uninstall` on a node of the lab that had a real agent and real pods.
//! Needs root.

#![expect(clippy::unwrap_used, reason = "a test ends at an unexpected result")]

mod uninstall;
