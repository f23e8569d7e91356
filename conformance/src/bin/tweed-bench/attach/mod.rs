//! `tweed-bench attach`: ADD and DEL, some at once, on an empty node and on a
//! full one.
//!
//! ```text
//! subject   who is measured: the config, the program, its calls
//! call      one call as a runtime makes it: fork, exec, stdin, stdout
//! stage     a node of its own for each subject, with its pods
//! report    the results as JSON and Markdown; plot: as SVG
//! ```
//!
//! What always holds: subjects take turns within a round, and a ratio is taken
//! within a round, so that a machine that gets slower or faster meanwhile harms
//! all alike.

mod call;
mod footprint;
mod plot;
mod report;
mod stage;
mod subject;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tweed_lab::{Lab, Pod, Underlay};

use crate::report::{Machine, Results, json};
use crate::stats::Spread;
use footprint::Footprint;
use report::{Cell, Measured, Report};
use stage::Stage;
use subject::{Subject, Verb};

/// Workers of the churn, each with pods of its own.
const CHURN_WORKERS: usize = 8;

/// How much is measured.
#[derive(Debug, Args)]
pub struct Plan {
    /// Pods on the node that is not empty.
    #[arg(long, value_name = "N", default_value_t = Self::default().crowd)]
    crowd: usize,
    /// Calls at once, in the order in which they are measured.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = Self::default().at_once)]
    at_once: Vec<usize>,
    /// Rounds with one call at a time; with N at once there are fewer.
    #[arg(long, value_name = "N", default_value_t = Self::default().rounds)]
    rounds: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            crowd: 250,
            at_once: vec![1, 8, 32, 110],
            rounds: 20,
        }
    }
}

impl Plan {
    /// One round, two calls at once, two pods: to see that it works.
    pub fn smoke() -> Self {
        Self {
            crowd: 2,
            at_once: vec![1, 2],
            rounds: 1,
        }
    }

    /// Measures, and tells of it. `say` gets lines on how far it has come; what is
    /// known so far is written to `out` after each part.
    pub fn run(&self, out: &Path, say: impl FnMut(&str)) -> anyhow::Result<Results> {
        stage::clear_away()?;
        results(&measure(self, say, |so_far| results(so_far)?.write(out))?)
    }

    /// A burst of many has many samples in it already.
    fn rounds_of(&self, at_once: usize) -> usize {
        let share = match at_once {
            0..=1 => 1,
            2..=15 => 3,
            16..=63 => 4,
            _ => 5,
        };
        self.rounds.div_ceil(share)
    }
}

/// Milliseconds of each round, for a subject.
#[derive(Default, Clone)]
struct Samples {
    add: Vec<f64>,
    del: Vec<f64>,
    gone: Vec<f64>,
}

fn results(report: &Report) -> anyhow::Result<Results> {
    Ok(Results {
        name: "attach",
        markdown: report.markdown(),
        json: json(report)?,
        svg: plot::render(report),
    })
}

