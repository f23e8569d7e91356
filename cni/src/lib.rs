//! The CNI protocol as types, versions 0.3.1 to 1.1.0 of the specification.
//!
//! ```text
//! environment ─▶ call   ─┐                 ┌▶ result ─┐
//!                        ├▶ run ─▶ Plugin ─┤          ├▶ stdout
//! stdin ───────▶ config ─┘                 └▶ error ──┘
//! ```
//!
//! A plugin implements [`Plugin`] and passes it to [`run`], the only entry point,
//! with its environment, stdin, stdout and stderr. What always holds: exactly one
//! JSON document on stdout for ADD, VERSION and every error, including a panic, and
//! nothing for the success of the other verbs.
//!
//! [`error`] has the one table of error codes. The specification is
//! <https://github.com/containernetworking/cni/blob/v1.3.0/SPEC.md>; where it leaves
//! something open, this crate does what the reference `pkg/skel` does.

pub mod call;
pub mod config;
pub mod error;
mod failures;
pub mod result;
mod run;
pub mod version;

pub use call::{CniArgs, Command, Environment, Target};
pub use config::{Config, RuntimeConfig, ValidAttachment};
pub use error::{CniError, Code};
pub use failures::Failures;
pub use result::{AddResult, Dns, Interface, IpConfig, Route};
pub use run::{Invocation, Plugin, Request, input_limit, run};
pub use version::CniVersion;
