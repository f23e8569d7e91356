//! `tweed-install` on nodes of the lab with real agents and real pods: `uninstall`, the
//! hand-over of Services from kube-proxy, and what it finds beside other versions of `nft`.
//! Needs root.

#![expect(clippy::unwrap_used, reason = "a test ends at an unexpected result")]

mod handover;
mod newest_nft;
mod uninstall;
