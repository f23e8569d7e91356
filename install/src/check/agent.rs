//! The flags of this machine's agent that decide what has to be looked at: those given to
//! `check`, or those in the agent's environment file, or the defaults. The agent's own parser
//! reads them, so that what the agent does not start with is an error here too.

use std::{collections::BTreeMap, ffi::OsString};

use clap::{Arg, ArgMatches, Args, Command, CommandFactory as _, FromArgMatches};
use tweed_agent::config::{Config, Flags};

use crate::environment_file;

/// The flags that `check` takes too.
const TAKEN: [&str; 6] = [
    "backend",
    "vni",
    "vxlan_port",
    "metrics_addr",
    "health_addr",
    "nft",
];

/// The values that were given, each by its flag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentArgs(BTreeMap<&'static str, OsString>);

impl Args for AgentArgs {
    fn augment_args(command: Command) -> Command {
        let flags = Flags::command();
        let taken = flags.get_arguments().filter_map(|flag| {
            let is_taken = TAKEN.contains(&flag.get_id().as_str());
            is_taken.then(|| of_check(flag.clone()))
        });
        command.args(taken)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The agent's flag as that of `check`: without a default, since that may be in the file.
fn of_check(flag: Arg) -> Arg {
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let defaults = flag.get_default_values();
    let default = defaults.first().map(|value| value.display().to_string());
    let help = format!(
        "{help}; if not given, that of /etc/tweed/agent.env, or {}",
        default.unwrap_or_default()
    );
    flag.help(help)
        .help_heading("Agent")
        .default_value(None::<&'static str>)
}

impl FromArgMatches for AgentArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |id| Some((id, matches.get_raw(id)?.next()?.to_owned()));
        Ok(Self(TAKEN.into_iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl AgentArgs {
    /// What the agent would run with, by these flags and the text of its environment file.
    ///
    /// # Errors
    /// Why it would not start.
    pub(super) fn resolve(&self, environment: &str) -> Result<Config, String> {
        let value = |flag: &Arg| {
            let given = self.0.get(flag.get_id().as_str()).cloned();
            let in_file = || environment_file::value(environment, flag.get_env()?.to_str()?);
            given.or_else(|| in_file().map(OsString::from))
        };
        let flags = Flags::of_values(value).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        })?;
        // Nothing that is looked at depends on the Node's name, and in a container the host
        // name is another one.
        let config = flags.resolve(|| Ok("node".to_owned()));
        config.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use tweed_planner::config::Backend;

    use super::*;

    #[test]
    fn a_flag_is_what_was_given_or_that_of_the_agent_or_the_default() {
        let given = AgentArgs([("vni", "7".into())].into());
        let environment = "TWEED_NODES=/etc/tweed/nodes.yaml\nTWEED_VNI=5\n#TWEED_NFT=/x\n\
             TWEED_BACKEND=cross-subnet\nTWEED_VXLAN_PORT=\"4789\"\nTWEED_ONCE=no\n\
             TWEED_METRICS_ADDR=192.0.2.1:9200\n";
        let config = given.resolve(environment).unwrap();
        assert_eq!(config.overlay.backend, Backend::CrossSubnet);
        assert_eq!((config.overlay.vni, config.overlay.vxlan_port), (7, 4789));
        assert_eq!(config.metrics_addr.to_string(), "192.0.2.1:9200");
        assert_eq!(config.health_addr.to_string(), "127.0.0.1:9117");
        assert_eq!(config.nft.to_str(), Some("nft"));
    }

    #[test]
    fn what_was_given_and_the_file_must_not_contradict_each_other() {
        let given = AgentArgs([("health_addr", "127.0.0.1:9200".into())].into());
        assert!(given.resolve("").is_ok());
        let why = given
            .resolve("TWEED_METRICS_ADDR=0.0.0.0:9200")
            .unwrap_err();
        assert!(why.contains("--health-addr 127.0.0.1:9200"), "{why}");
    }
}
