//! `tweed-install uninstall` on a node of the lab, after a real agent and real
//! pods. Needs root.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod uninstall;
