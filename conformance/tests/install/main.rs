//! `tweed-install` on nodes of the lab with real agents and real pods: `uninstall`, and the
//! hand-over of Services from kube-proxy. Needs root.

#![expect(clippy::unwrap_used, reason = "a test ends at an unexpected result")]

mod handover;
mod uninstall;
