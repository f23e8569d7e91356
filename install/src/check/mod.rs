//! Looks for what would prevent tweed from working on this machine.
//!
//! Each module looks at one thing: a thin function reads, and a pure one turns the
//! result into [`Finding`]s. Nothing is changed: the features of the kernel are
//! tried in a temporary network namespace.

mod configs;
mod firewall;
mod inbound;
mod kernel;
mod listeners;
mod managers;
mod near_miss;
mod programs;
mod report;
mod service_proxy;
mod sysctls;
mod underlay;
mod vxlan;

use std::{io::Write, net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;
use tweed_core::defaults::{HEALTH_ADDR, METRICS_ADDR, NFT, VNI, VNI_RANGE, VXLAN_PORT};
use tweed_core::listen_addr;
use tweed_core::problem::{Effect, Problem, ProblemKind};

use crate::{error::InstallError, places::PlaceArgs};

/// Flags of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Output format
    #[arg(long, env = "TWEED_OUTPUT", value_enum, default_value_t = Output::Text)]
    output: Output,

    /// Backend that the agent will use: with direct nothing of VXLAN is looked at
    #[arg(long, env = "TWEED_BACKEND", value_enum, default_value_t = Backend::Vxlan)]
    backend: Backend,

    /// VXLAN network identifier that the agent will use
    #[arg(long, env = "TWEED_VNI", default_value_t = VNI,
          value_parser = value_parser!(u32).range(VNI_RANGE))]
    vni: u32,

    /// UDP port of VXLAN that the agent will use
    #[arg(long, env = "TWEED_VXLAN_PORT", value_name = "PORT", default_value_t = VXLAN_PORT,
          value_parser = value_parser!(u16).range(1..))]
    vxlan_port: u16,

    /// Address on which the agent will serve metrics
    #[arg(long, env = "TWEED_METRICS_ADDR", value_name = "ADDR:PORT",
          value_parser = listen_addr::parse, default_value_t = METRICS_ADDR)]
    metrics_addr: SocketAddr,

    /// Address on which the agent will answer probes
    #[arg(long, env = "TWEED_HEALTH_ADDR", value_name = "ADDR:PORT",
          value_parser = listen_addr::parse, default_value_t = HEALTH_ADDR)]
    health_addr: SocketAddr,

    /// The nft program: a path, or a name to be found in PATH
    #[arg(long, env = "TWEED_NFT", value_name = "PROGRAM", default_value = NFT)]
    nft: PathBuf,

    #[command(flatten)]
    places: PlaceArgs,
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

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Plain text.
    Text,
    /// One JSON document.
    Json,
}

/// How bad a finding is. Ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// tweed works, but perhaps not as intended.
    Warning,
    /// tweed does not work.
    Error,
}

/// One sentence on what is as it should be, or what is wrong.
type Outcome = Result<String, Problem>;

fn ok(message: impl Into<String>) -> Outcome {
    Ok(message.into())
}

/// Something could not be looked at.
fn incomplete(object: &str, message: impl Into<String>) -> Outcome {
    let kind = ProblemKind::CheckIncomplete;
    Err(Problem::new(kind, object, message))
}

/// The kernel does not answer: the agent could not work either.
fn unreadable(error: &tweed_netlink::Error) -> Outcome {
    let kind = ProblemKind::KernelUnreadable;
    Err(Problem::new(kind, "rtnetlink", error.to_string()).with_cure("run it as root"))
}

impl Level {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Ok(_) => Self::Ok,
            Err(problem) if problem.effect == Effect::Warning => Self::Warning,
            Err(_) => Self::Error,
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// A fixed word for what was looked at: `kernel`, `cni-config`.
    check: &'static str,
    level: Level,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

impl Finding {
    fn new(check: &'static str, outcome: Outcome) -> Self {
        let level = Level::of(&outcome);
        let (message, cure) = match outcome {
            Ok(message) => (message, None),
            Err(problem) => (problem.message, Some(problem.cure)),
        };
        Self {
            check,
            level,
            message,
            cure,
        }
    }
}

/// Looks at everything and prints the findings. The exit code is 1 if there is an
/// error.
///
/// # Errors
/// The output cannot be written, or the agent's environment file cannot be read.
pub fn run(asked: &CheckArgs, out: &mut dyn Write) -> Result<ExitCode, InstallError> {
    let findings = find(asked)?;
    report::print(&findings, asked.output, out)?;
    let wrong = report::worst(&findings) == Level::Error;
    Ok(ExitCode::from(u8::from(wrong)))
}

fn find(asked: &CheckArgs) -> Result<Vec<Finding>, InstallError> {
    let places = asked.places.resolve()?;
    let vxlan = (asked.backend != Backend::Direct).then_some(vxlan::Wanted {
        vni: asked.vni,
        port: asked.vxlan_port,
    });
    let has_direct = asked.backend != Backend::Vxlan;
    let checks = [
        ("kernel", vec![kernel::version()]),
        (
            "kernel",
            kernel::features(&asked.nft, &places.run_dir, vxlan),
        ),
        ("sysctl", sysctls::find(&places)),
        ("mtu", underlay::find(vxlan.is_some())),
        ("vxlan", vxlan.map(vxlan::find).unwrap_or_default()),
        (
            "port",
            listeners::find(&places.run_dir, asked.metrics_addr, asked.health_addr),
        ),
        (
            "firewall",
            firewall::find(&places, vxlan.map(vxlan::Wanted::packets), has_direct),
        ),
        ("service-proxy", service_proxy::find(&places)),
        ("manager", managers::find(&places)),
        ("plugin", programs::find(&places.cni_bin_dir)),
        ("cni-config", configs::find(&places.cni_conf_dir)),
    ];
    let findings = |(check, outcomes): (_, Vec<Outcome>)| {
        let finding = move |outcome| Finding::new(check, outcome);
        outcomes.into_iter().map(finding)
    };
    Ok(checks.into_iter().flat_map(findings).collect())
}
