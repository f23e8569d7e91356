//! Writes the results to files, as Markdown and as JSON.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use tweed_lab_kubernetes::Cluster;

use crate::tier::Tier;

/// The results of one run.
#[derive(Debug, Serialize)]
pub struct Results {
    tier: &'static str,
    kubernetes: String,
    kernel: String,
    cpus: usize,
    nodes: usize,
    /// In the order of execution.
    pub outcomes: Vec<Outcome>,
}

/// The result of one scenario.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The scenario's name.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Why it failed; `None` if it passed.
    pub error: Option<String>,
    /// Why it failed in the first cluster, if it passed in a second one: it is flaky.
    pub failed_before: Option<String>,
    /// Measurements: name and value.
    pub notes: Vec<(String, String)>,
}

impl Results {
    /// An empty list of outcomes with the versions of this cluster.
    ///
    /// # Errors
    /// The API server does not answer.
    pub fn new(tier: Tier, cluster: &Cluster) -> Result<Self> {
        let version = cluster.kubectl().json("version")?;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            tier: tier.name(),
            kubernetes: version["serverVersion"]["gitVersion"]
                .as_str()
                .unwrap_or("of an unknown version")
                .to_owned(),
            // Without the suffix of the distribution.
            kernel: release
                .trim()
                .split('-')
                .next()
                .unwrap_or_default()
                .to_owned(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            nodes: cluster.nodes().count(),
            outcomes: Vec::new(),
        })
    }

    /// The names of the failed scenarios, and why they failed.
    pub fn failed(&self) -> Vec<(&'static str, &str)> {
        let failed = self.outcomes.iter();
        failed
            .filter_map(|one| Some((one.name, one.error.as_deref()?)))
            .collect()
    }

    /// The names of the scenarios that passed only when they ran once more.
    pub fn flaky(&self) -> impl Iterator<Item = &'static str> {
        let flaky = self.outcomes.iter();
        flaky
            .filter(|one| one.failed_before.is_some())
            .map(|one| one.name)
    }

    /// Writes `results.md` and `results.json` into a folder.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let json = serde_json::to_string_pretty(self).context("the results as JSON")?;
        for (file, text) in [
            ("results.md", self.markdown()),
            ("results.json", json + "\n"),
        ] {
            let path = folder.join(file);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn markdown(&self) -> String {
        let mut text = format!(
            "Kubernetes {}, {} nodes on one machine (Linux {}, {} CPUs), tier `{}`.\n\n\
             | scenario | shows | | time |\n|---|---|---|--:|\n",
            self.kubernetes, self.nodes, self.kernel, self.cpus, self.tier
        );
        // Writing to a String cannot fail.
        for one in &self.outcomes {
            let verdict = match (&one.error, &one.failed_before) {
                (Some(_), _) => "**failed**",
                (None, Some(_)) => "flaky",
                (None, None) => "passed",
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {verdict} | {:.0} s |",
                one.name, one.shows, one.seconds
            );
        }
        let _ = writeln!(text, "\n| scenario | measured | |\n|---|---|--:|");
        for one in &self.outcomes {
            for (what, value) in &one.notes {
                let _ = writeln!(text, "| `{}` | {what} | {value} |", one.name);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &'static str, error: Option<&str>) -> Outcome {
        Outcome {
            name,
            shows: "something",
            seconds: 1.25,
            error: error.map(str::to_owned),
            failed_before: None,
            notes: vec![("memory".to_owned(), "9 MiB".to_owned())],
        }
    }

    #[test]
    fn the_table_has_failed_and_flaky_scenarios_and_measurements() {
        let mut flaky = outcome("three", None);
        flaky.failed_before = Some("once".to_owned());
        let results = Results {
            tier: "ci",
            kubernetes: "v1.35.4".to_owned(),
            kernel: "6.18.1".to_owned(),
            cpus: 2,
            nodes: 4,
            outcomes: vec![outcome("one", None), outcome("two", Some("no")), flaky],
        };
        assert_eq!(results.failed(), [("two", "no")]);
        assert!(results.flaky().eq(["three"]));
        let table = results.markdown();
        for line in [
            "| `one` | something | passed | 1 s |",
            "| `two` | something | **failed** | 1 s |",
            "| `three` | something | flaky | 1 s |",
            "| `one` | memory | 9 MiB |",
        ] {
            assert!(table.lines().any(|found| found == line), "{table}");
        }
    }
}
