//! A table of nftables as data, and the kernel made to hold it.
//!
//! The way of the data: [`table::Skeleton`] is a table without elements (chains,
//! rules as text, sets and maps), [`element::Contents`] is what its sets and maps
//! hold; both are pure. [`Reconciler`] compares them with what the kernel holds and
//! writes what differs: rules change seldom and go through the program `nft`, as
//! one transaction that replaces the whole table; elements change with every Node
//! and go through netlink, as one transaction of what differs.
//!
//! [`inet_tweed`] says what tweed's own table is; nothing else here knows it.
//!
//! What always holds:
//! - no other table is ever read or written, so nothing here depends on what other
//!   programs put into theirs: `nft` never lists anything;
//! - a table that is as it should be is only read, also after a restart;
//! - at no moment is the table missing or half written: packets see the old rules
//!   or the new ones.

mod baseline;
mod codec;
pub mod element;
mod error;
pub mod inet_tweed;
mod loader;
mod look;
mod observe;
mod present;
pub mod provided;
mod reconcile;
// One piece for the tests of all crates.
#[cfg(test)]
#[path = "../../core/tests/common/script.rs"]
mod script;
mod sum;
pub mod table;
pub mod value;

pub use error::Error;
pub use inet_tweed::{Policy, Table, remove};
pub use reconcile::{Outcome, Reconciler};
