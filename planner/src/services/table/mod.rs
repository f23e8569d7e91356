//! What the sets and maps of table `tweed-services` should hold: groups of endpoints, the
//! numbers of these, and who may use a frontend.

pub mod claims;
pub mod compiled;
mod counted;
pub mod desired;
mod groups;
mod known_numbers;
mod known_slots;
mod limits;
mod ports;
pub mod tables;
pub mod timeouts;

use super::model::scope;
pub use known_numbers::KnownNumbers;
pub use known_slots::KnownSlots;
