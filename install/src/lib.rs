//! Installs tweed on a node, checks a node, and uninstalls tweed.
//!
//! [`cli`] defines the command line, [`run`] executes it. [`plugins`] and [`host`]
//! install files through [`put`]; [`displaced`] renames other plugins' configs and
//! restores them; [`check`] only reads; [`uninstall`] removes what the agent and
//! the plugin have made, [`kube_proxy`] what a kube-proxy has left. All of them report through [`journal`], a line for each
//! object.
//!
//! Which objects in the kernel are tweed's is defined in `tweed_netlink::owned`.
//!
//! What always holds: a file is replaced by rename, never written in place; what
//! is equal is left alone; after a failure the rest is still done, and the exit
//! code is 1.

pub mod check;
pub mod cli;
pub mod displaced;
mod environment_file;
pub mod error;
pub mod host;
pub mod journal;
pub mod kube_proxy;
pub mod pause;
pub mod places;
pub mod plugins;
pub mod put;
pub mod uninstall;
pub mod until_closed;

use std::{io::Write, process::ExitCode};

use clap::CommandFactory as _;
use tweed_agent::config::variables;

use cli::{Cli, Verb};
use error::InstallError;
use journal::Journal;

/// Executes the command line, and writes to `out` what was done.
///
/// # Errors
/// What prevented it, or how many parts of it failed: each of those has its line
/// in `out`.
pub fn run(cli: &Cli, out: &mut dyn Write) -> Result<ExitCode, InstallError> {
    let mut journal = Journal::new(out);
    match &cli.verb {
        Verb::Plugins(asked) => plugins::run(asked, &mut journal)?,
        Verb::Host(asked) => host::run(asked, &mut journal)?,
        Verb::Check(asked) => {
            return check::run(asked, &variables::read_by(&Cli::command()), out);
        }
        Verb::Uninstall(asked) => uninstall::run(asked, &mut journal)?,
        Verb::RemoveKubeProxy(asked) => kube_proxy::run(asked, &mut journal)?,
        Verb::Pause => pause::until_signal(&mut journal)?,
    }
    journal.end()?;
    Ok(ExitCode::SUCCESS)
}
