//! What can be typed: the flags of the agent, or a command that asks a running one.

use clap::{Parser, Subcommand};

use crate::config::Flags;
use crate::{service_where, why};

/// The command line. Without a command the agent runs.
#[derive(Debug, Clone, Parser)]
#[command(name = "tweed-agent", version, about = Flags::ABOUT, after_help = Flags::EXAMPLES,
          args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do instead of running.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to run.
    #[command(flatten)]
    pub flags: Flags,
}

/// A command.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Ask the running agent of this node about policies
    #[command(subcommand)]
    Policy(PolicyQuestion),
    /// Ask the running agent of this node about Services
    #[command(subcommand)]
    Service(ServiceQuestion),
}

/// A question about policies.
#[derive(Debug, Clone, Subcommand)]
pub enum PolicyQuestion {
    /// Why a connection is allowed or denied
    Why(why::Asked),
}

/// A question about Services.
#[derive(Debug, Clone, Subcommand)]
pub enum ServiceQuestion {
    /// Where new connections to an address or a Service go, and why
    Where(service_where::Asked),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_agent_is_run_as_before_and_a_command_is_optional() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["tweed-agent", "--node-name", "n1", "--once"]).unwrap();
        assert!(cli.command.is_none());
        let flags = Flags::try_parse_from(["tweed-agent", "--node-name", "n1", "--once"]);
        assert_eq!(cli.flags, flags.unwrap());
        let why = ["tweed-agent", "policy", "why", "a/b", "c/d:80"];
        assert!(Cli::try_parse_from(why).unwrap().command.is_some());
        let place = ["tweed-agent", "service", "where", "10.96.0.1:443"];
        assert!(Cli::try_parse_from(place).unwrap().command.is_some());
        let both = ["tweed-agent", "--once", "policy", "why", "a/b", "c/d:80"];
        assert!(Cli::try_parse_from(both).is_err());
        assert!(Cli::try_parse_from(["tweed-agent", "polcy"]).is_err());
    }

    #[test]
    fn help_shows_the_command_and_every_flag() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("Ask the running agent"), "{help}");
        for flag in Flags::command().get_arguments() {
            let Some(long) = flag.get_long() else {
                continue;
            };
            assert!(help.contains(&format!("--{long}")), "{long}");
        }
    }
}
