//! The plugin as a runtime uses it: called by the reference program `cnitool`, or
//! executed directly where `cnitool` cannot do it (invalid input, exact output, GC's
//! list). The results are checked by other programs: `ip -j`, `/proc/sys`, packets.
//! Needs root.
//!
//! Tests of what the specification requires of all plugins also run against the
//! reference, `ptp` with `host-local`: a failure there is an error of the test. Tests of
//! what only tweed promises are listed for the reference as ignored, with that reason.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends at an unexpected result, and says how much it has tried"
)]

#[macro_use]
mod cases;
mod fixture;
mod observe;
#[path = "../../../core/tests/common/script.rs"]
mod script;

mod added;
mod addresses;
mod chains;
mod check;
mod concurrent;
mod crash;
mod del;
mod delegated;
mod exclusive;
mod gc;
mod input;
mod kills;
mod leaving;
mod names;
mod paths;
mod policy;
mod reboot;
mod refused;
mod second_network;
mod status;
mod untouched;
mod versions;
