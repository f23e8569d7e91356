//! The results, and how they are told.

use std::fmt::{self, Write};

use serde::Serialize;

use super::load::Load;
use super::plot;
use super::subject::{Place, Subject};
use super::{Plan, Samples};
use crate::report::{Machine, Results, json, spread, text};
use crate::stats::{Spread, ratios};

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    machine: &'a Machine,
    /// Whether idle CPUs were kept from sleeping.
    awake: bool,
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

/// One subject with one load. Ratios are taken within each round; of them the
/// median and its interval of confidence ([`Spread::confidence`]) are kept.
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
                tweed_rate: tweed.and_then(|tweed| sure(&tweed.rate, &own.rate)),
                of_bound: bound.and_then(|bound| sure(&own.rate, &bound.rate)),
                cpu_us: Spread::of(&own.cpu_us),
                cpu_tweed: tweed.and_then(|tweed| sure(&own.cpu_us, &tweed.cpu_us)),
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

fn sure(above: &[f64], below: &[f64]) -> Option<Spread> {
    Spread::confidence(&ratios(above, below))
}

/// What is aimed at: at this place tweed is not below that subject.
const AIMS: [(Place, Subject); 7] = [
    (Place::Across, Subject::HandMade),
    (Place::Across, Subject::OnlyMasquerade),
    (Place::Across, Subject::NoTable),
    (Place::Same, Subject::SameHandMade),
    (Place::Same, Subject::SamePtp),
    (Place::Same, Subject::SameOnlyMasquerade),
    (Place::Same, Subject::SameNoTable),
];

/// One load and one subject that tweed is not to be below.
#[derive(Debug, Serialize)]
pub struct Aim {
    place: Place,
    load: Load,
    subject: Subject,
    rate: Option<Verdict>,
    cpu: Option<Verdict>,
}

/// A ratio of tweed's, above 1 where tweed is better, and what it says.
#[derive(Debug, Clone, Copy, Serialize)]
struct Verdict {
    ratio: Spread,
    /// The median of tweed's ratio to itself, or one divided by it: what is
    /// below 1.
    noise: f64,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Met,
    Open,
    Short,
}

impl Verdict {
    fn new(ratio: Option<Spread>, again: Option<Spread>) -> Option<Self> {
        let noise = again.map_or(1.0, |again| again.median.min(1.0 / again.median));
        ratio.map(|ratio| Self {
            ratio,
            noise,
            outcome: if ratio.median >= noise {
                Outcome::Met
            } else if ratio.high >= noise {
                Outcome::Open
            } else {
                Outcome::Short
            },
        })
    }
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Open => "open",
            Self::Short => "**short**",
        }
    }
}

impl<'a> Report<'a> {
    /// What `samples` (by subject, then by load) of `rounds` rounds come to.
    pub fn new(
        (machine, awake): (&'a Machine, bool),
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
            awake,
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
        Ok(Results {
            name: "carry",
            markdown: text(|out| self.write(out)),
            json: json(self)?,
            svg: plot::render(self),
        })
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "{}; idle CPUs were {}kept from sleeping. {} rounds of {} s for each cell; all \
             subjects in turn in each. Rates and CPU: median (10th to 90th percentile). Ratios \
             are taken within a round: median (where the true one lies, with 95 % confidence). \
             Crowded: {} pods on each node, {} nodes known. *No table*: agents stopped, `inet \
             tweed` deleted; conntrack is kept on by another table, as kube-proxy does, unless \
             the row says otherwise. *Only masquerading*: that other table masquerades.\n",
            self.machine,
            if self.awake { "" } else { "not " },
            self.rounds,
            self.seconds,
            self.crowd,
            self.nodes
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

/// A row for each aim.
fn write_aims(out: &mut String, aims: &[Aim]) -> fmt::Result {
    writeln!(
        out,
        "### Aims: tweed is not below\n\n\
         *Noise*: how far the median of *tweed, again* is from 1. **Short**: the whole interval \
         of the ratio is below that; open: its median is, but not the whole interval; met: \
         neither.\n\n\
         | | than | rate | noise | CPU | noise |\n|---|---|--:|--:|--:|--:|"
    )?;
    for aim in aims {
        write!(out, "| {}, {} ", aim.load.name(), aim.place.name())?;
        write!(out, "| {} |", aim.subject.name())?;
        for verdict in [aim.rate, aim.cpu] {
            let ratio = spread(verdict.map(|verdict| verdict.ratio));
            match verdict {
                Some(Verdict { noise, outcome, .. }) => {
                    let word = outcome.word();
                    write!(out, " {ratio} {word} | {noise:.2} |")?;
                }
                None => write!(out, " {ratio} | – |")?,
            }
        }
        writeln!(out)?;
    }
    writeln!(out)
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

fn aims(cell: &Cell) -> Vec<Aim> {
    let again = cell.row(Subject::again(cell.place));
    AIMS.into_iter()
        .filter(|(place, _)| *place == cell.place)
        .filter_map(|(place, subject)| {
            let row = cell.row(subject)?;
            Some(Aim {
                place,
                load: cell.load,
                subject,
                rate: Verdict::new(row.tweed_rate, again.and_then(|row| row.tweed_rate)),
                cpu: Verdict::new(row.cpu_tweed, again.and_then(|row| row.cpu_tweed)),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(low: f64, median: f64, high: f64, again: f64) -> Outcome {
        let ratio = Spread { median, low, high };
        let again = Some(Spread::exact(again));
        Verdict::new(Some(ratio), again).unwrap().outcome
    }

    #[test]
    fn only_a_whole_interval_below_the_noise_is_short() {
        assert_eq!(outcome(0.90, 0.97, 1.20, 1.0), Outcome::Open);
        assert_eq!(outcome(0.90, 0.97, 0.99, 1.0), Outcome::Short);
        assert_eq!(outcome(0.99, 1.01, 1.20, 1.0), Outcome::Met);
    }

    #[test]
    fn noise_counts_the_same_in_both_directions() {
        for again in [0.95, 1.0 / 0.95] {
            assert_eq!(outcome(0.94, 0.96, 0.98, again), Outcome::Met);
            assert_eq!(outcome(0.90, 0.92, 0.94, again), Outcome::Short);
        }
    }
}
