//! The results, and how they are told.

use std::fmt::{self, Write};

use serde::Serialize;

use super::load::Load;
use super::plot;
use super::subject::{Place, Subject};
use super::{Plan, Samples};
use crate::report::{Aim, Machine, Results, json, spread, write_aims};
use crate::stats::Spread;

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    machine: &'a Machine,
    /// Rounds so far.
    rounds: usize,
    /// Seconds of one measurement.
    seconds: f64,
    /// Pods on each of the crowded nodes.
    crowd: usize,
    /// Nodes that they know.
    nodes: usize,
    /// Each load at each place.
    pub cells: Vec<Cell>,
    aims: Vec<Aim>,
}

/// One load at one place, for every subject.
#[derive(Debug, Serialize)]
pub struct Cell {
    /// Where the ends are.
    pub place: Place,
    /// What is sent.
    pub load: Load,
    /// What rates are given in.
    pub unit: &'static str,
    /// What CPU time is given for.
    pub cpu_for: &'static str,
    /// Each subject's numbers.
    pub rows: Vec<Row>,
}

/// One subject with one load. Ratios are taken within each round.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Who.
    pub subject: Subject,
    /// How much of the load a second.
    pub rate: Option<Spread>,
    /// tweed's rate divided by this one: above 1 tweed carries more.
    pub tweed_rate: Option<Spread>,
    /// This rate divided by that without overlay, where that was measured.
    pub of_bound: Option<Spread>,
    /// Microseconds of CPU for each portion.
    pub cpu_us: Option<Spread>,
    /// This CPU time divided by tweed's: above 1 tweed is cheaper.
    pub cpu_tweed: Option<Spread>,
}

impl Cell {
    fn new(place: Place, load: Load, all: &[(Subject, &Samples)]) -> Self {
        let of = |subject: Subject| all.iter().find(|(one, _)| *one == subject).map(|(_, s)| *s);
        let (tweed, bound) = (of(Subject::tweed(place)), of(Subject::Nodes));
        let rows = all
            .iter()
            .filter(|(subject, _)| subject.place() == place)
            .map(|(subject, own)| Row {
                subject: *subject,
                rate: Spread::of(&own.rate),
                tweed_rate: tweed.and_then(|tweed| Spread::of_ratios(&tweed.rate, &own.rate)),
                of_bound: bound.and_then(|bound| Spread::of_ratios(&own.rate, &bound.rate)),
                cpu_us: Spread::of(&own.cpu_us),
                cpu_tweed: tweed.and_then(|tweed| Spread::of_ratios(&own.cpu_us, &tweed.cpu_us)),
            })
            .collect();
        Self {
            place,
            load,
            unit: load.scale().0,
            cpu_for: load.portion().0,
            rows,
        }
    }

    fn row(&self, subject: Subject) -> Option<&Row> {
        self.rows.iter().find(|row| row.subject == subject)
    }
}

/// What is aimed at: at this place tweed against that subject.
const AIMS: [(Place, Subject); 5] = [
    (Place::Across, Subject::HandMade),
    (Place::Across, Subject::NoTable),
    (Place::Same, Subject::SameHandMade),
    (Place::Same, Subject::SamePtp),
    (Place::Same, Subject::SameNoTable),
];

impl<'a> Report<'a> {
    /// What `samples` (by subject, then by load) of `rounds` rounds come to.
    pub fn new(
        machine: &'a Machine,
        plan: &Plan,
        rounds: usize,
        (subjects, loads): (&[Subject], &[Load]),
        samples: &[Vec<Samples>],
    ) -> Self {
        let mut cells = Vec::new();
        for place in Place::ALL {
            for (at, load) in loads.iter().enumerate() {
                let all: Vec<(Subject, &Samples)> = subjects
                    .iter()
                    .zip(samples)
                    .filter_map(|(subject, row)| Some((*subject, row.get(at)?)))
                    .collect();
                cells.push(Cell::new(place, *load, &all));
            }
        }
        let aims = cells.iter().flat_map(aims).collect();
        Self {
            machine,
            rounds,
            seconds: plan.seconds,
            crowd: plan.crowd,
            nodes: plan.nodes,
            cells,
            aims,
        }
    }

    /// The three files.
    pub fn results(&self) -> anyhow::Result<Results> {
        let mut markdown = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut markdown);
        Ok(Results {
            name: "carry",
            markdown,
            json: json(self)?,
            svg: plot::render(self),
        })
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "{}. {} rounds of {} s for each cell; all subjects in turn in each. Median (10th to \
             90th percentile). Ratios are taken within a round. Crowded: {} pods on each node, \
             {} nodes known. *No table*: agents stopped, `inet tweed` deleted; conntrack is kept \
             on by another table, as kube-proxy does, unless the row says otherwise.\n",
            self.machine, self.rounds, self.seconds, self.crowd, self.nodes
        )?;
        for place in Place::ALL {
            let cells: Vec<&Cell> = self.cells.iter().filter(|c| c.place == place).collect();
            let name = place.name();
            matrix(
                out,
                &format!("Rates, {name}: Gbit/s for streams, else 1,000 a second"),
                &cells,
                |row| row.rate,
            )?;
            matrix(
                out,
                &format!("tweed's rate divided by theirs, {name}: above 1 tweed carries more"),
                &cells,
                |row| row.tweed_rate,
            )?;
            if place == Place::Across {
                let title = "Rates divided by that without overlay";
                matrix(out, title, &cells, |row| row.of_bound)?;
            }
            matrix(
                out,
                &format!(
                    "CPU, {name}: µs of both ends for a MiB, packet, round trip or connection"
                ),
                &cells,
                |row| row.cpu_us,
            )?;
            matrix(
                out,
                &format!("Their CPU divided by tweed's, {name}: above 1 tweed is cheaper"),
                &cells,
                |row| row.cpu_tweed,
            )?;
        }
        write_aims(out, &self.aims)
    }
}

/// A row for each subject, a column for each load.
fn matrix(
    out: &mut String,
    title: &str,
    cells: &[&Cell],
    number: impl Fn(&Row) -> Option<Spread>,
) -> fmt::Result {
    let Some(first) = cells.first() else {
        return Ok(());
    };
    writeln!(out, "### {title}\n")?;
    write!(out, "| |")?;
    for cell in cells {
        write!(out, " {} |", cell.load.name())?;
    }
    writeln!(out, "\n|---|{}", "--:|".repeat(cells.len()))?;
    for at in 0..first.rows.len() {
        let rows = cells.iter().filter_map(|cell| cell.rows.get(at));
        if let Some(row) = first.rows.get(at) {
            write!(out, "| {} |", row.subject.name())?;
        }
        for row in rows {
            write!(out, " {} |", spread(number(row)))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

/// "Not below" means: not by more than tweed's own two runs differ.
fn aims(cell: &Cell) -> Vec<Aim> {
    let again = cell.row(Subject::TweedAgain).and_then(|row| row.tweed_rate);
    let noise = again.map_or(1.0, |again| again.low.min(1.0));
    let aim = |tweed: &Row, other: &Row| {
        let measured = other.tweed_rate?;
        Some(Aim {
            what: format!(
                "{}, {}: {} carries at least as much as {} (noise: {noise:.2})",
                cell.load.name(),
                cell.place.name(),
                tweed.subject.name(),
                other.subject.name()
            ),
            is_met: measured.median >= noise,
            measured,
        })
    };
    AIMS.into_iter()
        .filter(|(place, _)| *place == cell.place)
        .filter_map(|(place, other)| aim(cell.row(Subject::tweed(place))?, cell.row(other)?))
        .collect()
}
