//! Looks for what would prevent tweed from working on this machine.
//!
//! Each module looks at one thing: a thin function reads, and a pure one turns the
//! result into [`Finding`]s. Nothing is changed: the features of the kernel are
//! tried in a temporary network namespace.

mod agent;
mod configs;
mod firewall;
mod kernel;
mod listeners;
mod managers;
mod near_miss;
mod programs;
mod report;
mod service_proxy;
mod sysctls;
mod underlay;
mod variables;
mod vxlan;

use std::{collections::BTreeSet, io::Write, process::ExitCode};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tweed_core::for_root;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_planner::config::Backend;

use crate::error::InstallError;
use crate::places::{ENVIRONMENT, PlaceArgs};
use agent::AgentArgs;

/// Flags of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Output format
    #[arg(long, env = "TWEED_OUTPUT", value_enum, default_value_t = Output::Text)]
    output: Output,

    #[command(flatten)]
    agent: AgentArgs,

    #[command(flatten)]
    places: PlaceArgs,
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

/// The findings, or that nothing is wrong.
fn or_ok(findings: Vec<Outcome>, message: impl FnOnce() -> String) -> Vec<Outcome> {
    if findings.is_empty() {
        return vec![Ok(message())];
    }
    findings
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
    /// The kind of what is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<ProblemKind>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

impl Finding {
    fn new(check: &'static str, outcome: Outcome) -> Self {
        let level = Level::of(&outcome);
        let (kind, message, cure) = match outcome {
            Ok(message) => (None, message, None),
            Err(problem) => (
                Some(problem.kind),
                for_root(problem.message),
                Some(problem.cure),
            ),
        };
        Self {
            check,
            level,
            kind,
            message,
            cure,
        }
    }
}

/// Looks at everything and prints the findings; `own` are the variables that this program
/// reads. The exit code is 1 if there is an error.
///
/// # Errors
/// The output cannot be written, or the agent's environment file cannot be read, or the agent
/// does not start with it.
pub fn run(
    asked: &CheckArgs,
    own: &BTreeSet<String>,
    out: &mut dyn Write,
) -> Result<ExitCode, InstallError> {
    let findings = find(asked, own)?;
    report::print(&findings, asked.output, out)?;
    let wrong = report::worst(&findings) == Level::Error;
    Ok(ExitCode::from(u8::from(wrong)))
}

fn find(asked: &CheckArgs, own: &BTreeSet<String>) -> Result<Vec<Finding>, InstallError> {
    let places = asked.places.resolve()?;
    let environment = places.environment.as_deref().unwrap_or_default();
    let agent = asked.agent.resolve(environment).map_err(|why| {
        let path = places.on_host(ENVIRONMENT);
        InstallError::Other(format!(
            "tweed-agent does not start with its flags, or those in {}: {why}",
            path.display()
        ))
    })?;
    let overlay = &agent.overlay;
    let vxlan = (overlay.backend != Backend::Direct).then_some(vxlan::Wanted {
        vni: overlay.vni,
        port: overlay.vxlan_port,
    });
    let has_direct = overlay.backend != Backend::Vxlan;
    let checks = [
        ("variable", variables::find(environment, own)),
        ("kernel", vec![kernel::version()]),
        (
            "kernel",
            kernel::features(&agent.nft, &places.run_dir, vxlan),
        ),
        ("sysctl", sysctls::find(&places)),
        ("mtu", underlay::find(vxlan.is_some())),
        ("vxlan", vxlan.map(vxlan::find).unwrap_or_default()),
        (
            "port",
            listeners::find(&places.run_dir, agent.metrics_addr, agent.health_addr),
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
