//! `tweed-bench carry`: what passes between two pods, beside what passes
//! between two nodes without any overlay, and beside other pod networks.
//!
//! ```text
//! subject   the rows: which network, from where to where
//! stage     the networks: nodes of their own for each, a cable between them
//! handmade  what flannel sets up; crowd: many pods and nodes
//! load      one measurement: threads, CPUs, clock; traffic: what is sent
//! report    the results as JSON and Markdown; plot: as SVG
//! check     the loads beside other people's tools
//! price     what the table costs a packet; alone: by loads of one thread
//! ```
//!
//! What always holds: all networks stand while any is measured; subjects take
//! turns within a round, in another order each time, and a ratio is taken
//! within a round; all loads are the same program for all. Rounds are many and
//! short: a ratio is judged by its interval of confidence, which many rounds
//! make narrow, and what disturbs one round disturbs only that one.

mod alone;
mod check;
mod crowd;
mod handmade;
mod load;
mod plot;
mod price;
mod report;
mod stage;
mod subject;
mod traffic;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tweed_lab::{Lab, Underlay};

use crate::report::{Machine, Results};
use load::{Awake, Load, Sample, Timing};
use report::Report;
use stage::{Crowd, Stage};
use subject::{Kind, Subject};

/// How much is measured.
#[derive(Debug, Args)]
pub struct Plan {
    /// Rounds; each measures every subject once with every load.
    #[arg(long, value_name = "N", default_value_t = Plan::default().rounds)]
    rounds: usize,
    /// Seconds of one measurement; a third more is for warming up.
    #[arg(long, value_name = "S", default_value_t = Plan::default().seconds)]
    seconds: f64,
    /// Pods on each of the crowded nodes.
    #[arg(long, value_name = "N", default_value_t = Plan::default().crowd)]
    crowd: usize,
    /// Nodes that the crowded nodes know.
    #[arg(long, value_name = "N", default_value_t = Plan::default().nodes)]
    nodes: usize,
    /// Only subjects whose name has one of these in it, and tweed.
    #[arg(long, value_name = "TEXT,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Only loads whose name has one of these in it.
    #[arg(long, value_name = "TEXT,…", value_delimiter = ',')]
    loads: Vec<String>,
    /// Measures instead the loads of this bench beside iperf3 and sockperf, on
    /// a path without overlay, to see that they agree.
    #[arg(long)]
    check: bool,
    /// Measures instead what the table costs a packet, and how much of that are
    /// its hooks: on one network whose rules are exchanged between short runs.
    /// 100 rounds of 0.01 s are enough.
    #[arg(long, conflicts_with = "check")]
    price: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            // Of 17 numbers the fifth from each end is 95 % sure: no other
            // count near it wastes so little.
            rounds: 17,
            seconds: 0.1,
            crowd: 1000,
            nodes: 5000,
            only: Vec::new(),
            loads: Vec::new(),
            check: false,
            price: false,
        }
    }
}

/// Every round's samples of one subject with one load.
#[derive(Default, Clone)]
pub struct Samples {
    rate: Vec<f64>,
    cpu_us: Vec<f64>,
}

impl Plan {
    /// The least that touches everything, of what is measured.
    pub fn smoke(self) -> Self {
        Self {
            rounds: 1,
            seconds: 0.03,
            crowd: 2,
            nodes: 3,
            check: self.check,
            price: self.price,
            ..Self::default()
        }
    }

    fn timing(&self) -> Timing {
        let window = Duration::from_secs_f64(self.seconds.clamp(0.01, 3600.0));
        Timing {
            warm_up: window / 3,
            window,
        }
    }

    fn subjects(&self) -> Vec<Subject> {
        let wanted = |subject: &Subject| {
            self.only.is_empty()
                || *subject == Subject::tweed(subject.place())
                || self.only.iter().any(|part| subject.name().contains(part))
        };
        Subject::ALL.into_iter().filter(wanted).collect()
    }

    fn loads(&self) -> Vec<Load> {
        let wanted = |load: &Load| {
            self.loads.is_empty() || self.loads.iter().any(|part| load.name().contains(part))
        };
        Load::ALL.into_iter().filter(wanted).collect()
    }

