//! The flags of this machine's agent that decide what has to be looked at: those given to
//! `check`, or those in the agent's environment file, or the defaults.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Command, FromArgMatches, ValueEnum, value_parser};
use tweed_core::defaults::{HEALTH_ADDR, METRICS_ADDR, NFT, VNI, VNI_RANGE, VXLAN_PORT};
use tweed_core::listen_addr;

use crate::environment_file::value;

/// The flags, as typed. Names, variables, values and defaults are the agent's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Agent")]
pub struct AgentArgs {
    /// Backend that the agent will use: with direct nothing of VXLAN is looked at; if
    /// not given, that of /etc/tweed/agent.env, or vxlan
    #[arg(long, env = "TWEED_BACKEND", value_enum)]
    backend: Option<Backend>,

    /// VXLAN network identifier that the agent will use; if not given, that of
    /// /etc/tweed/agent.env, or 1
    #[arg(long, env = "TWEED_VNI", value_parser = value_parser!(u32).range(VNI_RANGE))]
    vni: Option<u32>,

    /// UDP port of VXLAN that the agent will use; if not given, that of
    /// /etc/tweed/agent.env, or 8472
    #[arg(long, env = "TWEED_VXLAN_PORT", value_name = "PORT",
          value_parser = value_parser!(u16).range(1..))]
    vxlan_port: Option<u16>,

    /// Address on which the agent will serve metrics; if not given, that of
    /// /etc/tweed/agent.env, or 127.0.0.1:9116
    #[arg(long, env = "TWEED_METRICS_ADDR", value_name = "ADDR:PORT",
          value_parser = listen_addr::parse)]
    metrics_addr: Option<SocketAddr>,

    /// Address on which the agent will answer probes; if not given, that of
    /// /etc/tweed/agent.env, or 127.0.0.1:9117
    #[arg(long, env = "TWEED_HEALTH_ADDR", value_name = "ADDR:PORT",
          value_parser = listen_addr::parse)]
    health_addr: Option<SocketAddr>,

    /// The nft program, a path or a name to be found in PATH; if not given, that of
    /// /etc/tweed/agent.env, or nft
    #[arg(long, env = "TWEED_NFT", value_name = "PROGRAM")]
    nft: Option<PathBuf>,
}

/// Backend of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// VXLAN to every node.
    Vxlan,
    /// Plain routes to every node.
    Direct,
    /// Plain routes to nodes on the same link, VXLAN to the others.
    CrossSubnet,
}

/// The flags, resolved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Agent {
    pub backend: Backend,
    pub vni: u32,
    pub vxlan_port: u16,
    pub metrics_addr: SocketAddr,
    pub health_addr: SocketAddr,
    pub nft: PathBuf,
}

impl AgentArgs {
    /// These flags, or those in the text of the agent's environment file.
    ///
    /// # Errors
    /// A value in the file that the agent refuses.
    pub(super) fn resolve(&self, environment: &str) -> Result<Agent, String> {
        let of_agent = Self::in_file(environment)?;
        let given = self.clone();
        Ok(Agent {
            backend: given.backend.or(of_agent.backend).unwrap_or(Backend::Vxlan),
            vni: given.vni.or(of_agent.vni).unwrap_or(VNI),
            vxlan_port: given
                .vxlan_port
                .or(of_agent.vxlan_port)
                .unwrap_or(VXLAN_PORT),
            metrics_addr: given
                .metrics_addr
                .or(of_agent.metrics_addr)
                .unwrap_or(METRICS_ADDR),
            health_addr: given
                .health_addr
                .or(of_agent.health_addr)
                .unwrap_or(HEALTH_ADDR),
            nft: given.nft.or(of_agent.nft).unwrap_or_else(|| NFT.into()),
        })
    }

    /// The flags that the file's variables stand for, read as if they had been typed. What
    /// `check` was given itself, by its own environment too, comes before them.
    fn in_file(environment: &str) -> Result<Self, String> {
        let command = Self::augment_args(Command::new("tweed-agent").no_binary_name(true));
        let typed: Vec<String> = command
            .get_arguments()
            .filter_map(|flag| {
                let value = value(environment, flag.get_env()?.to_str()?)?;
                Some(format!("--{}={value}", flag.get_long()?))
            })
            .collect();
        let matches = command.try_get_matches_from(typed);
        let flags = matches.and_then(|matches| Self::from_arg_matches(&matches));
        flags.map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            let why = first.strip_prefix("error: ").unwrap_or(first);
            format!("{why}; the agent does not start with it")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_what_was_given_or_that_of_the_agent_or_the_default() {
        let given = AgentArgs {
            vni: Some(7),
            ..AgentArgs::default()
        };
        let environment = "TWEED_NODES=/etc/tweed/nodes.yaml\nTWEED_VNI=5\n#TWEED_NFT=/x\n\
             TWEED_BACKEND=cross-subnet\nTWEED_VXLAN_PORT=\"4789\"\n\
             TWEED_METRICS_ADDR=192.0.2.1:9200\nTWEED_HEALTH_ADDR=[::1]:9201\n";
        let expected = Agent {
            backend: Backend::CrossSubnet,
            vni: 7,
            vxlan_port: 4789,
            metrics_addr: "192.0.2.1:9200".parse().unwrap(),
            health_addr: "[::1]:9201".parse().unwrap(),
            nft: NFT.into(),
        };
        assert_eq!(given.resolve(environment), Ok(expected));
    }

    #[test]
    fn what_the_agent_does_not_start_with_is_named() {
        for (line, flag) in [
            ("TWEED_VNI=0", "--vni"),
            ("TWEED_BACKEND=vxlna", "--backend"),
            ("TWEED_HEALTH_ADDR=9117", "--health-addr"),
        ] {
            let why = AgentArgs::default().resolve(line).unwrap_err();
            assert!(why.contains(flag) && !why.contains('\n'), "{why}");
            assert!(why.contains(line.split_once('=').unwrap().1), "{why}");
        }
    }
}
