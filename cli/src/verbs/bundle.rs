//! `bundle`: everything that a report of a defect needs, in one archive, without secrets.
//!
//! Whatever gets into the archive goes through [`redact`] ([`archive`]). What cannot be had is
//! a file that says why, and the rest is there all the same.

mod archive;
mod node;
mod redact;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::VERSION;
use crate::agents::Agents;
use crate::answered::{Answered, Unanswered};
use crate::cluster::{AGENT_LABELS, Cluster};
use crate::exit::Exit;
use crate::node::Node;
use crate::output::{Format, Page};
use crate::verb::{Verb, ask, show};
use archive::Archive;

const EXAMPLES: &str = "\
Examples:
  Of the whole cluster, into a file in this folder:
    tweedctl bundle

  Of two nodes:
    tweedctl bundle --node worker1 --node worker2 --file report.tar.zst

  Of this machine, as root:
    tweedctl bundle --run-dir /run/tweed

Secrets, kubeconfigs and the values of annotations, ConfigMaps and most variables are never
collected; what looks like a password, a token or a key in a text is removed. The file
index.txt in the archive lists what is there and what could not be had.";

/// Nodes whose parts are held in memory at once.
const NODES_AT_ONCE: usize = 32;

/// The arguments of `bundle`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = EXAMPLES)]
pub struct Bundle {
    /// The archive, .tar.zst; - for stdout; if not given, tweed-bundle-TIME.tar.zst
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Lines of each agent's log
    #[arg(long, value_name = "COUNT", default_value_t = 5000)]
    log_lines: usize,
}

/// The part of one node: files, each with its content or why it could not be had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Contents by name.
    pub files: BTreeMap<String, String>,
    /// Why a file is not there.
    #[serde(default)]
    pub errors: BTreeMap<String, String>,
}

impl Verb for Bundle {
    type Report = Report;
    const NAME: &'static str = "bundle";

    fn local(&self, node: &Node) -> Result<Report, Unanswered> {
        Ok(node::collect(node))
    }

    /// Only programs want it without an archive: another `tweedctl`.
    fn render(&self, answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
        for (_, report) in answers {
            page.json(&report.as_ref().ok())?;
        }
        Ok(())
    }
}

impl Bundle {
    /// The archive of this node; with `-o json` its part as it is.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn on_node(&self, node: &Node, page: &mut Page<'_>) -> Result<Exit> {
        let answers = [(String::new(), self.local(node))];
        if page.format == Format::Json {
            return show(self, &answers, page);
        }
        self.write(page, |archive| {
            let [(_, report)] = answers;
            add_report(archive, "node", report)
        })
    }

    /// The archive of a cluster.
    ///
    /// # Errors
    /// Its nodes cannot be listed, or it cannot be written.
    pub fn in_cluster(&self, cluster: &Cluster, page: &mut Page<'_>) -> Result<Exit> {
        let places = cluster.places()?;
        self.write(page, |archive| {
            add_objects(archive, cluster, cluster.namespace())?;
            for places in places.chunks(NODES_AT_ONCE) {
                let names: Vec<String> = places.iter().map(|place| place.node.clone()).collect();
                for (node, report) in ask(self, cluster, Some(&names))? {
                    add_report(archive, &format!("nodes/{node}"), report)?;
                }
                for (name, is_before) in [("agent.log", false), ("agent-before.log", true)] {
                    let logs = cluster.logs(places, self.log_lines, is_before);
                    for (node, log) in names.iter().zip(logs) {
                        // Mostly there was no container before.
                        if log.is_ok() || !is_before {
                            let file = format!("nodes/{node}/{name}");
                            archive.add(&file, log.map_err(|error| error.to_string()))?;
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// Makes the archive with what `fill` adds.
    fn write(
        &self,
        page: &mut Page<'_>,
        fill: impl FnOnce(&mut Archive<Box<dyn Write>>) -> Result<()>,
    ) -> Result<Exit> {
        let now = Timestamp::now();
        let stem = format!("tweed-bundle-{}", now.strftime("%Y%m%dT%H%M%SZ"));
        let path = self
            .file
            .clone()
            .unwrap_or_else(|| format!("{stem}.tar.zst").into());
        let to_stdout = path.as_os_str() == "-";
        let out: Box<dyn Write> = if to_stdout {
            Box::new(io::stdout())
        } else {
            // It says how the cluster is built: that is for who asked.
            let made = File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&path);
            Box::new(made.with_context(|| format!("cannot make {}", path.display()))?)
        };
        let mut archive = Archive::new(out, &stem, now.as_second().unsigned_abs());
        fill(&mut archive)?;
        let begin = format!("tweedctl {VERSION} at {now}\n");
        let (files, errors) = archive.end(&begin)?;
        if !to_stdout {
            page.line(&format!(
                "{}: {files} files; {errors} could not be had, index.txt says why",
                path.display()
            ))?;
        }
        Ok(if errors == 0 {
            Exit::Fine
        } else {
            Exit::Undetermined
        })
    }
}

/// Adds what the API says of Nodes and of tweed.
fn add_objects<W: Write>(
    archive: &mut Archive<W>,
    agents: &dyn Agents,
    namespace: &str,
) -> Result<()> {
    let core = format!("/api/v1/namespaces/{namespace}");
    let apps = format!("/apis/apps/v1/namespaces/{namespace}");
    let agent = format!("labelSelector={}", AGENT_LABELS.replace('=', "%3D"));
    let tweed = "labelSelector=app.kubernetes.io/name%3Dtweed";
    let of_nodes = "fieldSelector=involvedObject.kind%3DNode";
    for (name, path) in [
        ("version", "/version".to_owned()),
        ("nodes", "/api/v1/nodes".to_owned()),
        ("pods", format!("{core}/pods?{agent}")),
        ("daemonsets", format!("{apps}/daemonsets?{tweed}")),
        ("configmaps", format!("{core}/configmaps?{tweed}")),
        ("events", format!("{core}/events")),
        (
            "node-events",
            format!("/api/v1/namespaces/default/events?{of_nodes}"),
        ),
    ] {
        let text = match agents.get(&path) {
            Ok(object) => Ok(redact::object(object.unwrap_or_default())),
            Err(error) => Err(format!("{error:#}")),
        };
        archive.add(&format!("cluster/{name}.json"), text)?;
    }
    Ok(())
}

/// Adds the part of a node.
fn add_report<W: Write>(
    archive: &mut Archive<W>,
    folder: &str,
    report: Result<Report, Unanswered>,
) -> Result<()> {
    let Report { files, errors } = match report {
        Ok(report) => report,
        Err(why) => return archive.add(&format!("{folder}/node"), Err(why.to_string())),
    };
    for (name, text) in files {
        archive.add(&format!("{folder}/{name}"), Ok(text))?;
    }
    for (name, why) in errors {
        archive.add(&format!("{folder}/{name}"), Err(why))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