    /// Measures all of it; what is there goes to the folder `out` after each
    /// round. `say` gets lines on how far it has come.
    pub fn run(&self, out: &Path, mut say: impl FnMut(&str)) -> anyhow::Result<Results> {
        let machine = Machine::look();
        let lab = Lab::new()?;
        let underlay = Underlay::new(&lab)?;
        let awake = Awake::begin();
        if self.check {
            return check::run_beside(&underlay, &machine, self.timing(), self.rounds, say);
        }
        if self.price {
            let Timing { window, .. } = self.timing();
            return price::run(&underlay, &machine, (window, self.rounds), say);
        }
        let subjects = self.subjects();
        let loads = self.loads();
        let stages = self.build(&underlay, &subjects, &mut say)?;
        let mut samples = vec![vec![Samples::default(); loads.len()]; subjects.len()];
        let mut results = None;
        for round in 0..self.rounds {
            say(&format!("round {} of {} …", round + 1, self.rounds));
            self.round(round, (&subjects, &loads), &stages, &mut samples)?;
            let report = Report::new(
                (&machine, awake.is_kept()),
                self,
                round + 1,
                (&subjects, &loads),
                &samples,
            );
            let written = report.results()?;
            written.write(out)?;
            results = Some(written);
        }
        results.context("no rounds were asked for")
    }

    fn build(
        &self,
        underlay: &Underlay,
        subjects: &[Subject],
        say: &mut impl FnMut(&str),
    ) -> anyhow::Result<Vec<Stage>> {
        let mut kinds: Vec<Kind> = Vec::new();
        for subject in subjects {
            if !kinds.contains(&subject.kind()) {
                kinds.push(subject.kind());
            }
        }
        let crowd = Crowd {
            pods: self.crowd,
            nodes: self.nodes,
        };
        say(&format!("{} networks …", kinds.len()));
        (0..)
            .zip(kinds)
            .map(|(number, kind)| {
                Stage::new(underlay, kind, number, crowd)
                    .with_context(|| format!("building the network {kind:?}"))
            })
            .collect()
    }

    fn round(
        &self,
        round: usize,
        (subjects, loads): (&[Subject], &[Load]),
        stages: &[Stage],
        samples: &mut [Vec<Samples>],
    ) -> anyhow::Result<()> {
        for (load_at, load) in loads.iter().enumerate() {
            for at in turns(round, subjects.len()) {
                let Some(subject) = subjects.get(at) else {
                    continue;
                };
                let stage = stages
                    .iter()
                    .find(|stage| stage.kind == subject.kind())
                    .with_context(|| format!("no network for {}", subject.name()))?;
                let path = stage.path(subject.place())?;
                let Sample { rate, cpu_us } = load.measure(&path, self.timing())?;
                if let Some(into) = samples.get_mut(at).and_then(|row| row.get_mut(load_at)) {
                    into.rate.push(rate);
                    into.cpu_us.push(cpu_us);
                }
            }
        }
        Ok(())
    }
}

/// The order of `count` subjects in a round: another one first each time, and
/// another one before each, so that what one leaves behind (entries in
/// conntrack, warm caches) does not always meet the same.
fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    // A step that shares no factor with the count meets everyone once.
    let steps: Vec<usize> = (1..=count)
        .filter(|step| common_factor(*step, count) == 1)
        .collect();
    let step = steps.get(round % steps.len().max(1)).copied().unwrap_or(1);
    (0..count).map(move |turn| (round + turn * step) % count)
}

/// The greatest.
fn common_factor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_factor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn everyone_has_a_turn_in_every_round_and_neighbours_change() {
        for count in 0..20 {
            for round in 0..20 {
                let met: BTreeSet<usize> = turns(round, count).collect();
                assert_eq!(met, (0..count).collect());
            }
        }
        let order = |round| turns(round, 18).collect::<Vec<_>>();
        let follower = |order: &[usize]| {
            let at = order.iter().position(|one| *one == 0).unwrap();
            order[(at + 1) % order.len()]
        };
        assert_ne!(follower(&order(0)), follower(&order(1)));
    }
}
