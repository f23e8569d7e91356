//! One cluster for all scenarios, and what is told of each.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tweed_lab::{Leftover, Programs, leftovers, take_down};
use tweed_lab_kubernetes::{Cluster, Network, Report, Say, Spec};

use crate::Arguments;
use crate::results::{Outcome, Results};
use crate::scenarios::{Begins, Scenario, Tier};
use crate::stage::{AGENTS, Stage};

/// For the agents of all nodes to be Ready.
const AGENTS_LIMIT: Duration = Duration::from_secs(300);

/// Runs the scenarios and writes the results; whether all passed.
pub fn run(arguments: &Arguments, tier: Tier, chosen: &[&Scenario]) -> Result<bool> {
    let mut cluster = cluster(arguments)?;
    let mut results = Results::new(tier, &cluster)?;
    results.write(&arguments.out)?;
    for scenario in chosen {
        cluster.tell(&format!("{}: {}", scenario.name, scenario.shows));
        let (outcome, evidence) = play(&mut cluster, tier, scenario);
        let file = arguments.out.join(format!("failed-{}.txt", scenario.name));
        match &outcome.error {
            None => {
                cluster.tell(&format!("  ✓ {} ({:.1} s)", scenario.name, outcome.seconds));
                forget(&file)?;
            }
            Some(error) => {
                cluster.tell(&format!("  ✗ {}: {error}", scenario.name));
                let evidence = evidence.unwrap_or_else(|| cluster.report());
                dump(&evidence, error, &file)?;
            }
        }
        results.outcomes.push(outcome);
        // After each, so that a run that is cut off has told of what it did.
        results.write(&arguments.out)?;
    }
    if arguments.keep {
        cluster.keep()?;
        cluster.tell(&format!(
            "the cluster stays up: {}/kubectl get pods --all-namespaces; take it away with \
             `tweed-lab cluster down --name {}`",
            cluster.scripts().display(),
            cluster.name(),
        ));
    }
    let failed = results.failed();
    let all = results.outcomes.len();
    let folder = arguments.out.display();
    cluster.tell(&format!(
        "{} of {all} scenarios passed; results in {folder}",
        all - failed.len()
    ));
    if !failed.is_empty() {
        cluster.tell(&format!("failed: {}", failed.join(", ")));
    }
    Ok(failed.is_empty())
}

/// The one that is named, or a new one without a network.
fn cluster(arguments: &Arguments) -> Result<Cluster> {
    // A closed stdout is no reason to stop: the results go to files.
    let say: Say = Box::new(|line| drop(writeln!(std::io::stdout(), "{line}")));
    if let Some(name) = &arguments.cluster {
        return Ok(Cluster::open(name, say)?);
    }
    let name = &arguments.name;
    let is_killed_run = |lab: &Leftover| lab.name == *name && !lab.kept && !lab.in_use;
    if leftovers()?.iter().any(is_killed_run) {
        take_down(name)?;
    }
    let spec = Spec {
        workers: arguments.workers,
        network: Network::None,
        images: vec![Programs::find()?.target().join("tweed-image.tar")],
        ..Spec::default()
    };
    Ok(Cluster::up(name, spec, say)?)
}

/// Plays one scenario. Its namespace goes afterwards, which nobody waits for. If
/// it fails, there is what was to be seen then, before anything of it went.
fn play(cluster: &mut Cluster, tier: Tier, scenario: &Scenario) -> (Outcome, Option<Report>) {
    let start = Instant::now();
    let (notes, evidence, played) = match prepare(cluster, tier, scenario) {
        Err(error) => (Vec::new(), None, Err(error)),
        Ok(mut stage) => {
            let played = (scenario.run)(&mut stage);
            let played = stage.witness(played);
            let line = format!("delete namespace {} --wait=false", stage.namespace());
            let cleared = stage.kubectl().sh(&line).map(drop);
            let played = played.and(cleared.map_err(Into::into));
            (stage.notes, stage.evidence, played)
        }
    };
    let outcome = Outcome {
        name: scenario.name,
        shows: scenario.shows,
        seconds: start.elapsed().as_secs_f64(),
        error: played.err().map(|error| format!("{error:#}")),
        notes,
    };
    (outcome, evidence)
}

fn prepare<'a>(cluster: &'a mut Cluster, tier: Tier, scenario: &Scenario) -> Result<Stage<'a>> {
    const WHEN: &str = "before the scenario begins";
    if scenario.begins == Begins::Ready {
        cluster.install_tweed().context(WHEN)?;
        // Nodes stay Ready while their agents change.
        let rolled_out = cluster.kubectl().wait_rolled_out(AGENTS, AGENTS_LIMIT);
        rolled_out.context(WHEN)?;
    }
    Stage::new(cluster, tier, scenario.name).context(WHEN)
}

/// Keeps all that a person needs to find out why, and prints the most of it.
fn dump(evidence: &Report, error: &str, file: &Path) -> Result<()> {
    let text = format!("{error}\n\n{}", evidence.text(400));
    fs::write(file, text).with_context(|| file.display().to_string())?;
    // The file has it, should nobody be there to read.
    let _ = writeln!(
        std::io::stdout(),
        "{}\nall of it: {}\n",
        evidence.text(15),
        file.display()
    );
    Ok(())
}

/// Takes away what an earlier run has left of a failure.
fn forget(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| file.display().to_string())
        }
        _ => Ok(()),
    }
}
