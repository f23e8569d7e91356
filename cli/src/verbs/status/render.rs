//! The nodes as a table, what is wrong first, and below it each problem once.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use tweed_component::explain::listed;
use tweed_component::message::{Found, RangeUse};
use tweed_core::problem::Effect;

use super::Report;
use crate::answered::Answered;
use crate::output::{Format, Page, Tone};

/// Maximum number of nodes that are named for a problem.
const MAX_NODES: usize = 8;
const NONE: &str = "-";

/// Prints the nodes and their problems.
pub(super) fn render(answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
    let is_wide = page.format == Format::Wide;
    let mut header = vec!["NODE", "READY", "AGENT", "ADDRESSES", "MTU", "PROBLEMS"];
    if is_wide {
        header.push("POD CIDRS");
    }
    let mut sorted: Vec<&Answered<Report>> = answers.iter().collect();
    // Stable: nodes that are alike stay in the order of their names.
    sorted.sort_by_key(|(_, answer)| Reverse(badness(answer.as_ref().ok())));
    let rows: Vec<Vec<String>> = sorted
        .iter()
        .map(|(node, answer)| row(node, answer.as_ref().ok(), is_wide))
        .collect();
    page.table(&header, &rows)?;
    let unanswered = answers.iter().filter_map(|(node, answer)| {
        let why = answer.as_ref().err()?;
        Some((why.to_string(), node.as_str()))
    });
    for (why, nodes) in grouped(unanswered) {
        let nodes = named(&nodes);
        page.line("")?;
        page.toned(Tone::Bad, &format!("no answer: {why}"))?;
        page.line(&format!("  on {nodes}"))?;
    }
    problems(answers, page)?;
    let notes = answers.iter().flat_map(|(_, answer)| answer.iter());
    let notes = notes.flat_map(|report| {
        let node = report.node.as_str();
        report.notes.iter().map(move |note| (note.clone(), node))
    });
    for (note, nodes) in grouped(notes) {
        page.line(&format!("note on {}: {note}", named(&nodes)))?;
    }
    Ok(())
}

/// How urgent a node is.
fn badness(report: Option<&Report>) -> u8 {
    match report {
        None => 4,
        Some(report) if report.affects_running => 3,
        Some(report) if !report.ready => 2,
        Some(report) => u8::from(!report.problems.is_empty()),
    }
}

fn row(node: &str, report: Option<&Report>, is_wide: bool) -> Vec<String> {
    let Some(report) = report else {
        let unknown = [node, "unknown", NONE, NONE, NONE, "no answer"];
        return unknown.map(ToOwned::to_owned).to_vec();
    };
    let count = report.problems.len() + report.more_problems;
    let ready = if report.ready { "yes" } else { "NO" };
    let mut row = vec![
        report.node.clone(),
        ready.to_owned(),
        report.agent.clone().unwrap_or_else(|| "silent".to_owned()),
        addresses(&report.ranges),
        report.mtu.map_or(NONE.to_owned(), |mtu| mtu.to_string()),
        if count == 0 {
            NONE.to_owned()
        } else {
            count.to_string()
        },
    ];
    if is_wide {
        row.push(report.pod_cidrs.join(","));
    }
    row
}

/// Used addresses of all, for each range. Nobody fills a range of IPv6.
fn addresses(ranges: &[RangeUse]) -> String {
    let of_range = |range: &RangeUse| match range.used.saturating_add(range.free) {
        all if all > u64::from(u32::MAX) => range.used.to_string(),
        all => format!("{}/{all}", range.used),
    };
    let texts: Vec<String> = ranges.iter().map(of_range).collect();
    if texts.is_empty() {
        NONE.to_owned()
    } else {
        texts.join(",")
    }
}

/// Prints each kind of problem once, the worst first: what is wrong and where, and its cure.
fn problems(answers: &[Answered<Report>], page: &mut Page<'_>) -> io::Result<()> {
    let reports = answers
        .iter()
        .filter_map(|(_, answer)| answer.as_ref().ok());
    let found = reports.flat_map(|report| {
        let node = report.node.as_str();
        report.problems.iter().map(move |problem| (node, problem))
    });
    let mut kinds: BTreeMap<(Reverse<Effect>, &str, &str), Vec<(&str, &Found)>> = BTreeMap::new();
    for (node, problem) in found {
        let key = (
            Reverse(problem.effect),
            problem.kind.as_str(),
            problem.cure.as_str(),
        );
        kinds.entry(key).or_default().push((node, problem));
    }
    for ((Reverse(effect), kind, cure), found) in kinds {
        let (tone, what) = match effect {
            Effect::RunningPods => (Tone::Bad, "running pods are affected"),
            Effect::NewPods => (Tone::Bad, "new pods are not served"),
            Effect::Warning => (Tone::Warning, "warning"),
        };
        let kind = if kind.is_empty() {
            String::new()
        } else {
            format!("{kind}: ")
        };
        page.line("")?;
        page.toned(tone, &format!("{kind}{what}"))?;
        let texts = found.into_iter().map(|(node, problem)| {
            let object = match problem.object.as_str() {
                "" => String::new(),
                object => format!(" ({object})"),
            };
            (format!("{}{object}", problem.message), node)
        });
        for (text, nodes) in grouped(texts) {
            page.line(&format!("  on {}: {text}", named(&nodes)))?;
        }
        if !cure.is_empty() {
            page.line(&format!("  → {cure}"))?;
        }
    }
    Ok(())
}

/// The nodes of each text.
fn grouped<'a>(texts: impl Iterator<Item = (String, &'a str)>) -> BTreeMap<String, Vec<&'a str>> {
    let mut grouped: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (text, node) in texts {
        grouped.entry(text).or_default().push(node);
    }
    grouped
}

fn named(nodes: &[&str]) -> String {
    listed(nodes.iter().map(|node| (*node).to_owned()), MAX_NODES)
}
