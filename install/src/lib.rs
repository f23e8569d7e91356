//! Puts tweed on a node, checks a node, and takes tweed off it.
//!
//! [`cli`] is what can be asked for, [`run`] does it. [`plugins`] and [`host`]
//! put files in their places through [`put`]; [`displaced`] moves other
//! plugins' configs aside and back; [`check`] looks and changes nothing;
//! [`uninstall`] removes what the agent and the plugin have made. All of them
//! say what they did through [`journal`], a line for each object.
//!
//! By what tweed knows its own in the kernel is not said here again: the
//! agent's library says it (`tweed_netlink::owned` and its neighbours).
//!
//! What always holds: a file is replaced by rename, never written in place;
//! what is equal is left alone; one thing that fails does not keep the rest
//! from being done, and the exit code tells.

pub mod check;
pub mod cli;
pub mod displaced;
pub mod error;
pub mod host;
pub mod journal;
pub mod pause;
pub mod places;
pub mod plugins;
pub mod put;
pub mod uninstall;

use std::io::Write;
use std::process::ExitCode;

use cli::{Cli, Verb};
use error::InstallError;
use journal::Journal;

/// Does what was asked for, and writes to `out` what it did.
///
/// # Errors
/// What kept it from being done, or how many parts of it failed: each of those
/// has had its line.
pub fn run(cli: &Cli, out: &mut dyn Write) -> Result<ExitCode, InstallError> {
    let mut journal = Journal::new(out);
    match &cli.verb {
        Verb::Plugins(asked) => plugins::run(asked, &mut journal)?,
        Verb::Host(asked) => host::run(asked, &mut journal)?,
        Verb::Check(asked) => return check::run(asked, out),
        Verb::Uninstall(asked) => uninstall::run(asked, &mut journal)?,
        Verb::Pause => pause::until_told(&mut journal)?,
    }
    journal.end()?;
    Ok(ExitCode::SUCCESS)
}
