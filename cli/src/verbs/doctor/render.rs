//! The findings, the worst first and each once.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use tweed_component::explain::listed;

use super::compare::ALL_NODES;
use super::{Finding, Level, Report};
use crate::answered::Answered;
use crate::output::{Page, Tone};

/// Maximum number of nodes that a finding names.
const MAX_NODES: usize = 8;
/// Maximum number of objects of each node that are named as put back.
const MAX_OBJECTS: usize = 10;

/// Prints what was found.
pub(super) fn render(answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
    let reports = || {
        let ok = answers
            .iter()
            .filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?)));
        ok.map(|(node, report)| (node.as_str(), report))
    };
    let mut findings: BTreeMap<(Reverse<Level>, &Finding), Vec<&str>> = BTreeMap::new();
    for (node, report) in reports() {
        for finding in report
            .findings
            .iter()
            .filter(|finding| finding.level > Level::Ok)
        {
            let key = (Reverse(finding.level), finding);
            findings.entry(key).or_default().push(node);
        }
    }
    let (mut errors, mut warnings) = (0, 0);
    for ((Reverse(level), finding), nodes) in findings {
        let (tone, word) = if level == Level::Error {
            errors += 1;
            (Tone::Bad, "error")
        } else {
            warnings += 1;
            (Tone::Warning, "warning")
        };
        let Finding { check, message, .. } = finding;
        page.toned(tone, &format!("{word}: {check}{}: {message}", on(&nodes)))?;
        if let Some(cure) = &finding.cure {
            page.line(&format!("  → {cure}"))?;
        }
    }
    for (node, report) in reports() {
        for drift in report.drift.iter().take(MAX_OBJECTS) {
            warnings += 1;
            let (kind, object, count) = (&drift.kind, &drift.object, drift.count);
            let on = on(&[node]);
            let text = format!(
                "warning: drift{on}: {kind} {object}: something else changed it, put back {count} times"
            );
            page.toned(Tone::Warning, &text)?;
        }
    }
    let mut not_checked: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, report) in reports() {
        for what in &report.not_checked {
            not_checked.entry(what).or_default().push(node);
        }
    }
    for (what, nodes) in &not_checked {
        page.line(&format!("not checked{}: {what}", on(nodes)))?;
    }
    for (node, why) in answers
        .iter()
        .filter_map(|(node, answer)| Some((node, answer.as_ref().err()?)))
    {
        page.toned(Tone::Bad, &format!("no answer{}: {why}", on(&[node])))?;
    }
    page.line(&format!(
        "errors: {errors}, warnings: {warnings}, not checked: {}",
        not_checked.len()
    ))
}

/// Where: nothing for this machine, or for all nodes together.
fn on(nodes: &[&str]) -> String {
    match nodes {
        [node] if node.is_empty() || *node == ALL_NODES => String::new(),
        nodes => {
            let nodes = nodes.iter().map(|node| (*node).to_owned());
            format!(" on {}", listed(nodes, MAX_NODES))
        }
    }
}
