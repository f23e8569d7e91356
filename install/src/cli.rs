//! What can be asked for.

use clap::{Parser, Subcommand};

use crate::check::CheckArgs;
use crate::host::HostArgs;
use crate::plugins::PluginsArgs;
use crate::uninstall::UninstallArgs;

const EXAMPLES: &str = "\
Every flag can be given in the environment too, as TWEED_<FLAG>; the command
line wins.

Examples:
  What would be in tweed's way on this machine:
    tweed-install check

  Install on a machine without Kubernetes, from the folder of the programs:
    tweed-install host --node-name alpha

  What uninstall would remove, and then remove it:
    tweed-install uninstall --dry-run
    tweed-install uninstall

Exit codes: 0 all done, or nothing worse than a warning found; 1 something
failed or was found to be wrong: it is printed; 2 a flag that is not understood.";

/// Puts tweed on a node, checks a node, and takes tweed off it.
#[derive(Debug, Parser)]
#[command(name = "tweed-install", version, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Put the CNI plugins into the runtime's folder: what the init container
    /// of tweed's pod does
    Plugins(PluginsArgs),
    /// Install plugins, agent and systemd unit on this machine, for a network
    /// without Kubernetes
    Host(HostArgs),
    /// Look for whatever is in tweed's way on this machine, and change nothing;
    /// also as --check
    #[command(long_flag = "check")]
    Check(CheckArgs),
    /// Remove what tweed has made on this machine, and nothing else
    Uninstall(UninstallArgs),
    /// Do nothing until SIGTERM: keeps a pod up whose init container has done
    /// the work
    Pause,
}
