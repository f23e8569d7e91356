//! An API server in the process of a benchmark or test: lists in pages, watches, single
//! objects; JSON, and protobuf for Nodes.
//!
//! ```text
//! encoding   objects as they are sent
//! server     what is asked for, and who is told of changes
//! port       a port in a network namespace, with TLS or without
//! ```
//!
//! It answers as kube-apiserver does what agents, and clients of Go, ask for, from bytes
//! that are ready beforehand: what is measured is who asks.

mod encoding;
mod port;
mod server;

pub use encoding::{Object, time};
pub use port::Identity;
pub use server::{NODES, Server, Serves};
