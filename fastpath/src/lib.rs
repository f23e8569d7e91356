//! The fast path: eBPF programs by which packets of established flows between pods skip the
//! host's stack. The kernel's path stays the truth and the fallback: whatever the programs do
//! not know goes there, and with the programs gone all works as before.
//!
//! How data goes through: the caller says what should be there ([`Plan`]); [`Programs`] loads
//! the programs of `bpf/fast_path.c`, attaches them to links, and fills their maps. All of it
//! is pinned in a folder in bpffs, so it goes on while no agent runs, and the next one takes
//! it over. The programs themselves put flows into the map `flows`, by what connection
//! tracking knows of a packet that the kernel's path has just let pass.
//!
//! [`Settings`] is memory that programs and agent share. An entry of a flow is used only while
//! its epoch is that of the settings, so [`Settings::invalidate`] is one write by which all
//! flows have to pass the kernel's path again. It comes after the kernel's state has been
//! committed: an entry that was made by the state of before has the epoch of before.

mod counters;
mod error;
mod hooks;
mod layout;
mod packet;
mod plan;
mod programs;
mod self_test;
mod settings;
mod sys;

pub use counters::{CounterReader, Counters, KernelPath, Traffic, Way};
pub use error::Error;
pub use hooks::{Hook, Place, remove};
pub use plan::{Node, Plan, Vxlan};
pub use programs::{Changed, Programs, pinned_settings};
pub use settings::Settings;
