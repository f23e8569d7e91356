//! What a user of the store observes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod boot;
mod choice;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod disk;
mod format;
mod host_local;
mod lifecycle;

use common::{Lab, add, addresses, subnet};

/// The addresses that an ADD of the container `who` gets.
fn given(lab: &Lab, who: &str, from: &str) -> Vec<String> {
    addresses(&add(&lab.store(), who, &subnet(from)).unwrap())
}
