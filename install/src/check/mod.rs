//! Looks for what would prevent tweed from working on this machine.
//!
//! Each module looks at one thing: a thin function reads, and a pure one turns the
//! result into [`Finding`]s. Nothing is changed: the features of the kernel are
//! tried in a temporary network namespace.

mod configs;
mod firewall;
mod inbound;
mod kernel;
mod managers;
mod near_miss;
mod programs;
mod report;
mod sysctls;
mod underlay;
mod vxlan;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;
use tweed_core::defaults::{NFT, VNI, VNI_RANGE, VXLAN_PORT};
use tweed_core::problem::{Effect, Problem, ProblemKind};

use crate::error::InstallError;
use crate::places::PlaceArgs;

/// Flags of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Output format
    #[arg(long, env = "TWEED_OUTPUT", value_enum, default_value_t = Output::Text)]
    output: Output,

    /// VXLAN network identifier that the agent will use
    #[arg(long, env = "TWEED_VNI", default_value_t = VNI,
          value_parser = value_parser!(u32).range(VNI_RANGE))]
    vni: u32,

    /// UDP port of VXLAN that the agent will use
    #[arg(long, env = "TWEED_VXLAN_PORT", value_name = "PORT", default_value_t = VXLAN_PORT,
          value_parser = value_parser!(u16).range(1..))]
    vxlan_port: u16,

    /// The nft program: a path, or a name to be found in PATH
    #[arg(long, env = "TWEED_NFT", value_name = "PROGRAM", default_value = NFT)]
    nft: PathBuf,

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

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A fixed word for what was looked at: `kernel`, `cni-config`.
    pub check: &'static str,
    /// One sentence on what is as it should be, or what is wrong.
    pub outcome: Result<String, Problem>,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self {
            check,
            outcome: Ok(message.into()),
        }
    }

    fn wrong(check: &'static str, problem: Problem) -> Self {
        Self {
            check,
            outcome: Err(problem),
        }
    }

    /// Something could not be looked at.
    fn incomplete(check: &'static str, object: &str, message: impl Into<String>) -> Self {
        let kind = ProblemKind::CheckIncomplete;
        Self::wrong(check, Problem::new(kind, object, message))
    }

    /// The kernel does not answer: the agent could not work either.
    fn unreadable(check: &'static str, error: &tweed_netlink::Error) -> Self {
        let problem = Problem::new(
            ProblemKind::KernelUnreadable,
            "rtnetlink",
            error.to_string(),
        );
        Self::wrong(check, problem.with_cure("run it as root"))
    }

    /// How bad it is.
    #[must_use]
    pub fn level(&self) -> Level {
        match &self.outcome {
            Ok(_) => Level::Ok,
            Err(problem) if problem.effect == Effect::Warning => Level::Warning,
            Err(_) => Level::Error,
        }
    }

    /// One sentence: what is there.
    #[must_use]
    pub fn message(&self) -> &str {
        match &self.outcome {
            Ok(message) => message,
            Err(problem) => &problem.message,
        }
    }

    /// What to do; none where nothing is to be done.
    #[must_use]
    pub fn cure(&self) -> Option<&str> {
        Some(&self.outcome.as_ref().err()?.cure)
    }
}

/// Looks at everything and prints the findings. The exit code is 1 if there is an
/// error.
///
/// # Errors
/// [`InstallError::Output`].
pub fn run(asked: &CheckArgs, out: &mut dyn Write) -> Result<ExitCode, InstallError> {
    let findings = find(asked);
    report::print(&findings, asked.output, out)?;
    let wrong = report::worst(&findings) == Level::Error;
    Ok(ExitCode::from(u8::from(wrong)))
}

fn find(asked: &CheckArgs) -> Vec<Finding> {
    let places = asked.places.resolve();
    let vxlan = vxlan::Wanted {
        vni: asked.vni,
        port: asked.vxlan_port,
    };
    let mut findings = Vec::new();
    findings.push(kernel::version());
    findings.extend(kernel::features(&asked.nft, &places.run_dir, vxlan));
    findings.extend(sysctls::find(&places.sysctl_dir));
    findings.extend(underlay::find());
    findings.extend(vxlan::find(vxlan));
    findings.extend(firewall::find(&places.run_dir, &asked.nft));
    findings.extend(inbound::find(&places, vxlan.port));
    findings.extend(managers::find(&places));
    findings.extend(programs::find(&places.cni_bin_dir));
    findings.extend(configs::find(&places.cni_conf_dir));
    findings
}
