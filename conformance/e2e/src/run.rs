//! Runs the scenarios in one cluster, and reports each.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tweed_lab::{ExistingLab, Programs, existing_labs, take_down};
use tweed_lab_kubernetes::{Cluster, Network, ProgressFn, Report, Spec};

use crate::Arguments;
use crate::fixture::{AGENTS, Fixture};
use crate::results::{Outcome, Results};
use crate::scenarios::bootstrap::without_any;
use crate::scenarios::{Precondition, Scenario};
use crate::tier::Tier;

/// Maximum time until the agents of all nodes are Ready.
const AGENTS_LIMIT: Duration = Duration::from_secs(300);

/// Runs the scenarios and writes the results. Returns whether all passed.
///
/// What fails runs once more, in a new cluster, unless the cluster is to stay. A scenario
/// that then passes is flaky, and counts as passed.
pub fn run(arguments: &Arguments, tier: Tier, chosen: &[&Scenario]) -> Result<bool> {
    let out = match &arguments.out {
        Some(folder) => folder.clone(),
        None => Programs::find()?.target().join("e2e"),
    };
    let mut cluster = cluster(arguments)?;
    let mut results = Results::new(tier, &cluster)?;
    results.write(&out)?;
    for scenario in chosen {
        let outcome = run_one(&mut cluster, tier, scenario, &out)?;
        results.outcomes.push(outcome);
        // After each scenario, so that an interrupted run leaves its results.
        results.write(&out)?;
    }
    let stays = arguments.keep || arguments.cluster.is_some();
    if !stays && !results.failed().is_empty() {
        cluster.log("what failed runs once more, in a new cluster");
        drop(cluster);
        cluster = self::cluster(arguments)?;
        repeat_failed(&mut cluster, tier, chosen, &mut results, &out)?;
    }
    if arguments.keep {
        cluster.keep()?;
        cluster.log(&format!(
            "the cluster stays: {}/kubectl get pods --all-namespaces; remove it with \
             `tweed-lab cluster down --name {}`",
            cluster.scripts().display(),
            cluster.name(),
        ));
    }
    let failed = results.failed();
    let all = results.outcomes.len();
    let folder = out.display();
    cluster.log(&format!(
        "{} of {all} scenarios passed; results in {folder}",
        all - failed.len()
    ));
    // Again at the end, after reports that may be long.
    for name in results.flaky() {
        cluster.log(&format!("flaky: {name}"));
    }
    for (name, error) in &failed {
        cluster.log(&format!("failed: {name}: {error}"));
    }
    Ok(failed.is_empty())
}

/// Runs each scenario that has failed again, and keeps the report of the first try of those
/// that pass now in `target/flaky.txt`.
fn repeat_failed(
    cluster: &mut Cluster,
    tier: Tier,
    chosen: &[&Scenario],
    results: &mut Results,
    out: &Path,
) -> Result<()> {
    let flaky = Programs::find()?.target().join("flaky.txt");
    for (scenario, outcome) in chosen.iter().zip(&mut results.outcomes) {
        let Some(error) = outcome.error.take() else {
            continue;
        };
        let file = report_file(out, scenario);
        let report = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        *outcome = run_one(cluster, tier, scenario, out)?;
        if outcome.error.is_none() {
            outcome.failed_before = Some(error);
            let added = OpenOptions::new().create(true).append(true).open(&flaky);
            added
                .and_then(|mut added| writeln!(added, "== e2e {}\n{report}", scenario.name))
                .with_context(|| flaky.display().to_string())?;
        }
    }
    results.write(out)
}

/// Runs a scenario, and says how it went. The report of a failure goes into a file.
fn run_one(cluster: &mut Cluster, tier: Tier, scenario: &Scenario, out: &Path) -> Result<Outcome> {
    cluster.log(&format!("{}: {}", scenario.name, scenario.shows));
    let (outcome, report) = run_steps(cluster, tier, scenario);
    let file = report_file(out, scenario);
    match &outcome.error {
        None => {
            cluster.log(&format!("  ✓ {} ({:.1} s)", scenario.name, outcome.seconds));
            remove_if_exists(&file)?;
        }
        Some(error) => {
            cluster.log(&format!("  ✗ {}: {error}", scenario.name));
            write_report(&report.unwrap_or_else(|| cluster.report()), error, &file)?;
        }
    }
    Ok(outcome)
}

