//! The plugin and the standalone store at every one of their system calls: killed there
//! (`killed`), or given an error (`refused`). `strace` does both.
//!
//! `make test` tries every call that changes something and some of the others, each run
//! of it other ones. `TWEED_CRASH_POINTS=all` tries all of them, and
//! `TWEED_CRASH_POINTS=openat:7` the one that a failed test has named.

mod finisher;
mod killed;
mod objects;
mod points;
mod refused;
mod stage;
