//! The plugin as a runtime meets it: by the real `cnitool`, and where that
//! cannot do it (broken input, exact output, GC's list) executed as a runtime
//! does. What it made is looked at with other eyes: `ip -j`, `/proc/sys`,
//! packets. Needs root.
//!
//! What the specification wants of everybody runs against the reference too,
//! `ptp` with `host-local`: a failure there is the test's. What only tweed
//! promises is listed for the reference as ignored, with that reason.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends at what it did not expect"
)]

#[macro_use]
mod rows;
mod bench;
mod eyes;

mod added;
mod addresses;
mod at_work;
mod chains;
mod check;
mod concurrent;
mod del;
mod delegated;
mod gc;
mod input;
mod kills;
mod leaving;
mod names;
mod paths;
mod reboot;
mod refused;
mod status;
mod untouched;
mod versions;
