//! What the results of all verbs have in common: where they were measured, what
//! was aimed at, and the files that they go to.

use std::fmt::{self, Write};
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::stats::Spread;

/// A verb's results, ready to be written.
pub struct Results {
    /// The verb: the files' name without the ending.
    pub name: &'static str,
    /// Tables for people.
    pub markdown: String,
    /// All numbers, for programs.
    pub json: String,
    /// A picture; empty where there is nothing to draw.
    pub svg: String,
}

impl Results {
    /// Writes the three files into the folder `out`.
    pub fn write(&self, out: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(out).with_context(|| out.display().to_string())?;
        let files = [
            ("md", &self.markdown),
            ("json", &self.json),
            ("svg", &self.svg),
        ];
        for (ending, text) in files.into_iter().filter(|(_, text)| !text.is_empty()) {
            let path = out.join(format!("{}.{ending}", self.name));
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// What `write` writes.
pub fn text(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text);
    text
}

/// `report` as the JSON that goes to a file.
pub fn json(report: &impl Serialize) -> anyhow::Result<String> {
    let json = serde_json::to_string_pretty(report).context("the results as JSON")?;
    Ok(format!("{json}\n"))
}

/// The machine.
#[derive(Debug, Default, Serialize)]
pub struct Machine {
    /// The kernel's version, without what its builder has added.
    pub kernel: String,
    /// CPUs.
    pub cpus: usize,
    /// The load before, as `/proc/loadavg` has it.
    pub load: String,
}

impl Machine {
    /// This one.
    pub fn look() -> Self {
        let read = |path| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        Self {
            kernel: read("/proc/sys/kernel/osrelease")
                .split('-')
                .next()
                .unwrap_or_default()
                .to_owned(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            load: read("/proc/loadavg"),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Linux {}, {} CPUs, load before: {}",
            self.kernel, self.cpus, self.load
        )
    }
}

/// One aim.
#[derive(Debug, Serialize)]
pub struct Aim {
    /// In words.
    pub what: String,
    /// What it came to.
    pub measured: Spread,
    /// Whether that is as it should be.
    pub is_met: bool,
}

/// The aims as a table of Markdown, with a heading of its own.
pub fn write_aims(out: &mut String, aims: &[Aim]) -> fmt::Result {
    writeln!(out, "### Aims\n")?;
    writeln!(out, "| aim | measured | |")?;
    writeln!(out, "|---|--:|---|")?;
    for aim in aims {
        writeln!(
            out,
            "| {} | {} | {} |",
            aim.what,
            spread(Some(aim.measured)),
            if aim.is_met { "met" } else { "**short**" }
        )?;
    }
    writeln!(out)
}

/// A spread as a table's cell has it.
pub fn spread(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "–".to_owned(),
        |one| format!("{:.2} ({:.2}–{:.2})", one.median, one.low, one.high),
    )
}
