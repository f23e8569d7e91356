//! The findings, the worst first and each once.

use std::cmp::Reverse;
use std::io;

use super::compare::ALL_NODES;
use super::{Level, Report};
use crate::answered::{Answered, reports};
use crate::output::{Page, Tone};
use crate::verbs::nodes::{grouped, named};

/// Maximum number of objects of each node that are named as put back.
const MAX_OBJECTS: usize = 10;

/// Prints what was found.
pub(super) fn render(answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
    let reports: Vec<(&str, &Report)> = reports(answers).collect();
    let found = reports.iter().flat_map(|(node, report)| {
        let wrong = report.findings.iter().filter(|one| one.level > Level::Ok);
        wrong.map(|finding| ((Reverse(finding.level), finding), *node))
    });
    let (mut errors, mut warnings) = (0, 0);
    for ((Reverse(level), finding), nodes) in grouped(found) {
        let (tone, word, count) = if level == Level::Error {
            (Tone::Bad, "error", &mut errors)
        } else {
            (Tone::Warning, "warning", &mut warnings)
        };
        *count += 1;
        let (check, message) = (&finding.check, &finding.message);
        page.toned(tone, &format!("{word}: {check}{}: {message}", on(&nodes)))?;
        if let Some(cure) = &finding.cure {
            page.line(&format!("  → {cure}"))?;
        }
    }
    for (node, report) in &reports {
        for drift in report.drift.iter().take(MAX_OBJECTS) {
            warnings += 1;
            let (kind, object) = (&drift.kind, &drift.object);
            let times = match drift.count {
                1 => "once".to_owned(),
                count => format!("{count} times"),
            };
            let text = format!(
                "warning: drift{}: {kind} {object}: something else changed it, put back {times}",
                on(&[node])
            );
            page.toned(Tone::Warning, &text)?;
        }
    }
    let not_checked = reports.iter().flat_map(|(node, report)| {
        let with_node = |what| (what, *node);
        report.not_checked.iter().map(with_node)
    });
    let not_checked = grouped(not_checked);
    for (what, nodes) in &not_checked {
        page.line(&format!("not checked{}: {what}", on(nodes)))?;
    }
    for (node, answer) in answers {
        if let Err(why) = answer {
            page.toned(Tone::Bad, &format!("no answer{}: {why}", on(&[node])))?;
        }
    }
    page.line(&format!(
        "errors: {errors}, warnings: {warnings}, not checked: {}",
        not_checked.len()
    ))
}

/// Where: nothing for this machine, or for all nodes together.
fn on(nodes: &[&str]) -> String {
    match nodes {
        ["" | ALL_NODES] => String::new(),
        nodes => format!(" on {}", named(nodes)),
    }
}
