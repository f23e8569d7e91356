//! The plugin and the standalone store at every one of their system calls: killed there
//! (`killed`), or given an error (`refused`). `strace` does both.
//!
//! `make test` tries every call that changes something and some of the others, each run
//! of it other ones. `TWEED_CRASH_POINTS=all` tries all of them, and
//! `TWEED_CRASH_POINTS=openat:7` the one that a failed test has named.

/// A test `tries(program, verb)` for each program and verb that changes something, and for
/// the plugin's CHECK.
macro_rules! for_each_verb {
    ($tries:ident) => {
        for_each_verb! { $tries,
            plugin_in_an_add: "tweed" "ADD";
            plugin_in_a_del: "tweed" "DEL";
            plugin_in_a_gc: "tweed" "GC";
            plugin_in_a_check: "tweed" "CHECK";
            store_in_an_add: "tweed-ipam" "ADD";
            store_in_a_del: "tweed-ipam" "DEL";
            store_in_a_gc: "tweed-ipam" "GC";
        }
    };
    ($tries:ident, $($name:ident: $program:literal $verb:literal;)*) => {
        $(#[test] fn $name() { $tries($program, $verb) })*
    };
}

mod finisher;
mod killed;
mod objects;
mod points;
mod refused;
mod stage;
