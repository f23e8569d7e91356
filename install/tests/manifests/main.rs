//! The files that install tweed are up to date, consistent with each other, and
//! match the programs.
//!
//! The kustomize base is the source. `make manifests` (these tests with
//! `TWEED_UPDATE_DOCS=1`) writes from it, and from the agent's flags:
//! `install/tweed.yaml`, the chart's flags and their schema, the rules for the
//! Prometheus operator, and the address of the project. Without that variable the tests compare.
//!
//! What needs `helm`, `promtool`, `kubectl` or an image is ignored unless asked
//! for (`make e2e` does): `cargo test -p tweed-install --test manifests --
//! --ignored`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod address;
mod chart;
mod files;
mod flags;
mod guide;
mod image;
mod kustomize;
mod monitoring;
mod pod;
mod release;
mod rights;
mod shapes;
mod values;
