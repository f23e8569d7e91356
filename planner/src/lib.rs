//! What the kernel should hold, decided from data alone: no client and no I/O.

pub mod config;
#[cfg(test)]
mod fixture;
pub mod overlay;
pub mod store;
