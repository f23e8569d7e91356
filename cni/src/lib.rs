//! The CNI protocol as types, versions 0.3.1 to 1.1.0 of the specification.
//!
//! A plugin implements [`Plugin`] and hands it to [`run`] with its environment,
//! stdin, stdout and stderr; [`run`] is the only entry point. What always holds:
//! exactly one JSON document on stdout for ADD, VERSION and every error, a panic
//! included, and nothing for the success of the other verbs.
//!
//! [`call`] is what the environment says, [`config`] what stdin says, [`result`]
//! what an ADD answers, [`error`] what a failure answers and the one table of
//! codes.
//!
//! Source: <https://github.com/containernetworking/cni/blob/v1.3.0/SPEC.md> and,
//! where it leaves room, what the reference `pkg/skel` does.

pub mod call;
pub mod config;
pub mod error;
pub mod result;
mod run;
pub mod version;

pub use call::{CniArgs, Command, Environment, Target};
pub use config::{Config, RuntimeConfig, ValidAttachment};
pub use error::{CniError, Code};
pub use result::{AddResult, Dns, Interface, IpConfig, Route};
pub use run::{Edges, Plugin, Request, run};
pub use version::CniVersion;
