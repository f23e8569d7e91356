//! The command line.

use clap::{Parser, Subcommand};

use crate::{
    check::CheckArgs, host::HostArgs, kube_proxy::RemoveKubeProxyArgs, plugins::PluginsArgs,
    uninstall::UninstallArgs,
};

/// The version, with its commit.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TWEED_COMMIT"), ")");

const EXAMPLES: &str = "\
Every flag can also be given as an environment variable, TWEED_<FLAG>; the
command line takes precedence.

Examples:
  What would prevent tweed from working on this machine:
    tweed-install check

  Install on a machine without Kubernetes, from the folder of the programs:
    tweed-install host --node-name alpha

  What uninstall would remove, and then remove it:
    tweed-install uninstall --dry-run
    tweed-install uninstall

Exit codes: 0 all done, or nothing worse than a warning found; 1 something
failed, or check found an error: it is printed; 2 an invalid flag.";

/// Installs tweed on a node, checks a node, and uninstalls tweed.
#[derive(Debug, Parser)]
#[command(name = "tweed-install", version = VERSION, after_help = EXAMPLES)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Install the CNI plugins in the runtime's folder; the init container of
    /// tweed's pod runs this
    Plugins(PluginsArgs),
    /// Install plugins, agent and systemd unit on this machine, for a network
    /// without Kubernetes
    Host(HostArgs),
    /// Look for anything that prevents tweed from working on this machine, and
    /// change nothing; also as --check
    #[command(long_flag = "check")]
    Check(CheckArgs),
    /// Remove everything that tweed has made on this machine, and nothing else
    Uninstall(UninstallArgs),
    /// Remove the rules that kube-proxy has left on this node, and nothing else, where
    /// the agent serves Services
    RemoveKubeProxy(RemoveKubeProxyArgs),
    /// Do nothing until SIGTERM: keeps a pod running whose init container has
    /// done the work
    Pause,
}