fn measure(
    plan: &Plan,
    mut say: impl FnMut(&str),
    keep: impl Fn(&Report) -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    let lab = Lab::new()?;
    let underlay = Underlay::new(&lab)?;
    let most = plan.at_once.iter().copied().max().unwrap_or(1);
    let pods = (0..most)
        .map(|number| Pod::new(&lab, &format!("m{number}")))
        .collect::<Result<Vec<_>, _>>()?;
    let mut report = Report {
        machine: Machine::look(),
        rounds: plan.rounds,
        ..Report::default()
    };
    let mut number = 0;
    for crowd in [0, plan.crowd] {
        say(&format!(
            "{} nodes with {crowd} pods each …",
            Subject::ALL.len()
        ));
        let stages = Subject::ALL
            .into_iter()
            .map(|subject| {
                number += 1;
                Stage::new(&underlay, subject, number, crowd)
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        for at_once in &plan.at_once {
            say(&format!("{at_once} at once, beside {crowd} pods …"));
            let pods: Vec<&Pod> = pods.iter().take(*at_once).collect();
            let samples = rounds(&stages, &pods, plan.rounds_of(*at_once))?;
            for verb in [Verb::Add, Verb::Del] {
                report
                    .cells
                    .push(cell(crowd, *at_once, verb, &stages, &samples));
            }
            keep(&report)?;
        }
        if crowd == 0 {
            report.footprints = footprints(&stages, &pods, plan.rounds)?;
            let workers = CHURN_WORKERS.min(pods.len());
            say(&format!("pods coming and going, {workers} workers …"));
            report.churn = churn(&stages, &pods, workers, plan.rounds.div_ceil(8))?;
            keep(&report)?;
        }
    }
    Ok(report)
}

/// Each round measures each subject once; another one begins each time.
fn rounds(stages: &[Stage], pods: &[&Pod], count: usize) -> anyhow::Result<Vec<Samples>> {
    let mut samples = vec![Samples::default(); stages.len()];
    // One round more, the first, is for warming up.
    for round in 0..=count {
        for turn in 0..stages.len() {
            let at = (round + turn) % stages.len();
            let (Some(stage), Some(samples)) = (stages.get(at), samples.get_mut(at)) else {
                continue;
            };
            let first = stage.crowd();
            let added = stage.add(pods, first)?;
            let deleted = stage.del(pods, first, &added)?;
            let gone = stage.settle()?;
            if round > 0 {
                let each = |took: Duration| millis(took) / pods.len() as f64;
                samples.add.push(each(added.took));
                samples.del.push(each(deleted.took));
                samples.gone.push(millis(gone));
            }
        }
    }
    Ok(samples)
}

fn cell(crowd: usize, at_once: usize, verb: Verb, stages: &[Stage], samples: &[Samples]) -> Cell {
    let of = |samples: &Samples| match verb {
        Verb::Add => samples.add.clone(),
        Verb::Del => samples.del.clone(),
    };
    let named: Vec<(Subject, Vec<f64>)> = stages
        .iter()
        .map(|stage| stage.subject)
        .zip(samples.iter().map(of))
        .collect();
    let mut measured = Measured::all(&named);
    if verb == Verb::Del {
        for (measured, samples) in measured.iter_mut().zip(samples) {
            measured.gone_after_ms = Spread::of(&samples.gone);
        }
    }
    Cell {
        pods: crowd,
        at_once,
        verb,
        measured,
    }
}

fn footprints(stages: &[Stage], pods: &[Pod], rounds: usize) -> anyhow::Result<Vec<Footprint>> {
    let pod = pods.first().context("no pod to measure with")?;
    stages
        .iter()
        .filter(|stage| stage.subject.is_plugin())
        .map(|stage| footprint::of(stage, pod, rounds))
        .collect()
}

/// Pods come and go for a while: each worker attaches and detaches its pods one
/// after the other, and the time ends when the last link is gone. So what a DEL
/// leaves to be done behind it counts too.
fn churn(
    stages: &[Stage],
    pods: &[Pod],
    workers: usize,
    rounds: usize,
) -> anyhow::Result<Vec<Measured>> {
    let queues: Vec<Vec<&Pod>> = (0..workers)
        .map(|worker| pods.iter().skip(worker).step_by(workers).collect())
        .collect();
    let stages: Vec<&Stage> = stages
        .iter()
        // The floor's DEL leaves all links to the end.
        .filter(|stage| stage.subject != Subject::Floor)
        .collect();
    let mut samples: Vec<(Subject, Vec<f64>)> = stages
        .iter()
        .map(|stage| (stage.subject, Vec::new()))
        .collect();
    for round in 0..=rounds {
        for (stage, (_, samples)) in stages.iter().zip(&mut samples) {
            let took = stage.churn(&queues)?;
            if round > 0 {
                samples.push(millis(took) / pods.len() as f64);
            }
        }
    }
    Ok(Measured::all(&samples))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
