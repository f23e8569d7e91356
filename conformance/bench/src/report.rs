//! What was measured, as tables of Markdown: a row for each quantity, a column for
//! each subject. The first subject is tweed as it is now; the others are shown as
//! their ratio to it.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::Context;

use crate::stats::{Spread, percentile};

/// The name of the other build of tweed.
pub const BEFORE: &str = "before";

/// The results of one benchmark.
pub struct Report {
    name: &'static str,
    folder: PathBuf,
    head: String,
    /// Its tables, in the order in which they are written.
    pub tables: Vec<Table>,
}

impl Report {
    /// Without any table; `how` says in a sentence or two how it was measured.
    pub fn new(name: &'static str, folder: PathBuf, how: &str) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let kernel = read("/proc/sys/kernel/osrelease");
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        let load = read("/proc/loadavg");
        let head = format!(
            "# {name}\n\nLinux {}, {cpus} CPUs, load before: {}. {how} Medians over the rounds; in \
             parentheses the quartiles. × is the value divided by that of the first column, round \
             by round.\n",
            kernel.trim(),
            load.split(' ').next().unwrap_or_default()
        );
        Self {
            name,
            folder,
            head,
            tables: Vec::new(),
        }
    }

    /// A table for each of the sizes of a cluster; `one` measures one round of one size.
    pub fn of_sizes<S: Copy>(
        mut self,
        rounds: usize,
        columns: &[String],
        sizes: &[S],
        title: impl Fn(S) -> String,
        mut one: impl FnMut(usize, S, &mut Table) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let table = |size: &S| Table::new(&title(*size), columns);
        self.tables = sizes.iter().map(table).collect();
        for round in 0..rounds {
            for (table, size) in sizes.iter().enumerate() {
                let what = format!("round {} of {rounds}: {}", round + 1, title(*size));
                progress(&format!("{what} …"));
                one(round, *size, &mut self.tables[table]).context(what)?;
                self.save()?;
            }
        }
        Ok(self)
    }

    /// Writes what is known so far into the folder.
    pub fn save(&self) -> anyhow::Result<()> {
        let path = self.folder.join(format!("{}.md", self.name));
        fs::create_dir_all(&self.folder)
            .and_then(|()| fs::write(&path, self.markdown()))
            .with_context(|| path.display().to_string())
    }

    /// All tables.
    pub fn markdown(&self) -> String {
        let mut out = self.head.clone();
        for table in &self.tables {
            table.write(&mut out);
        }
        out
    }
}

/// One table.
pub struct Table {
    title: String,
    subjects: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    /// For each subject the values of the rounds.
    samples: Vec<Vec<f64>>,
}

impl Table {
    /// An empty one with these columns.
    pub fn new(title: &str, subjects: &[impl ToString]) -> Self {
        Self {
            title: title.to_owned(),
            subjects: subjects.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }

    /// The column of this subject.
    pub fn column(&mut self, subject: usize) -> Column<'_> {
        Column {
            table: self,
            subject,
        }
    }

    /// Adds the value of one round to the row of this name, which is made where
    /// it is not there yet.
    pub fn record(&mut self, row: &str, subject: usize, value: f64) {
        let known = self.rows.iter().position(|old| old.name == row);
        let at = known.unwrap_or_else(|| {
            self.rows.push(Row {
                name: row.to_owned(),
                samples: vec![Vec::new(); self.subjects.len()],
            });
            self.rows.len() - 1
        });
        let samples = self.rows.get_mut(at).map(|row| &mut row.samples);
        if let Some(samples) = samples.and_then(|samples| samples.get_mut(subject)) {
            samples.push(value);
        }
    }

    fn write(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "\n## {}\n\n| | {} |",
            self.title,
            self.subjects.join(" | ")
        );
        let _ = writeln!(out, "|---|{}", "--:|".repeat(self.subjects.len()));
        for row in &self.rows {
            let first = row.samples.first().map_or(&[][..], Vec::as_slice);
            let _ = write!(out, "| {} | {} |", row.name, spread(first));
            for samples in row.samples.iter().skip(1) {
                let cell = match (Spread::of(samples), ratio(samples, first)) {
                    (None, _) => "–".to_owned(),
                    (Some(one), None) => number(one.median),
                    (Some(one), Some(ratio)) => format!("{}, × {ratio}", number(one.median)),
                };
                let _ = write!(out, " {cell} |");
            }
            out.push('\n');
        }
    }
}

/// The column of one subject.
pub struct Column<'a> {
    table: &'a mut Table,
    subject: usize,
}

impl Column<'_> {
    /// Adds the value of one round.
    pub fn record(&mut self, row: &str, value: f64) {
        self.table.record(row, self.subject, value);
    }

    /// Adds median and 99th percentile of one round's times, in milliseconds.
    pub fn record_times(&mut self, what: &str, times: &[f64]) {
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            if let Some(value) = percentile(times, share) {
                self.record(&format!("{what}, {name}, ms"), value);
            }
        }
    }
}

fn spread(samples: &[f64]) -> String {
    match Spread::of(samples) {
        None => "–".to_owned(),
        Some(one) if one.low == one.high => number(one.median),
        Some(one) => format!(
            "{} ({}–{})",
            number(one.median),
            number(one.low),
            number(one.high)
        ),
    }
}

fn ratio(above: &[f64], below: &[f64]) -> Option<String> {
    // Nothing is a multiple of nothing.
    let below = Some(below).filter(|below| below.iter().all(|value| *value != 0.0))?;
    let ratio = Spread::of_ratios(above, below)?;
    Some(match ratio {
        Spread { median, low, high } if low == high => format!("{median:.2}"),
        Spread { median, low, high } => format!("{median:.2} ({low:.2}–{high:.2})"),
    })
}

/// With three digits that count.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Writes a line about the progress to stderr.
pub fn progress(line: &str) {
    // A closed stderr is no reason to stop: the results go to files.
    let _ = io::Write::write_all(&mut io::stderr(), format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_ratios_to_the_first_subject() {
        let mut table = Table::new("ADD and DEL", &["tweed", BEFORE, "floor"]);
        for (tweed, before) in [(2.0, 2.5), (4.0, 5.0)] {
            table.record("ADD, ms", 0, tweed);
            table.record("ADD, ms", 1, before);
        }
        table.record("the kernel's part, ms", 2, 0.25);
        table.record("requests", 0, 0.0);
        table.record("requests", 1, 3.0);
        let mut report = Report::new("attach", PathBuf::new(), "In turn.");
        report.tables.push(table);
        let text = report.markdown();
        for line in [
            "| | tweed | before | floor |",
            "| ADD, ms | 3.00 (2.50–3.50) | 3.75, × 1.25 | – |",
            "| the kernel's part, ms | – | – | 0.250 |",
        ] {
            assert!(text.contains(&format!("{line}\n")), "no {line} in {text}");
        }
        assert!(text.contains("| requests | 0.000 | 3.00 | – |\n"), "{text}");
    }

    #[test]
    fn numbers_have_three_digits() {
        let texts = [1234.5, 123.4, 12.34, 1.234, 0.1234].map(number);
        assert_eq!(texts, ["1234", "123", "12.3", "1.23", "0.123"]);
    }
}
