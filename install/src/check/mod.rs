//! What would be in tweed's way on this machine.
//!
//! Each module looks at one thing: a pure function turns what is there into
//! [`Finding`]s, and a thin one reads. Nothing is changed: what the kernel can
//! do is tried in a network namespace that is thrown away.

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

use crate::error::InstallError;
use crate::places::PlaceArgs;

/// What `check` is asked to look at.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// How findings are printed
    #[arg(long, env = "TWEED_OUTPUT", value_enum, default_value_t = Output::Text)]
    output: Output,

    /// VXLAN network identifier, as the agent will have it
    #[arg(long, env = "TWEED_VNI", default_value_t = VNI,
          value_parser = value_parser!(u32).range(VNI_RANGE))]
    vni: u32,

    /// UDP port of VXLAN, as the agent will have it
    #[arg(long, env = "TWEED_VXLAN_PORT", value_name = "PORT", default_value_t = VXLAN_PORT,
          value_parser = value_parser!(u16).range(1..))]
    vxlan_port: u16,

    /// The nft program: a path, or a name found in PATH
    #[arg(long, env = "TWEED_NFT", value_name = "PROGRAM", default_value = NFT)]
    nft: PathBuf,

    #[command(flatten)]
    places: PlaceArgs,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
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
    /// tweed will work, but perhaps not as somebody wishes.
    Warning,
    /// tweed will not work.
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// A fixed word for what was looked at: `kernel`, `cni-config`.
    pub check: &'static str,
    /// One sentence: what is there.
    pub message: String,
    /// What to do; none where nothing is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self {
            level: Level::Ok,
            check,
            message: message.into(),
            cure: None,
        }
    }

    fn warning(check: &'static str, message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            cure: Some(cure.into()),
            ..Self::ok(check, message)
        }
    }

    fn error(check: &'static str, message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self {
            level: Level::Error,
            ..Self::warning(check, message, cure)
        }
    }
}

/// Looks at everything and prints what was found. The exit code is 1 if
/// something is wrong.
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
    findings.extend(firewall::find());
    findings.extend(inbound::find(&places, vxlan.port));
    findings.extend(managers::find(&places));
    findings.extend(programs::find(&places.cni_bin_dir));
    findings.extend(configs::find(&places.cni_conf_dir));
    findings
}
