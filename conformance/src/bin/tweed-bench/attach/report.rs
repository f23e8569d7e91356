//! The results, and how they are told.

use std::fmt::Write;

use serde::Serialize;

use super::footprint::Footprint;
use super::subject::{Subject, Verb};
use crate::report::{Aim, Machine, spread, text, write_aims};
use crate::stats::Spread;

/// tweed's ADD and DEL are to take at most this share of the time of ptp.
const PTP_SHARE: f64 = 5.0;
/// tweed's ADD is to take at most this many times the floor's time.
const FLOOR_TIMES: f64 = 1.5;

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Rounds with one call at a time.
    pub rounds: usize,
    /// ADD and DEL.
    pub cells: Vec<Cell>,
    /// Pods coming and going: milliseconds for each, the last link's end
    /// included.
    pub churn: Vec<Measured>,
    /// Size and start-up.
    pub footprints: Vec<Footprint>,
}

/// One verb in one situation, for every subject.
#[derive(Debug, Serialize)]
pub struct Cell {
    /// Pods on the node before.
    pub pods: usize,
    /// Calls at once.
    pub at_once: usize,
    /// The verb.
    pub verb: Verb,
    /// Each subject's numbers.
    pub measured: Vec<Measured>,
}

/// A subject's numbers.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// The subject.
    pub subject: Subject,
    /// Milliseconds for each call: the time of all, divided by their number.
    pub ms: Option<Spread>,
    /// Calls a second, of the median.
    pub per_second: Option<f64>,
    /// Its time divided by tweed's, within each round.
    pub times_tweed: Option<Spread>,
    /// Milliseconds from the end of the last DEL until no link was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_after_ms: Option<Spread>,
}

impl Measured {
    /// Of each subject's milliseconds, round by round.
    pub fn all(samples: &[(Subject, Vec<f64>)]) -> Vec<Self> {
        let tweed = samples
            .iter()
            .find(|(subject, _)| *subject == Subject::Tweed)
            .map(|(_, samples)| samples.as_slice())
            .unwrap_or_default();
        samples
            .iter()
            .map(|(subject, samples)| {
                let ms = Spread::of(samples);
                Self {
                    subject: *subject,
                    ms,
                    per_second: ms.map(|ms| 1e3 / ms.median),
                    times_tweed: Spread::of_ratios(samples, tweed),
                    gone_after_ms: None,
                }
            })
            .collect()
    }
}

impl Report {
    /// Tables for people.
    pub fn markdown(&self) -> String {
        text(|out| self.write(out))
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "{}. {} rounds with one call at a time, fewer with \
             several; all subjects in turn in each. Milliseconds are those of all calls divided \
             by their number: median (10th to 90th percentile). Ratios are taken within a round.\n",
            self.machine, self.rounds
        )?;
        for cell in &self.cells {
            writeln!(
                out,
                "### {}, {} at once, {} pods on the node\n",
                cell.verb.as_str(),
                cell.at_once,
                cell.pods
            )?;
            table(out, &cell.measured)?;
        }
        writeln!(
            out,
            "### Pods coming and going: ADD and DEL, until the last link is gone\n"
        )?;
        table(out, &self.churn)?;
        self.write_footprints(out)?;
        write_aims(out, &self.aims())
    }

    fn write_footprints(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "### Size and start-up\n")?;
        writeln!(
            out,
            "| | program, KiB | VERSION, ms | page faults ADD | page faults DEL | CPU of ADD, ms | CPU of DEL, ms |"
        )?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|--:|")?;
        for one in &self.footprints {
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {:.1} | {:.1} |",
                one.subject.name(),
                one.bytes / 1024,
                spread(one.version_ms),
                one.add.page_faults,
                one.del.page_faults,
                one.add.cpu_ms,
                one.del.cpu_ms
            )?;
        }
        writeln!(out)
    }

    /// What was aimed at, and what it came to.
    pub fn aims(&self) -> Vec<Aim> {
        let mut aims = Vec::new();
        for cell in &self.cells {
            let of = |subject: Subject| {
                let found = cell.measured.iter().find(|one| one.subject == subject);
                found.and_then(|one| one.times_tweed)
            };
            let place = format!(
                "{}, {} at once, {} pods",
                cell.verb.as_str(),
                cell.at_once,
                cell.pods
            );
            if let Some(ratio) = of(Subject::Ptp) {
                aims.push(Aim {
                    what: format!("{place}: ptp + host-local takes at least {PTP_SHARE} × as long"),
                    measured: ratio,
                    is_met: ratio.median >= PTP_SHARE,
                });
            }
            if let (Verb::Add, Some(ratio)) = (cell.verb, of(Subject::Floor)) {
                let measured = Spread {
                    median: 1.0 / ratio.median,
                    low: 1.0 / ratio.high,
                    high: 1.0 / ratio.low,
                };
                aims.push(Aim {
                    what: format!("{place}: at most {FLOOR_TIMES} × the floor"),
                    measured,
                    is_met: measured.median <= FLOOR_TIMES,
                });
            }
        }
        aims
    }
}

fn table(out: &mut String, measured: &[Measured]) -> std::fmt::Result {
    let has_gone = measured.iter().any(|one| one.gone_after_ms.is_some());
    let (head, rule) = if has_gone {
        (" links gone after, ms |", "--:|")
    } else {
        ("", "")
    };
    writeln!(out, "| | ms | a second | × tweed |{head}")?;
    writeln!(out, "|---|--:|--:|--:|{rule}")?;
    for one in measured {
        write!(
            out,
            "| {} | {} | {:.0} | {} |",
            one.subject.name(),
            spread(one.ms),
            one.per_second.unwrap_or_default(),
            spread(one.times_tweed)
        )?;
        if has_gone {
            write!(out, " {} |", spread(one.gone_after_ms))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(verb: Verb, tweed: f64, ptp: f64, floor: f64) -> Cell {
        let samples = [
            (Subject::Tweed, vec![tweed]),
            (Subject::Ptp, vec![ptp]),
            (Subject::Floor, vec![floor]),
        ];
        Cell {
            pods: 0,
            at_once: 1,
            verb,
            measured: Measured::all(&samples),
        }
    }

    #[test]
    fn aims_are_judged_by_the_median_of_the_ratio() {
        let report = Report {
            cells: vec![
                cell(Verb::Add, 2.0, 10.0, 1.0),
                cell(Verb::Del, 5.0, 20.0, 1.0),
            ],
            ..Report::default()
        };
        let met: Vec<bool> = report.aims().iter().map(|aim| aim.is_met).collect();
        // 10 / 2 is 5 and enough; 2 / 1 is more than 1.5; 20 / 5 is too little.
        assert_eq!(met, [true, false, false]);
        let text = report.markdown();
        assert_eq!(text.matches("**short**").count(), 2, "{text}");
        assert!(
            text.contains("| ptp + host-local | 10.00 (10.00–10.00) | 100 | 5.00"),
            "{text}"
        );
    }
}
