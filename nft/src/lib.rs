//! Tables of nftables as data, and the kernel made to hold them.
//!
//! The way of the data: [`table::Skeleton`] is a table without elements (chains,
//! rules as text, sets and maps), [`element::Contents`] is what its sets and maps
//! hold; both are pure. A [`keeper`] compares them with what the kernel holds and
//! writes what differs: rules change seldom and go through the program `nft`, as
//! one transaction that replaces the rules around the sets; elements change with every
//! object and go through netlink, as one transaction of what differs. What all tables of a
//! thread share is the [`Connection`].
//!
//! [`overlay`], [`policy`] and [`services`] say what tweed's own tables are, and are all
//! used in the same way: [`Table`]. Nothing else here knows them.
//!
//! What always holds:
//! - no other table is ever read or written, so nothing here depends on what other
//!   programs put into theirs: `nft` never lists anything;
//! - a table that is as it should be is only read, also after a restart;
//! - at no moment is a table missing or half written: packets see the old rules
//!   or the new ones.

mod baseline;
mod codec;
mod connection;
mod drops;
pub mod element;
mod error;
pub mod keeper;
mod loader;
mod observe;
pub mod overlay;
pub mod policy;
mod present;
pub mod provider;
mod schema;
// One piece for the tests of all crates.
#[cfg(test)]
#[path = "../../core/tests/common/script.rs"]
mod script;
pub mod services;
pub mod table;
mod tables;
pub mod value;
mod words;

pub use connection::Connection;
pub use drops::dropped;
pub use error::Error;
pub use keeper::Outcome;
pub use tables::{POLICY_TABLE, SERVICES_TABLE, TABLE, TABLES, Table, present, remove};
