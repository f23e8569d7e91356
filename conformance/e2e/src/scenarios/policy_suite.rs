//! The conformance suite of network-policy-api, which is not ours: ClusterNetworkPolicy
//! with all features, on this cluster.
//!
//! Where the kernel has no SCTP, the tests of SCTP alone are skipped by name ([`SCTP`]), and
//! those of all protocols run without their connections by SCTP.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use tweed_lab::Programs;

use super::policy::{install_definition, remove_definition};
use super::{Precondition, Scenario};
use crate::agents;
use crate::fixture::Fixture;

pub const SCENARIO: Scenario = Scenario {
    name: "policy-suite",
    shows: "the conformance suite of network-policy-api passes: ClusterNetworkPolicy with all features",
    precondition: Precondition::Ready,
    run,
};

/// The tests of SCTP alone. `go test` matches the parts between the slashes one by one.
const SCTP: &str = "^TestConformanceProfiles$/SCTP$";

/// The report, in the form in which that project takes it.
const REPORT: &str = "network-policy-api-report.yaml";

/// All features. With `--all-features` the report would not name any.
const FEATURES: &str =
    "ClusterNetworkPolicy,ClusterNetworkPolicyNamedPorts,ClusterNetworkPolicyEgressNodePeers";

/// Maximum time of all tests together, as `go test` reads it.
const LIMIT: &str = "60m";

fn run(fixture: &mut Fixture<'_>) -> Result<()> {
    install_definition(fixture)?;
    // Running agents look for it once or twice a minute, and the suite gives a policy ten
    // seconds.
    agents::restart(fixture)?;
    let image = file("agnhost.tar")?;
    for node in fixture.cluster.nodes() {
        node.import_image(&image)?;
    }
    let outcome = run_suite(fixture);
    let outcome = fixture.report_failure(outcome);
    outcome.and(remove_definition(fixture))
}

fn run_suite(fixture: &mut Fixture<'_>) -> Result<()> {
    let log = fixture.cluster.lab().folder().join("policy-suite.log");
    let output = File::create(&log).with_context(|| log.display().to_string())?;
    let has_sctp = has_sctp()?;
    let program = if has_sctp {
        "suite"
    } else {
        "suite-without-sctp"
    };
    let mut command = fixture.kubectl().client(file(program)?);
    command
        .args(["-test.v", "-test.run=^TestConformanceProfiles$"])
        .arg(format!("-test.timeout={LIMIT}"))
        .arg("--conformance-profiles=ClusterNetworkPolicy")
        .arg(format!("--supported-features={FEATURES}"))
        .args(["--organization=tweed", "--project=tweed"])
        .arg(concat!("--version=v", env!("CARGO_PKG_VERSION")))
        .arg(concat!("--url=", env!("CARGO_PKG_REPOSITORY")))
        .arg(concat!(
            "--contact=",
            env!("CARGO_PKG_REPOSITORY"),
            "/issues"
        ))
        .arg(concat!(
            "--additional-info=",
            env!("CARGO_PKG_REPOSITORY"),
            "/docs/policy.md"
        ))
        .stderr(output.try_clone().context("the log")?)
        .stdout(output);
    let report = Programs::find()?.target().join("e2e").join(REPORT);
    if has_sctp {
        command.arg(format!("--report-output={}", report.display()));
    } else {
        // The report would count what is skipped by name as passed: there is none.
        command.arg(format!("-test.skip={SCTP}"));
    }
    let ended = command.status().context("run the suite")?;
    let text = fs::read_to_string(&log).with_context(|| log.display().to_string())?;
    let count = |verdict: &str| {
        // Subtests are indented twice.
        let prefix = format!("        --- {verdict}: ");
        text.lines()
            .filter(|line| line.starts_with(&prefix))
            .count()
    };
    let passed = count("PASS").to_string();
    fixture.measure(&format!("subtests that passed, of {program}"), passed);
    let failed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("--- FAIL: "))
        .collect();
    ensure!(
        ended.success() && count("PASS") > 0,
        "the suite ended with {ended}; {} has its output; failed: {}",
        log.display(),
        failed.join("; ")
    );
    if has_sctp {
        fixture.measure("report", report.display().to_string());
    }
    Ok(())
}

/// Whether sockets can be opened for SCTP on this kernel.
fn has_sctp() -> Result<bool> {
    let opened = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::empty(),
        SockProtocol::Sctp,
    );
    match opened {
        Ok(_) => Ok(true),
        Err(Errno::EPROTONOSUPPORT) => Ok(false),
        Err(error) => Err(error).context("open a socket for SCTP"),
    }
}

/// A file that `conformance/setup.sh policy-suite` writes.
fn file(name: &str) -> Result<PathBuf> {
    let file = Programs::find()?
        .target()
        .join("tools/kubernetes/policy")
        .join(name);
    ensure!(
        file.is_file(),
        "{} is missing: run `conformance/setup.sh policy-suite`",
        file.display()
    );
    Ok(file)
}