fn report_file(out: &Path, scenario: &Scenario) -> PathBuf {
    out.join(format!("failed-{}.txt", scenario.name))
}

/// Opens the cluster of `--cluster`, or creates one without a network.
fn cluster(arguments: &Arguments) -> Result<Cluster> {
    // A closed stdout does not stop it: the results go to files.
    let progress: ProgressFn = Box::new(|line| drop(writeln!(std::io::stdout(), "{line}")));
    if let Some(name) = &arguments.cluster {
        return Ok(Cluster::open(name, progress)?);
    }
    let name = &arguments.name;
    let names = [name.clone(), without_any::lab_of(name)];
    let is_killed_run = |lab: &ExistingLab| names.contains(&lab.name) && lab.is_left();
    for lab in existing_labs()?.into_iter().filter(is_killed_run) {
        take_down(&lab.name)?;
    }
    let absolute = |folder: &PathBuf| {
        fs::canonicalize(folder).with_context(|| format!("--release {}", folder.display()))
    };
    let mut spec = Spec {
        workers: arguments.workers,
        network: Network::None,
        kubernetes: arguments.kubernetes.clone(),
        release: arguments.release.as_ref().map(absolute).transpose()?,
        ..Spec::default()
    };
    spec.images = vec![spec.image_of_tweed(Programs::find()?.target())];
    Ok(Cluster::up(name, spec, progress)?)
}

/// Runs one scenario, and starts the deletion of its namespace. If it fails, the report
/// of the cluster was made before anything was restored or deleted.
fn run_steps(cluster: &mut Cluster, tier: Tier, scenario: &Scenario) -> (Outcome, Option<Report>) {
    let start = Instant::now();
    let (notes, report, result) = match prepare(cluster, tier, scenario) {
        Err(error) => (Vec::new(), None, Err(error)),
        Ok(mut fixture) => {
            let ended = (scenario.run)(&mut fixture);
            let reported = fixture.report_failure(ended);
            let line = format!("delete namespace {} --wait=false", fixture.namespace());
            let cleared = fixture.kubectl().sh(&line).map(drop);
            let result = reported.and(cleared.map_err(Into::into));
            (fixture.notes, fixture.report, result)
        }
    };
    let outcome = Outcome {
        name: scenario.name,
        shows: scenario.shows,
        seconds: start.elapsed().as_secs_f64(),
        error: result.err().map(|error| format!("{error:#}")),
        failed_before: None,
        notes,
    };
    (outcome, report)
}

fn prepare<'a>(cluster: &'a mut Cluster, tier: Tier, scenario: &Scenario) -> Result<Fixture<'a>> {
    const WHEN: &str = "before the scenario starts";
    if scenario.precondition == Precondition::Ready {
        cluster.install_tweed().context(WHEN)?;
        // Ready nodes are not enough: they stay Ready while agents are replaced.
        let rolled_out = cluster.kubectl().wait_rolled_out(AGENTS, AGENTS_LIMIT);
        rolled_out.context(WHEN)?;
    }
    Fixture::new(cluster, tier, scenario.name).context(WHEN)
}

/// Writes the report of a failure to a file, and prints the last lines of each part.
fn write_report(report: &Report, error: &str, file: &Path) -> Result<()> {
    let text = format!("{error}\n\n{}", report.text(400));
    fs::write(file, text).with_context(|| file.display().to_string())?;
    // If stdout is closed, the file still has it.
    let _ = writeln!(
        std::io::stdout(),
        "{}\nthe whole report: {}\n",
        report.text(15),
        file.display()
    );
    Ok(())
}

/// Removes the report of a failure in an earlier run.
fn remove_if_exists(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| file.display().to_string())
        }
        _ => Ok(()),
    }
}
